import { serviceUnavailable } from './errors.ts'

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

  /** Whether a project may use this much more. An amount above its share counts as the share. */
  hasShare(project: string, amount: number): boolean {
    const { project: share } = this.#limit
    return (this.#byProject.get(project) ?? 0) + Math.min(amount, share) <= share
  }

  /** Whether the total leaves room for this much more. */
  hasRoom(amount: number): boolean {
    const { all, project: share } = this.#limit
    return this.total + Math.min(amount, share) <= all
  }

  /** Whether this much more exceeds neither the project's share nor the total. */
  fits(project: string, amount: number): boolean {
    return this.hasShare(project, amount) && this.hasRoom(amount)
  }

  /** Adds what fits. @throws ApiError service_unavailable for what does not */
  take(project: string, amount: number): void {
    if (!this.fits(project, amount)) throw serviceUnavailable()
    this.add(project, amount)
  }

  add(project: string, amount: number): void {
    const used = (this.#byProject.get(project) ?? 0) + amount
    if (used === 0) this.#byProject.delete(project)
    else this.#byProject.set(project, used)
    this.total += amount
  }
}
