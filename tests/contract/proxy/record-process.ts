import { subscribe } from 'node:diagnostics_channel'
import type { FastifyInstance } from 'fastify'
import { recordExchanges } from './recorder.ts'

// Preloaded (`node --import`) into the server processes that tests start, where nothing else can listen in.
subscribe('fastify.initialization', (message) => recordExchanges((message as { fastify: FastifyInstance }).fastify))
