import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { expect } from 'vitest'
import { extendServiceEnvironment } from '../support/extensions.ts'

// A Vitest setup file of the coverage run: reports the functions that run in this test file and in its processes.
const testFile = path.relative(path.join(import.meta.dirname, '../..'), `${expect.getState().testPath}`)
process.env.FUNCTIONS_FILE = path.join(`${process.env.COVERAGE_DIRECTORY}`, encodeURIComponent(testFile))
await import('./report-functions.ts')
const preload = pathToFileURL(path.join(import.meta.dirname, 'report-functions.ts'))
extendServiceEnvironment({ FUNCTIONS_FILE: process.env.FUNCTIONS_FILE, NODE_OPTIONS: `--import=${preload}` })
