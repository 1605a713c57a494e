import { readFileSync } from 'node:fs'
import path from 'node:path'

/** The folder with one folder for each generator; see journey.md. */
export const home = import.meta.dirname

/** For each generator's folder the places that pin its version, in the order of docs/sdks.md. */
const PINS: Record<string, { file: string; pin: RegExp }[]> = {
  'openapi-fetch': [
    { file: 'package.json', pin: /"openapi-typescript": "(.+)"/ },
    { file: 'package.json', pin: /"openapi-fetch": "(.+)"/ },
  ],
  'hey-api': [{ file: 'package.json', pin: /"@hey-api\/openapi-ts": "(.+)"/ }],
  'openapi-typescript-codegen': [{ file: 'package.json', pin: /"openapi-typescript-codegen": "(.+)"/ }],
  'swagger-typescript-api': [{ file: 'package.json', pin: /"swagger-typescript-api": "(.+)"/ }],
  orval: [{ file: 'package.json', pin: /"orval": "(.+)"/ }],
  kubb: [{ file: 'package.json', pin: /"@kubb\/plugin-client": "(.+)"/ }],
  'openapi-zod-client': [{ file: 'package.json', pin: /"openapi-zod-client": "(.+)"/ }],
  'openapi-generator-typescript-fetch': [{ file: 'requirements.in', pin: /^openapi-generator-cli\S*==(\S+)/m }],
  'openapi-generator-typescript-axios': [{ file: 'requirements.in', pin: /^openapi-generator-cli\S*==(\S+)/m }],
  'openapi-generator-python': [{ file: 'requirements.in', pin: /^openapi-generator-cli\S*==(\S+)/m }],
  'openapi-python-client': [{ file: 'requirements.in', pin: /^openapi-python-client==(\S+)/m }],
  'datamodel-code-generator': [{ file: 'requirements.in', pin: /^datamodel-code-generator==(\S+)/m }],
  'openapi-generator-java': [
    { file: 'pom.xml', pin: /<artifactId>openapi-generator-maven-plugin<.*\s+<version>(.+)</ },
  ],
  'swagger-codegen-java': [{ file: 'pom.xml', pin: /<artifactId>swagger-codegen-maven-plugin<.*\s+<version>(.+)</ }],
  'openapi-generator-kotlin': [
    { file: 'pom.xml', pin: /<artifactId>openapi-generator-maven-plugin<.*\s+<version>(.+)</ },
  ],
  'oapi-codegen': [{ file: 'go.mod', pin: /oapi-codegen\/v2 v(\S+)/ }],
  'openapi-generator-go': [{ file: 'requirements.in', pin: /^openapi-generator-cli\S*==(\S+)/m }],
  progenitor: [{ file: 'Cargo.toml', pin: /^progenitor = "=(.+)"/m }],
  'openapi-generator-rust': [{ file: 'requirements.in', pin: /^openapi-generator-cli\S*==(\S+)/m }],
  'openapi-generator-ruby': [{ file: 'requirements.in', pin: /^openapi-generator-cli\S*==(\S+)/m }],
  'openapi-generator-php': [{ file: 'requirements.in', pin: /^openapi-generator-cli\S*==(\S+)/m }],
}

/** The folders' names. */
export const generators = Object.keys(PINS)

/** The pinned version of a generator, or those of the generator and its runtime. */
export const versionOf = (generator: string): string =>
  (PINS[generator] ?? [])
    .map(({ file, pin }) => pin.exec(readFileSync(path.join(home, generator, file), 'utf8'))?.[1] ?? '?')
    .join(' + ')
