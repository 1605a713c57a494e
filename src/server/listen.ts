import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { Config } from '../config.ts'

export type Address = Pick<Config['server'], 'host' | 'port'>

/** Listens; errors name the settings with this prefix. @returns the URL of the app */
export const listen = (app: FastifyInstance, address: Address, prefix = ''): Promise<string> =>
  explained((host) => app.listen({ host, port: address.port }), address, prefix)

/** A port of the host that nothing listens on: the setting's or, if that is 0, any. */
export const choosePort = (address: Address): Promise<number> =>
  explained(async (host) => {
    const { port } = address
    if (port !== 0) return port
    const server = createServer()
    await once(server.listen({ host, port }), 'listening')
    const chosen = (server.address() as AddressInfo).port
    await new Promise((resolve) => server.close(resolve))
    return chosen
  }, address)

/** Fastify would serve the second address of localhost by a second server, which has nothing of what the app sets on its own. */
const addressOf = async (host: string) =>
  host === 'localhost' ? (await lookup(host, { order: 'ipv4first' })).address : host

/** @param attempt gets the host, or its address if it has several */
async function explained<T>(attempt: (host: string) => Promise<T>, { host, port }: Address, prefix = ''): Promise<T> {
  try {
    return await attempt(await addressOf(host))
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (code === 'EADDRINUSE') {
      const other = port < 65_535 ? port + 1 : port - 1
      throw new Error(
        `Port ${port} on ${host} is already in use. Set ${prefix}PORT to another, e.g. ${prefix}PORT=${other}`,
      )
    }
    if (code === 'EACCES') throw new Error(`Port ${port} requires privileges. Set ${prefix}PORT to one above 1023`)
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
      throw new Error(
        `${prefix}HOST ${host} is not an address of this machine. Set it to one, such as 127.0.0.1, or to 0.0.0.0 for all`,
      )
    throw error
  }
}
