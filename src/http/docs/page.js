/*
 * Adds what Swagger UI lacks for keyboards and screen readers; page.css does the rest. A classic browser script that has
 * to run under the page's Content-Security-Policy.
 */

/** A Swagger UI plugin. */
// biome-ignore lint/correctness/noUnusedVariables: docs.ts refers to it in the source text that it sends to the browser
function accessibilityPlugin({ React }) {
  const { createElement, useLayoutEffect, useRef } = React

  /** A native modal dialog traps the focus, and returns it to the button that opened the dialog. */
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

  /** Collapses what is long and seldom read under a summary. */
  const collapsed = (summary) => (Part) => (props) =>
    createElement('details', null, createElement('summary', null, summary(props)), createElement(Part, props))

  return {
    wrapComponents: {
      authorizationPopup: modal,
      headers: collapsed(({ headers }) => `Headers: ${headers.keySeq().join(', ')}`),
      operationLink: collapsed(({ name }) => `Link: ${name}`),
      // A link inside the button that opens an operation is not focusable; the button sets the page's address as well.
      DeepLink: () => (props) => createElement('span', null, props.text),
    },
  }
}

const operationOf = (element) => element.closest('.opblock').id.split('-').at(-1)
const closestData = (element, name) => element.closest(`[data-${name}]`)?.getAttribute(`data-${name}`) ?? ''

/** Attributes that Swagger UI lacks: selector, name, and value by element. */
const MISSING_ATTRIBUTES = [
  ['.information-container', 'role', () => 'banner'],
  ['.close-modal', 'aria-label', () => 'Close'],
  ['.auth-container h6', 'aria-level', () => '5'],
  ['.auth-btn-wrapper button', 'aria-label', (button) => button.textContent],
  ['.parameters-col_description select', 'aria-label', (select) => closestData(select, 'param-name')],
  ['.body-param__text', 'aria-label', () => 'Request body'],
  ['.model-box-control:not(:has(.model-title))', 'aria-label', () => 'Properties'],
  ['.responses-table[role=region]', 'aria-label', (table) => `Responses of ${operationOf(table)}`],
  ['.examples-select-element', 'aria-label', (select) => `Example ${closestData(select, 'code')}`.trim()],
  ['pre.microlight', 'tabindex', (code) => (code.scrollHeight > code.clientHeight ? '0' : '-1')],
]

function addMissingAttributes() {
  for (const [selector, attribute, value] of MISSING_ATTRIBUTES) {
    for (const element of document.querySelectorAll(selector)) element.setAttribute(attribute, value(element))
  }
}

new MutationObserver(addMissingAttributes).observe(document.querySelector('#swagger-ui'), {
  childList: true,
  subtree: true,
})
