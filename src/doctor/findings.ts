/** What a check has found. */
export interface Finding {
  status: 'ok' | 'warning' | 'error'
  finding: string
  /** What to do about it, unless it is ok. */
  fix?: string
}

export interface CheckedFinding extends Finding {
  /** The name of the check. */
  check: string
}

export const ok = (finding: string): Finding => ({ status: 'ok', finding })
export const warning = (finding: string, fix: string): Finding => ({ status: 'warning', finding, fix })
export const error = (finding: string, fix: string): Finding => ({ status: 'error', finding, fix })
