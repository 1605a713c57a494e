import type pg from 'pg'

export const SELECT_ENCODING = "SELECT current_setting('server_encoding') AS encoding"

/** What is wrong with a database of this encoding, if anything, and how to fix it. */
export const judgeEncoding = (encoding: string): { problem: string; fix: string } | undefined =>
  encoding === 'UTF8'
    ? undefined
    : {
        problem: `${encoding}, which cannot store all text`,
        fix: "Create the database anew, with ENCODING 'UTF8' TEMPLATE template0, and restore a backup into it",
      }

/** @throws Error with one line when the database cannot store all text */
export async function requireEncoding(pool: pg.Pool): Promise<void> {
  const { rows } = await pool.query<{ encoding: string }>(SELECT_ENCODING)
  const found = judgeEncoding(rows[0]?.encoding as string)
  if (found) throw new Error(`The encoding of the database is ${found.problem}. ${found.fix}`)
}
