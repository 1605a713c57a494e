/** Line charts as SVG: as much as our few plots need. */

export interface Line {
  name: string
  /** By x. */
  points: readonly (readonly [x: number, y: number])[]
}

export interface Chart {
  title: string
  x: string
  y: string
  lines: readonly Line[]
}

const WIDTH = 720
const HEIGHT = 400
const MARGIN = { left: 70, right: 150, top: 44, bottom: 52 }
const PLOT = { width: WIDTH - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom }
/** Distinguishable with colour blindness too (Okabe and Ito). The first, which is ours, differs in dark mode. */
const COLOURS = ['var(--first)', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9']
const STYLE = `
svg { --back: #fff; --text: #333; --grid: #ddd; --first: #0072b2 }
@media (prefers-color-scheme: dark) { svg { --back: #0d1117; --text: #c9d1d9; --grid: #30363d; --first: #4da3e0 } }
.back { fill: var(--back) } .grid { stroke: var(--grid) } text { fill: var(--text) }
g { fill: var(--colour); stroke: var(--colour) } g text { fill: inherit; stroke: none }`

const inXml = (text: string) => text.replace(/[&<>]/g, (sign) => `&#${sign.charCodeAt(0)};`)
const short = (value: number) => Intl.NumberFormat('en', { notation: 'compact' }).format(value)

/** A round step, four or five of which reach the value. */
function stepFor(most: number): number {
  const power = 10 ** Math.floor(Math.log10(most / 4))
  return power * ([1, 2, 2.5, 5].find((factor) => factor * power * 5 >= most) ?? 10)
}

/** Draws the chart, x by its logarithm and y from zero; points that could not be measured are left out. */
export function drawChart({ title, x, y, lines: all }: Chart): string {
  const lines = all.map(({ name, points }) => ({ name, points: points.filter(([, value]) => Number.isFinite(value)) }))
  const points = lines.flatMap((line) => line.points)
  const columns = [...new Set(points.map(([at]) => at))].sort((a, b) => a - b)
  const [first = 1, last = 1] = [columns[0], columns.at(-1)]
  const most = Math.max(...points.map(([, value]) => value), 0) || 1
  const step = stepFor(most)
  const top = Math.ceil(most / step) * step
  const across = (at: number) => MARGIN.left + (PLOT.width * Math.log(at / first)) / (Math.log(last / first) || 1)
  const down = (value: number) => MARGIN.top + PLOT.height * (1 - value / top)
  const place = ([at, value]: readonly [number, number]) => `${across(at).toFixed(1)},${down(value).toFixed(1)}`
  const bottom = MARGIN.top + PLOT.height
  const right = MARGIN.left + PLOT.width

  const rows = Array.from({ length: Math.round(top / step) + 1 }, (_, i) => i * step).map(
    (value) => `<path class="grid" d="M${MARGIN.left} ${down(value)}H${right}"/>
<text x="${MARGIN.left - 8}" y="${down(value) + 4}" text-anchor="end">${short(value)}</text>`,
  )
  const ticks = columns.map(
    (at) => `<text x="${across(at)}" y="${bottom + 18}" text-anchor="middle">${short(at)}</text>`,
  )
  // Names stand beside the ends of their lines, pushed apart where they would touch.
  let lowest = 0
  const names = lines
    .map((line, i) => ({ line, i, end: down(line.points.at(-1)?.[1] ?? 0) }))
    .sort((a, b) => a.end - b.end)
    .map(({ line, i, end }) => {
      lowest = Math.max(end + 4, lowest + 15)
      const marks = line.points.map((point) => {
        const [cx, cy] = place(point).split(',')
        return `<circle cx="${cx}" cy="${cy}" r="3"/>`
      })
      // Colours are reused with dashed lines.
      const dashes = i < COLOURS.length ? '' : ' stroke-dasharray="6 3"'
      return `<g style="--colour: ${COLOURS[i % COLOURS.length]}">
<polyline fill="none" stroke-width="2"${dashes} points="${line.points.map(place).join(' ')}"/>${marks.join('')}
<text x="${right + 10}" y="${lowest.toFixed(1)}">${inXml(line.name)}</text></g>`
    })

  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" font-family="sans-serif" font-size="12">
<title>${inXml(title)}</title>
<style>${STYLE}
</style>
<rect class="back" width="${WIDTH}" height="${HEIGHT}"/>
<text x="${MARGIN.left}" y="24" font-size="15">${inXml(title)}</text>
${rows.join('\n')}
${ticks.join('\n')}
<text x="${MARGIN.left + PLOT.width / 2}" y="${HEIGHT - 12}" text-anchor="middle">${inXml(x)}</text>
<text transform="translate(18 ${MARGIN.top + PLOT.height / 2}) rotate(-90)" text-anchor="middle">${inXml(y)}</text>
${names.join('\n')}
</svg>
`
}
