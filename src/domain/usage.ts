/** How much all projects may use together, and how much one of them. */
export interface Limit {
  all: number
  project: number
}

/** How much of something is used, in all and by project. */
export class Usage {
  readonly #limit: Limit
  readonly #byProject = new Map<string, number>()
  total = 0

  constructor(limit: Limit) {
    this.#limit = limit
  }

  /** Whether a project may use as much in addition. More than its share counts as the share. */
  hasShare(project: string, amount: number): boolean {
    const { project: share } = this.#limit
    return (this.#byProject.get(project) ?? 0) + Math.min(amount, share) <= share
  }

  /** Whether all projects leave room for as much. */
  hasRoom(amount: number): boolean {
    const { all, project: share } = this.#limit
    return this.total + Math.min(amount, share) <= all
  }

  add(project: string, amount: number): void {
    const used = (this.#byProject.get(project) ?? 0) + amount
    if (used === 0) this.#byProject.delete(project)
    else this.#byProject.set(project, used)
    this.total += amount
  }
}
