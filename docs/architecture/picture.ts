import { type ImportRule, split } from '../../.dependency-cruiser.ts'

interface Box {
  place: string
  rank: number
  /** The centre. */
  x: number
}
interface Arrow {
  from: string
  to: string
  isTypeOnly: boolean
}

const BOX = { width: 120, height: 34 }
const GAP = { x: 36, y: 40 }
const BEND = 16
const MARGIN = { x: 24, top: 24, bottom: 64 }
const STYLE = `
svg { --back: #fff; --box: #eef4fb; --edge: #4a78a8; --line: #667; --text: #222 }
@media (prefers-color-scheme: dark) { svg { --back: #0d1117; --box: #16263a; --edge: #5b8fc4; --line: #9aa7b4; --text: #e6edf3 } }
.back { fill: var(--back) } rect.box { fill: var(--box); stroke: var(--edge) } text { fill: var(--text) }
.line { stroke: var(--line); fill: none } .type { stroke-dasharray: 4 3 } #head path { fill: var(--line) }`

/**
 * Draws which folder may import which, from top to bottom. An arrow is left out where a path of others leads to its end,
 * and a folder where no arrow leads from or to it.
 */
export function drawImports(rules: Readonly<Record<string, ImportRule>>): string {
  const arrows = withoutDetours(arrowsOf(rules))
  const boxes = arrange([...new Set(Object.keys(rules).map((place) => ownerOf(place, rules)))], arrows)
  const find = (place: string) => boxes.find((box) => box.place === place) as Box
  const left = Math.min(...boxes.map(({ x }) => x)) - BOX.width / 2 - MARGIN.x
  const width = Math.max(...boxes.map(({ x }) => x)) + BOX.width / 2 + MARGIN.x - left
  const bottom = top(Math.max(...boxes.map(({ rank }) => rank))) + BOX.height
  const lines = arrows.map(({ from, to, isTypeOnly }) => {
    const [start, end] = [find(from), find(to)]
    return `<path class="line${isTypeOnly ? ' type' : ''}" marker-end="url(#head)" d="${route(start, end)}"/>`
  })
  const drawn = boxes.map(
    ({
      place,
      rank,
      x,
    }) => `<rect class="box" x="${x - BOX.width / 2}" y="${top(rank)}" width="${BOX.width}" height="${BOX.height}" rx="5"/>
<text x="${x}" y="${top(rank) + BOX.height / 2 + 5}" text-anchor="middle">${place}</text>`,
  )
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="${left} 0 ${width} ${bottom + MARGIN.bottom}" font-family="sans-serif" font-size="14">
<title>Which folder may import which</title>
<style>${STYLE}
</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>
<rect class="back" x="${left}" width="${width}" height="${bottom + MARGIN.bottom}"/>
${lines.join('\n')}
${drawn.join('\n')}
<text x="${left + MARGIN.x}" y="${bottom + 32}" font-size="12">An arrow leads to what may be imported; dashed: types only.</text>
<text x="${left + MARGIN.x}" y="${bottom + 50}" font-size="12">Permitted imports that skip a box on the way are not drawn; the table lists all.</text>
</svg>
`
}

const top = (rank: number) => MARGIN.top + rank * (BOX.height + GAP.y)

/** The folder of a file that has a rule beside its folder's. */
function ownerOf(place: string, rules: Readonly<Record<string, ImportRule>>): string {
  const folder = place.slice(0, place.lastIndexOf('/'))
  return /\.\w+$/.test(place) && folder in rules ? folder : place
}

function arrowsOf(rules: Readonly<Record<string, ImportRule>>): Arrow[] {
  const all = Object.entries(rules).flatMap(([place, { imports }]) => {
    const from = ownerOf(place, rules)
    const { values, types } = split(imports)
    return [...values, ...types]
      .map((name) => ({ from, to: ownerOf(name, rules), isTypeOnly: types.includes(name) }))
      .filter(({ to }) => to !== from && to in rules)
  })
  // A folder and a file of it may both have an arrow to the same place.
  return [...new Map(all.map((arrow) => [`${arrow.from} ${arrow.to}`, arrow])).values()]
}

/** Leaves out arrows to where several others lead as well; one for values is not replaced by any for types. */
function withoutDetours(arrows: Arrow[]): Arrow[] {
  const leads = (from: string, to: string, among: Arrow[]): boolean =>
    among.some((arrow) => arrow.from === from && (arrow.to === to || leads(arrow.to, to, among)))
  return arrows.filter(({ from, to, isTypeOnly }) => {
    const among = arrows.filter((other) => isTypeOnly || !other.isTypeOnly)
    return !among.some((other) => other.from === from && other.to !== to && leads(other.to, to, among))
  })
}

/** Gives each box that an arrow touches a rank, so that all arrows lead downwards, and a place beside the others of it. */
function arrange(places: string[], arrows: Arrow[]): Box[] {
  const above = (place: string) => arrows.filter(({ to }) => to === place).map(({ from }) => from)
  const below = (place: string) => arrows.filter(({ from }) => from === place).map(({ to }) => to)
  const depth = (place: string): number => Math.max(-1, ...above(place).map(depth)) + 1
  // What stands on its own stands close to what it imports.
  const rankOf = (place: string): number =>
    above(place).length === 0 || below(place).length === 0 ? depth(place) : Math.min(...below(place).map(rankOf)) - 1
  const boxes: Box[] = []
  const touched = places.filter((place) => above(place).length + below(place).length > 0)
  const ranks = Map.groupBy(touched, rankOf)
  for (const rank of [...ranks.keys()].sort((a, b) => a - b)) {
    const row = (ranks.get(rank) ?? []).map((place) => {
      const parents = boxes.filter((box) => above(place).includes(box.place))
      return { place, rank, x: parents.reduce((sum, { x }) => sum + x, 0) / (parents.length || 1) }
    })
    row.sort((a, b) => a.x - b.x)
    const centre = row.reduce((sum, { x }) => sum + x, 0) / row.length
    row.forEach((box, i) => {
      const previous = row[i - 1]
      if (previous) box.x = Math.max(box.x, previous.x + BOX.width + GAP.x)
    })
    // Pushed apart, they keep the middle that they had.
    const shift = centre - row.reduce((sum, { x }) => sum + x, 0) / row.length
    for (const box of row) boxes.push({ ...box, x: Math.round(box.x + shift) })
  }
  return boxes
}

/** The way of an arrow; one past other ranks goes to the side first, so that it does not cross their boxes. */
function route(from: Box, to: Box): string {
  const [y1, y2] = [top(from.rank) + BOX.height, top(to.rank)]
  const side = Math.sign(to.x - from.x)
  if (to.rank - from.rank > 1 && side !== 0) {
    const y = top(from.rank) + BOX.height / 2
    return `M${from.x + (side * BOX.width) / 2} ${y}H${to.x - side * BEND}Q${to.x} ${y} ${to.x} ${y + BEND}V${y2}`
  }
  const bend = (y2 - y1) / 2
  return `M${from.x} ${y1}C${from.x} ${y1 + bend} ${to.x} ${y2 - bend} ${to.x} ${y2}`
}
