/*
 * The table of contents: beside the page on a wide screen, else folded at its top. It names what has an id in the
 * description (docs.ts sets them) and all operations. A classic browser script, as page.js.
 */

/** A Swagger UI plugin. */
// biome-ignore lint/correctness/noUnusedVariables: as in page.js
function contentsPlugin({ React }) {
  const { createElement, Fragment, useEffect, useState } = React
  const MAX_FRAMES = 120
  const SETTLED_FRAMES = 20
  const READING_LINE_PX = 120
  const wide = matchMedia('(width >= 1100px)')

  /** Counts what the reader wants to see: of several targets, or the target and a place scrolled to, only the last counts. */
  let wish = 0
  for (const event of ['wheel', 'touchmove', 'keydown']) addEventListener(event, () => wish++, { passive: true })

  /** The parts of the hash between slashes; none of one that is malformed, as when a link was cut off. */
  function partsOfHash() {
    try {
      return decodeURIComponent(location.hash.slice(1)).split('/').filter(Boolean)
    } catch {
      return []
    }
  }

  /** Opens what is folded around the target of a link, also after Back and in a shared URL. */
  function reveal({ layoutActions }) {
    // Swagger UI takes every hash for a tag's, and puts a slash before it.
    const [id = '', operationId] = partsOfHash()
    if (operationId) {
      layoutActions.show(['operations-tag', id], true)
      layoutActions.show(['operations', id, operationId], true)
    }
    wish++
    const show = (framesLeft, settledFrames, own) => {
      if (own !== wish) return
      const target = document.getElementById(operationId ? `operations-${id}-${operationId}` : id)
      const isDrawn = target && (!operationId || target.querySelector('.responses-wrapper'))
      target?.closest('details')?.setAttribute('open', '')
      const before = target?.getBoundingClientRect().top
      target?.scrollIntoView()
      // An operation is drawn after its references are resolved, and the browser may scroll to where it was before.
      const isSettled = isDrawn && target.getBoundingClientRect().top === before
      const settled = isSettled ? settledFrames + 1 : 0
      // Contents follow what is scrolled, and what has unfolded without.
      if (framesLeft === 0 || settled === SETTLED_FRAMES) dispatchEvent(new Event('scroll'))
      else requestAnimationFrame(() => show(framesLeft - 1, settled, own))
    }
    show(MAX_FRAMES, 0, wish)
  }

  /** The group of links to parts of the description whose ids begin with a prefix. */
  function partsOf(description, name, prefix) {
    const parts = description.matchAll(/ id="([a-z]+)-([a-z-]+)".*?>([^<>]+)</g)
    const links = [...parts].filter(([, kind]) => kind === prefix)
    return { name, links: links.map(([, kind, id, text]) => ({ href: `#${kind}-${id}`, text })) }
  }

  const operationsOf = (tagged) =>
    [...tagged].map(([name, group]) => ({
      name,
      links: [...group.get('operations')].map((entry) => ({
        href: `#/${encodeURIComponent(name)}/${entry.getIn(['operation', 'operationId'])}`,
        text: entry.getIn(['operation', 'summary']),
        method: entry.get('method'),
      })),
    }))

  /** The last target at the top of the screen or above, which is what the reader is reading. */
  function readHref(hrefs) {
    const isRead = (href) => {
      const id = href.startsWith('#/')
        ? `operations-${decodeURIComponent(href.slice(2)).replace('/', '-')}`
        : href.slice(1)
      return document.getElementById(id)?.getBoundingClientRect().top < READING_LINE_PX
    }
    return hrefs.findLast(isRead)
  }

  function Contents(props) {
    const { specSelectors } = props
    const [isOpen, setOpen] = useState(wide.matches)
    const [current, setCurrent] = useState()
    const description = specSelectors.info().get('description') ?? ''
    const groups = [
      partsOf(description, 'Start', 'start'),
      partsOf(description, 'Guides', 'guide'),
      partsOf(description, 'Concepts', 'chapter'),
      ...operationsOf(specSelectors.taggedOperations()),
    ].filter(({ links }) => links.length > 0)
    const isLoaded = groups.length > 0

    useEffect(() => {
      const resize = () => setOpen(wide.matches)
      wide.addEventListener('change', resize)
      return () => wide.removeEventListener('change', resize)
    }, [])
    useEffect(() => {
      if (!isLoaded) return
      const follow = () => reveal(props)
      const spy = () => setCurrent(readHref(groups.flatMap(({ links }) => links.map(({ href }) => href))))
      addEventListener('hashchange', follow)
      addEventListener('scroll', spy, { passive: true })
      if (location.hash) follow()
      spy()
      return () => {
        removeEventListener('hashchange', follow)
        removeEventListener('scroll', spy)
      }
    }, [isLoaded])

    if (!isLoaded) return null
    const follow = ({ currentTarget }) => {
      if (!wide.matches) setOpen(false)
      // Otherwise the hash changes.
      if (currentTarget.hash === location.hash) reveal(props)
    }
    const link = ({ href, text, method }) =>
      createElement(
        'li',
        { key: href },
        createElement(
          'a',
          {
            href,
            // Swagger UI's Zenscroll would scroll itself, and to what is still folded.
            className: 'noZensmooth',
            onClick: follow,
            'aria-current': href === current ? 'location' : undefined,
          },
          text,
          method && createElement('b', { className: `method-${method}` }, method.toUpperCase()),
        ),
      )
    return createElement(
      'nav',
      { className: 'contents', 'aria-label': 'Contents' },
      createElement(
        'details',
        { open: isOpen, onToggle: ({ currentTarget }) => setOpen(currentTarget.open) },
        createElement('summary', null, 'Contents'),
        groups.map(({ name, links }) =>
          createElement(
            'section',
            { key: name, 'aria-label': name },
            createElement('p', null, name),
            createElement('ul', null, links.map(link)),
          ),
        ),
      ),
    )
  }

  // Swagger UI's bar, which page.css hides, puts the page into dark mode.
  const withContents = (Topbar) => (props) =>
    createElement(Fragment, null, createElement(Contents, props), createElement(Topbar, props))

  return { wrapComponents: { Topbar: withContents } }
}
