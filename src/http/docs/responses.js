/*
 * Keeps an operation short: documented responses other than successes are folded, each under its status and description,
 * and the response to *Execute* is scrolled into view. A classic browser script, as page.js.
 */

/** A Swagger UI plugin. */
// biome-ignore lint/correctness/noUnusedVariables: as in page.js
function responsesPlugin({ React }) {
  const { createElement, Fragment, useLayoutEffect, useRef, useState } = React

  const folded = (Response) => (props) => {
    const { code, response } = props
    const [isOpen, setOpen] = useState(false)
    if (code.startsWith('2')) return createElement(Response, props)
    const toggle = createElement(
      'button',
      { type: 'button', className: 'response-toggle', 'aria-expanded': isOpen, onClick: () => setOpen(!isOpen) },
      createElement('b', null, code),
      ' ',
      // A button cannot hold the paragraphs that Markdown becomes.
      createElement('span', null, response.get('description').replaceAll('`', '')),
    )
    return createElement(
      Fragment,
      null,
      createElement('tr', { className: 'response-fold' }, createElement('td', null, toggle)),
      isOpen && createElement(Response, props),
    )
  }

  /** Not to jump to a response again when its operation is closed and opened. */
  const shown = new Set()

  const scrolledIntoView = (LiveResponse) => (props) => {
    const { response } = props
    const place = useRef()
    // By value: Swagger UI makes a new object of the same response whenever a field is edited.
    const id = response.hashCode()
    // Before the reader can do anything else, which a scroll would disturb.
    useLayoutEffect(() => {
      if (shown.has(id)) return
      shown.add(id)
      place.current.scrollIntoView({ block: 'nearest' })
    }, [id])
    return createElement('div', { className: 'live-response', ref: place }, createElement(LiveResponse, props))
  }

  return { wrapComponents: { response: folded, liveResponse: scrolledIntoView } }
}
