/*
 * What Swagger UI lacks for people who use a keyboard or a screen reader; page.css does the rest.
 * A classic script of the browser, within the page's Content-Security-Policy.
 */

/** A plugin of Swagger UI. */
// biome-ignore lint/correctness/noUnusedVariables: docs.ts names it in what it sends to the browser
function flowtrailDocs({ React }) {
  const { createElement, useLayoutEffect, useRef } = React

  /** A native modal dialog keeps the focus inside and gives it back to the button that opened it. */
  const modal = (Popup) => (props) => {
    const dialog = useRef()
    useLayoutEffect(() => {
      const element = dialog.current
      element.showModal()
      element.querySelector('input')?.focus()
      return () => element.close()
    }, [])
    return createElement('dialog', { ref: dialog, 'aria-label': 'Authorization' }, createElement(Popup, props))
  }

  /** What is long and seldom read is folded under a line that names it. */
  const folded = (line) => (Part) => (props) =>
    createElement('details', null, createElement('summary', null, line(props)), createElement(Part, props))

  return {
    wrapComponents: {
      authorizationPopup: modal,
      headers: folded(({ headers }) => `Headers: ${headers.keySeq().join(', ')}`),
      operationLink: folded(({ name }) => `Link: ${name}`),
      // A link inside the button that opens an operation cannot be reached on its own; the button sets the address too.
      DeepLink: () => (props) => createElement('span', null, props.text),
    },
  }
}

const operationOf = (element) => element.closest('.opblock').id.split('-').at(-1)
const near = (element, name) => element.closest(`[data-${name}]`)?.getAttribute(`data-${name}`) ?? ''

/** Attributes that Swagger UI forgot: on what, which, and their values. */
const FORGOTTEN = [
  ['.information-container', 'role', () => 'banner'],
  ['.close-modal', 'aria-label', () => 'Close'],
  ['.auth-container h6', 'aria-level', () => '5'],
  ['.auth-btn-wrapper button', 'aria-label', (button) => button.textContent],
  ['.parameters-col_description select', 'aria-label', (select) => near(select, 'param-name')],
  ['.body-param__text', 'aria-label', () => 'Request body'],
  ['.model-box-control:not(:has(.model-title))', 'aria-label', () => 'Properties'],
  ['.responses-table[role=region]', 'aria-label', (table) => `Responses of ${operationOf(table)}`],
  ['.examples-select-element', 'aria-label', (select) => `Example ${near(select, 'code')}`.trim()],
  ['pre.microlight', 'tabindex', (code) => (code.scrollHeight > code.clientHeight ? '0' : '-1')],
]

function addForgotten() {
  for (const [selector, attribute, value] of FORGOTTEN) {
    for (const element of document.querySelectorAll(selector)) element.setAttribute(attribute, value(element))
  }
}

new MutationObserver(addForgotten).observe(document.querySelector('#swagger-ui'), { childList: true, subtree: true })
