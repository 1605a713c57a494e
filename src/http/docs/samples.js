/*
 * Under each operation: the request that *Execute* would send, as code in the reader's language. It has the values of the
 * fields, but reads the API key from the environment, so that a copied sample holds no secret. A classic browser script,
 * as page.js.
 */

/** A Swagger UI plugin. */
// biome-ignore lint/correctness/noUnusedVariables: as in page.js
function samplesPlugin({ React }) {
  const { createElement, Fragment, useState, useSyncExternalStore } = React
  const LANGUAGES = { curl: [curl, 'bash'], TypeScript: [typescript], Python: [python], Go: [go] }
  const STORED_AS = 'flowtrail.language'

  /** Uses what the browser keeps for the page, which its settings may deny. */
  function withStorage(use) {
    try {
      return use(localStorage)
    } catch {
      return undefined
    }
  }

  // The choice holds for all operations, and for the next visit.
  let chosen = withStorage((storage) => storage.getItem(STORED_AS))
  if (!Object.hasOwn(LANGUAGES, chosen)) chosen = 'curl'
  const listeners = new Set()
  const subscribe = (listener) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }
  function choose(language) {
    chosen = language
    withStorage((storage) => storage.setItem(STORED_AS, language))
    for (const listener of listeners) listener()
  }

  /** Builds the request as Swagger UI's own action `executeRequest` does, but without the key. */
  function requestOf({ path, method, fn, specSelectors, oas3Selectors }) {
    const spec = specSelectors.specJsonWithResolvedSubtrees().toJS()
    const { url, headers, body } = fn.buildRequest({
      spec,
      operationId: spec.paths[path][method].operationId,
      parameters: specSelectors.parameterValues([path, method]).toJS(),
      requestContentType: oas3Selectors.requestContentType(path, method),
      requestBody: oas3Selectors.requestBodyValue(path, method),
      server: oas3Selectors.selectedServer(),
      contextUrl: specSelectors.url(),
    })
    const text = typeof body === 'object' ? JSON.stringify(body, null, 2) : body
    // Swagger UI's own header; the service ignores it.
    delete headers.accept
    return { method: method.toUpperCase(), url, headers: Object.entries(headers), body: text }
  }

  function sampleOf(props, language) {
    try {
      const [generate] = LANGUAGES[language]
      return generate(requestOf(props))
    } catch ({ message }) {
      // The body is not JSON, for example.
      return `${message}.`
    }
  }

  function Samples(props) {
    const language = useSyncExternalStore(subscribe, () => chosen)
    const [copied, setCopied] = useState()
    const SyntaxHighlighter = props.getComponent('SyntaxHighlighter', true)
    const sample = sampleOf(props, language)
    const button = (name) =>
      createElement(
        'button',
        { key: name, type: 'button', 'aria-pressed': name === language, onClick: () => choose(name) },
        name,
      )
    const copy = () => navigator.clipboard.writeText(sample).then(() => setCopied(sample))
    return createElement(
      'div',
      { className: 'samples' },
      createElement(
        'div',
        { className: 'opblock-section-header' },
        createElement('h4', null, 'Code'),
        createElement(
          'div',
          { role: 'group', 'aria-label': 'Language' },
          Object.keys(LANGUAGES).map(button),
          // Browsers have no clipboard for pages of other hosts without TLS.
          navigator.clipboard &&
            createElement('button', { type: 'button', onClick: copy }, copied === sample ? 'Copied' : 'Copy'),
        ),
      ),
      createElement(
        'p',
        null,
        'With your values from above, and your key in the variable ',
        createElement('code', null, 'FLOWTRAIL_KEY'),
        '.',
      ),
      createElement(
        SyntaxHighlighter,
        { language: LANGUAGES[language][1] ?? 'javascript', className: 'microlight' },
        sample,
      ),
    )
  }

  const withSamples = (Responses) => (props) => {
    const { path, method, getComponent } = props
    const samples = createElement(getComponent('Samples', true), { path, method })
    return createElement(Fragment, null, samples, createElement(Responses, props))
  }

  // Swagger UI takes each media type with `json` in it for JSON, and would quote the text of lines.
  const withLines = (getSampleSchema) => (schema, mediaType, config, example) =>
    (mediaType === 'application/x-ndjson' && example) || getSampleSchema(schema, mediaType, config, example)

  return {
    afterLoad({ fn }) {
      Object.assign(this.fn, { getSampleSchema: withLines(fn.getSampleSchema) })
    },
    components: { Samples },
    // Swagger UI's own sample, after *Execute*, shows the key.
    wrapComponents: { responses: withSamples, curl: () => () => null },
  }
}

const lines = (...all) =>
  all
    .flat()
    .filter((line) => line !== undefined)
    .join('\n')
const indent = (text, by) => text.replaceAll('\n', `\n${by}`)
// What JSON has for a string is also one in TypeScript, Python and Go.
const quote = (text) => JSON.stringify(text)

/** Whether the body is JSON; otherwise it is text. */
const isJson = (headers) =>
  headers.some(([name, value]) => /^content-type$/i.test(name) && value === 'application/json')

function curl({ method, url, headers, body }) {
  const shell = (text) => `'${text.replaceAll("'", `'\\''`)}'`
  return lines(
    `curl --fail-with-body ${method === (body === undefined ? 'GET' : 'POST') ? '' : `-X ${method} `}${shell(url)} \\`,
    [
      '  -H "X-Api-Key: $FLOWTRAIL_KEY"',
      ...headers.map(([name, value]) => `  -H ${shell(`${name}: ${value}`)}`),
      ...(body === undefined ? [] : [`  --data-raw ${shell(body)}`]),
    ].join(' \\\n'),
  )
}

function typescript({ method, url, headers, body }) {
  return lines(
    `const response = await fetch(${quote(url)}, {`,
    method === 'GET' ? undefined : `  method: ${quote(method)},`,
    '  headers: {',
    '    "X-Api-Key": process.env.FLOWTRAIL_KEY ?? "",',
    headers.map(([name, value]) => `    ${quote(name)}: ${quote(value)},`),
    '  },',
    body &&
      `  body: ${isJson(headers) ? `JSON.stringify(${indent(JSON.stringify(JSON.parse(body), null, 2), '  ')})` : quote(body)},`,
    '})',
    // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of the sample
    'if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`)',
    'console.log(await response.json())',
  )
}

function python({ method, url, headers, body }) {
  return lines(
    'import json',
    'import os',
    'import sys',
    'import urllib.error',
    'import urllib.request',
    '',
    'request = urllib.request.Request(',
    `    ${quote(url)},`,
    `    method=${quote(method)},`,
    '    headers={',
    '        "X-Api-Key": os.environ["FLOWTRAIL_KEY"],',
    headers.map(([name, value]) => `        ${quote(name)}: ${quote(value)},`),
    '    },',
    body &&
      `    data=${isJson(headers) ? `json.dumps(${indent(pythonValue(JSON.parse(body)), '    ')})` : quote(body)}.encode(),`,
    ')',
    'try:',
    '    with urllib.request.urlopen(request) as response:',
    '        print(json.load(response))',
    'except urllib.error.HTTPError as error:',
    '    sys.exit(f"{error.code}: {error.read().decode()}")',
  )
}

function pythonValue(value) {
  if (value === null) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (typeof value !== 'object') return JSON.stringify(value)
  const items = Array.isArray(value)
    ? value.map(pythonValue)
    : Object.entries(value).map(([name, item]) => `${quote(name)}: ${pythonValue(item)}`)
  const [open, close] = Array.isArray(value) ? '[]' : '{}'
  return items.length === 0
    ? open + close
    : `${open}\n${items.map((item) => `    ${indent(item, '    ')},\n`).join('')}${close}`
}

function go({ method, url, headers, body }) {
  const literal = body?.includes('`') ? quote(body) : `\`${body}\``
  return lines(
    'package main',
    '',
    'import (',
    ['fmt', 'io', 'net/http', 'os', ...(body ? ['strings'] : [])].map((name) => `\t${quote(name)}`),
    ')',
    '',
    'func main() {',
    body && `\tbody := strings.NewReader(${literal})`,
    `\trequest, err := http.NewRequest(${quote(method)}, ${quote(url)}, ${body ? 'body' : 'nil'})`,
    '\tif err != nil {\n\t\tpanic(err)\n\t}',
    '\trequest.Header.Set("X-Api-Key", os.Getenv("FLOWTRAIL_KEY"))',
    headers.map(([name, value]) => `\trequest.Header.Set(${quote(name)}, ${quote(value)})`),
    '\tresponse, err := http.DefaultClient.Do(request)',
    '\tif err != nil {\n\t\tpanic(err)\n\t}',
    '\tdefer response.Body.Close()',
    '\ttext, err := io.ReadAll(response.Body)',
    '\tif err != nil {\n\t\tpanic(err)\n\t}',
    '\tif response.StatusCode >= 400 {\n\t\tpanic(response.Status + ": " + string(text))\n\t}',
    '\tfmt.Println(string(text))',
    '}',
  )
}
