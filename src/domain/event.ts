import { jsonDepth } from './text.ts'

/** The known event types (docs/semantics.md#event-types). */
export const PAGE_VIEWED = 'flowpage.viewed'
export const CUSTOM_EVENT = 'custom_event:triggered'

const MAX_PROPS_bytes = 32 * 1024
const MAX_PROPS_depth = 64
export const NOT_AN_OBJECT = 'must be the text of a JSON object, for example "{\\"plan\\":\\"pro\\"}"'

/**
 * The issue with a custom event's properties, undefined when they are valid: the text of a JSON object, at most 32 KiB of
 * UTF-8 and 64 levels deep (docs/semantics.md#custom-events).
 */
export function customEventPropsIssue(text: string): string | undefined {
  if (Buffer.byteLength(text) > MAX_PROPS_bytes) return `must be at most ${MAX_PROPS_bytes} bytes of UTF-8`
  let props: unknown
  try {
    props = JSON.parse(text)
  } catch {
    return NOT_AN_OBJECT
  }
  if (typeof props !== 'object' || props === null || Array.isArray(props)) return NOT_AN_OBJECT
  return jsonDepth(props) > MAX_PROPS_depth ? `must be nested at most ${MAX_PROPS_depth} levels deep` : undefined
}
