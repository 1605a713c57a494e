import { type Change, RATINGS, type Rating } from './judge.ts'

/** The highest rating among the changes; `undefined` if there are none. */
export const ratingOf = (changes: readonly Change[]): Rating | undefined =>
  RATINGS.findLast((rating) => changes.some((change) => change.rating === rating))

/** The versions that may follow the released one, given the rating of the changes. */
export function versionsAfter(released: string, rating: Rating | undefined): string[] {
  const [major = 0, minor = 0, patch = 0] = released.split('.').map(Number)
  const [wording, addition, break_] = [`${major}.${minor}.${patch + 1}`, `${major}.${minor + 1}.0`, `${major + 1}.0.0`]
  switch (rating) {
    case undefined:
      return [released]
    case 'patch':
      return [wording, addition]
    case 'minor':
      return [addition]
    case 'breaking':
      return [break_]
  }
}
