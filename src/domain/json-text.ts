/** A value as its JSON text, for what is stored as it is sent. */
export class JsonText<T = unknown> {
  declare readonly type: T
  readonly text: string

  constructor(text: string) {
    this.text = text
  }
}
