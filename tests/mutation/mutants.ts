import ts from 'typescript'

/** A small mistake in a source file: the text between two offsets replaced. */
export interface Mutant {
  /** Relative to the root of the checkout. */
  file: string
  /** What it changes and where, without line numbers: stays the same while other code changes. Unique in the file. */
  name: string
  /** From 1. */
  line: number
  start: number
  end: number
  replacement: string
}

/** Replacements of operators, of literals that decide an order or a comparison, and of methods that have a counterpart. */
const SWAPS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    '<': '<=',
    '<=': '<',
    '>': '>=',
    '>=': '>',
    '===': '!==',
    '!==': '===',
    '&&': '||',
    '||': '&&',
    '+': '-',
    '-': '+',
    '*': '/',
    '/': '*',
    '%': '*',
    '+=': '-=',
    '-=': '+=',
    '=': '<>',
    asc: 'desc',
    desc: 'asc',
    ASC: 'DESC',
    DESC: 'ASC',
    min: 'max',
    max: 'min',
    floor: 'ceil',
    ceil: 'floor',
    some: 'every',
    every: 'some',
    startsWith: 'endsWith',
    endsWith: 'startsWith',
    push: 'unshift',
    unshift: 'push',
    pop: 'shift',
    shift: 'pop',
  }),
)

/** In the text of SQL: a pattern, and what replaces a match. */
const SQL_MISTAKES: readonly (readonly [RegExp, (match: string) => string])[] = [
  // One of several conditions; a name, an operator, and a name or placeholder.
  [/\b(AND|and) \(?[\w.]+ (=|<>|<=?|>=?|IS (NOT )?DISTINCT FROM) \(?[\w.$]+\)?(?![\w.(])/g, () => ''],
  [/ <= | >= | < | > /g, (match) => ` ${SWAPS.get(match.trim())} `],
  [/\b(ASC|DESC|asc|desc)\b/g, (match) => SWAPS.get(match) as string],
  [/\b(min|max)(?=\()/g, (match) => SWAPS.get(match) as string],
  [/\bAND\b/g, () => 'OR'],
  [/\bOR\b/g, () => 'AND'],
  [/\bNOT /g, () => ''],
  [/\bIS NULL\b/g, () => 'IS NOT NULL'],
  [/\bDISTINCT (?=ON|\w)/g, () => ''],
  [/\bFOR (NO KEY )?UPDATE( SKIP LOCKED)?/g, () => ''],
]
const IS_SQL = /\b(SELECT|select|FROM|from|WHERE|where|AND|ORDER BY|order by|SET|NULL)\b/

/** How much of the code around a change its name shows. */
const CONTEXT_characters = 60

/** All small mistakes in a source file, in the order of its text. Some may not compile. */
export function mutantsOf(file: string, text: string): Mutant[] {
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest, true)
  const found: Mutant[] = []
  const names = new Map<string, number>()

  const add = (start: number, end: number, replacement: string, node: ts.Node) => {
    const { line } = source.getLineAndCharacterOfPosition(start)
    const context = contextOf(node)
    const isShort = context.getWidth() <= CONTEXT_characters
    const [from, to] = isShort ? [Math.min(context.getStart(), start), Math.max(context.end, end)] : [start, end]
    const shown = (part: string) => part.replace(/\s+/g, ' ').trim() || '(nothing)'
    const after = text.slice(from, start) + replacement + text.slice(end, to)
    const name = `${ownerOf(node)}: ${shown(text.slice(from, to))} → ${shown(after)}`
    const seen = (names.get(name) ?? 0) + 1
    names.set(name, seen)
    found.push({ file, name: seen === 1 ? name : `${name} (${seen})`, line: line + 1, start, end, replacement })
  }
  const replace = (node: ts.Node, replacement: string) => add(node.getStart(), node.end, replacement, node)
  const negate = (condition: ts.Expression) => replace(condition, `!(${condition.getText()})`)

  const visit = (node: ts.Node): void => {
    if (ts.isTypeNode(node) || ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return
    if (ts.isInterfaceDeclaration(node) || ts.isTypeAliasDeclaration(node)) return

    if (ts.isIfStatement(node) || ts.isWhileStatement(node)) negate(node.expression)
    else if (ts.isConditionalExpression(node)) negate(node.condition)
    else if (ts.isBinaryExpression(node)) mutateBinary(node)
    else if (ts.isPrefixUnaryExpression(node) && node.operator === ts.SyntaxKind.ExclamationToken) {
      if (!isCondition(node)) replace(node, node.operand.getText())
    } else if (ts.isNumericLiteral(node) && /^[\d_]+$/.test(node.getText())) {
      replace(node, String(Number(node.text) + 1))
    } else if (node.kind === ts.SyntaxKind.TrueKeyword) replace(node, 'false')
    else if (node.kind === ts.SyntaxKind.FalseKeyword) replace(node, 'true')
    else if (ts.isRegularExpressionLiteral(node)) mutateRegExp(node)
    else if (ts.isStringLiteral(node) && SWAPS.has(node.text)) replace(node, `'${SWAPS.get(node.text)}'`)
    else if (ts.isStringLiteral(node) || ts.isTemplateLiteralToken(node)) mutateSql(node)
    else if (ts.isExpressionStatement(node)) replace(node, ';')
    else if (ts.isAwaitExpression(node)) replace(node, node.expression.getText())
    else if (ts.isCallExpression(node)) mutateCall(node)
    else if (ts.isObjectLiteralExpression(node)) removeOne(node.properties)
    else if (ts.isArrayLiteralExpression(node) && node.elements.length > 1) removeOne(node.elements)
    ts.forEachChild(node, visit)
  }

  function mutateBinary(node: ts.BinaryExpression): void {
    const operator = node.operatorToken
    if (operator.kind === ts.SyntaxKind.QuestionQuestionToken) {
      replace(node, node.left.getText())
      replace(node, node.right.getText())
    }
    const swapped = SWAPS.get(operator.getText())
    // The negated condition is the same mistake.
    const isNegation = /^[!=]==$/.test(operator.getText()) && isCondition(node)
    if (swapped && operator.kind !== ts.SyntaxKind.EqualsToken && !isNegation) replace(operator, swapped)
  }

  function mutateRegExp(node: ts.RegularExpressionLiteral): void {
    const { text } = node
    const end = text.lastIndexOf('/')
    if (text.startsWith('/^')) replace(node, `/${text.slice(2)}`)
    if (text[end - 1] === '$' && text[end - 2] !== '\\') replace(node, text.slice(0, end - 1) + text.slice(end))
    const quantifier = /\{(\d+)(,?)(\d*)\}/.exec(text)
    if (quantifier) {
      const [all, from, comma, to] = quantifier
      replace(node, text.replace(all, comma && to ? `{${from},${Number(to) + 1}}` : `{${Number(from) + 1}${comma}}`))
    }
  }

  function mutateSql(node: ts.Node): void {
    const content = node.getText()
    if (!IS_SQL.test(content)) return
    for (const [pattern, mistake] of SQL_MISTAKES) {
      for (const match of content.matchAll(pattern)) {
        const start = node.getStart() + match.index
        add(start, start + match[0].length, mistake(match[0]), node)
      }
    }
  }

  function mutateCall(node: ts.CallExpression): void {
    const callee = node.expression
    if (ts.isPropertyAccessExpression(callee)) {
      // Of the same type without the call, or it does not compile.
      if (!ts.isExpressionStatement(node.parent)) {
        add(callee.expression.end, node.end, '', node)
      }
      const swapped = SWAPS.get(callee.name.text)
      if (swapped) replace(callee.name, swapped)
    }
    if (/^Math\.(min|max)$/.test(callee.getText())) return
    for (const [i, first] of node.arguments.entries()) {
      const second = node.arguments[i + 1]
      if (second && isReference(first) && isReference(second) && first.getText() !== second.getText()) {
        add(first.getStart(), second.end, `${second.getText()}, ${first.getText()}`, node)
      }
    }
  }

  function removeOne(items: ts.NodeArray<ts.Node>): void {
    for (const [i, item] of items.entries()) {
      const next = items[i + 1]
      if (!ts.isMethodDeclaration(item)) add(item.getStart(), next ? next.getStart() : item.end, '', item)
    }
  }

  visit(source)
  return found
}

/** Whether an expression is all that an `if` or a conditional expression tests. */
const isCondition = ({ parent }: ts.Expression) =>
  ts.isIfStatement(parent) || ts.isWhileStatement(parent) || ts.isConditionalExpression(parent)

const isReference = (node: ts.Expression) => ts.isIdentifier(node) || ts.isPropertyAccessExpression(node)

/** The expression around a node that shows what is changed, if it is short. */
function contextOf(node: ts.Node): ts.Node {
  const { parent } = node
  return ts.isExpression(parent) && parent.getText().length <= CONTEXT_characters ? contextOf(parent) : node
}

/** The name of the declaration that a node is part of: of the innermost one at the top level, or of a class's member. */
function ownerOf(node: ts.Node): string {
  const { parent } = node
  if (!parent || ts.isSourceFile(node)) return 'module'
  if (ts.isClassElement(node) && node.name) return `${ownerOf(node.parent)}.${node.name.getText()}`
  if (ts.isConstructorDeclaration(node)) return `${ownerOf(node.parent)}.constructor`
  const name = (node as ts.NamedDeclaration).name?.getText()
  const isTop = ts.isSourceFile(parent) || (ts.isVariableDeclaration(node) && ts.isSourceFile(parent.parent.parent))
  return isTop && name ? name : ownerOf(parent)
}

/** The source with the mutant's mistake in it. */
export const mutated = (text: string, { start, end, replacement }: Mutant): string =>
  text.slice(0, start) + replacement + text.slice(end)
