import ts from 'typescript'

/** The name of a source file's code outside of functions, where it stands for an offset. */
const MODULE = 0

/**
 * The offset of the innermost function that contains a position, or 0 outside of functions. The start of a function belongs to the
 * code around it: what begins there replaces or removes the function as a whole.
 */
export function functionAt(text: string, position: number): number {
  let innermost = MODULE
  forEachFunction(text, (node) => {
    if (node.getStart() < position && position < node.end) innermost = node.pos
  })
  return innermost
}

/** The source with a call of `globalThis.onFunction(file, offset)` at the beginning of each function and of the module. */
export function reportingFunctions(file: string, text: string): string {
  const call = (offset: number) => `globalThis.onFunction?.(${JSON.stringify(file)}, ${offset})`
  const insertions: [offset: number, text: string][] = []
  forEachFunction(text, ({ pos, body }) => {
    if (!body) return
    if (ts.isBlock(body)) insertions.push([body.getStart() + 1, `${call(pos)};`])
    else insertions.push([body.getStart(), `(${call(pos)}, `], [body.end, ')'])
  })
  return insertions
    .sort(([a], [b]) => b - a)
    .reduce(
      (code, [offset, inserted]) => code.slice(0, offset) + inserted + code.slice(offset),
      `${text}\n${call(MODULE)}\n`,
    )
}

/** Visits all functions with a body, outer ones before those within them. */
function forEachFunction(
  text: string,
  visit: (node: ts.FunctionLikeDeclaration & { body?: ts.ConciseBody }) => void,
): void {
  const walk = (node: ts.Node): void => {
    if (ts.isFunctionLike(node) && 'body' in node) visit(node as ts.FunctionLikeDeclaration)
    ts.forEachChild(node, walk)
  }
  walk(ts.createSourceFile('source.ts', text, ts.ScriptTarget.Latest, true))
}
