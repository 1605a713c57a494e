import { lookup } from 'node:dns/promises'
import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import type { FastifyInstance } from 'fastify'
import type { Config } from '../config.ts'

export type Address = Pick<Config['server'], 'host' | 'port'>

/** Listens; errors name the settings with this prefix. @returns the URL of the app */
export const listen = (app: FastifyInstance, address: Address, prefix = ''): Promise<string> =>
  explained(async () => app.listen({ host: await addressOf(address.host), port: address.port }), address, prefix)

/** Fastify would serve the second address of localhost by a second server, which has nothing of what the app sets on its own. */
const addressOf = async (host: string) =>
  host === 'localhost' ? (await lookup(host, { order: 'ipv4first' })).address : host

/** A port of the host that nothing listens on: the setting's or, if that is 0, any. */
export const choosePort = ({ host, port }: Address): Promise<number> =>
  explained(
    async () => {
      if (port !== 0) return port
      const server = createServer()
      await once(server.listen({ host, port }), 'listening')
      const chosen = (server.address() as AddressInfo).port
      await new Promise((resolve) => server.close(resolve))
      return chosen
    },
    { host, port },
  )

async function explained<T>(attempt: () => Promise<T>, { host, port }: Address, prefix = ''): Promise<T> {
  try {
    return await attempt()
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code
    if (code === 'EADDRINUSE')
      throw new Error(
        `Port ${port} on ${host} is already in use. Set ${prefix}PORT to another, e.g. ${prefix}PORT=${port + 1}`,
      )
    if (code === 'EACCES') throw new Error(`Port ${port} requires privileges. Set ${prefix}PORT to one above 1023`)
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND')
      throw new Error(`${prefix}HOST ${host} is not an address of this machine`)
    throw error
  }
}
