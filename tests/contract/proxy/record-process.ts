import { subscribe } from 'node:diagnostics_channel'
import type { FastifyInstance } from 'fastify'
import { recordExchanges } from './recorder.ts'

// Preloaded with `node --import` into the server processes that tests start, to record their exchanges.
subscribe('fastify.initialization', (message) => recordExchanges((message as { fastify: FastifyInstance }).fastify))
