import path from 'node:path'
import ts from 'typescript'

/**
 * Checks changed sources of the checkout with the TypeScript compiler.
 *
 * @returns whether a file, by its absolute path, still compiles with another text
 */
export function createCompileCheck(root: string): (file: string, text: string) => boolean {
  const configFile = path.join(root, 'tsconfig.json')
  const { config } = ts.readConfigFile(configFile, ts.sys.readFile)
  const { options, fileNames } = ts.parseJsonConfigFileContent({ ...config, include: ['src'] }, ts.sys, root)
  const changed = new Map<string, { text: string; version: number }>()
  const service = ts.createLanguageService({
    getScriptFileNames: () => fileNames,
    getScriptVersion: (file) => String(changed.get(file)?.version ?? 0),
    getScriptSnapshot: (file) => {
      const text = changed.get(file)?.text ?? ts.sys.readFile(file)
      return text === undefined ? undefined : ts.ScriptSnapshot.fromString(text)
    },
    getCurrentDirectory: () => root,
    getCompilationSettings: () => options,
    getDefaultLibFileName: ts.getDefaultLibFilePath,
    fileExists: ts.sys.fileExists,
    readFile: ts.sys.readFile,
    readDirectory: ts.sys.readDirectory,
    directoryExists: ts.sys.directoryExists,
    getDirectories: ts.sys.getDirectories,
  })
  const set = (file: string, text: string) => {
    changed.set(file, { text, version: (changed.get(file)?.version ?? 0) + 1 })
  }
  return (file, text) => {
    const original = ts.sys.readFile(file) ?? ''
    set(file, text)
    const compiles =
      service.getSyntacticDiagnostics(file).length === 0 && service.getSemanticDiagnostics(file).length === 0
    set(file, original)
    return compiles
  }
}
