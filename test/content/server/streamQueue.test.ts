import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/digest.ts';
import { serveContent, type ContentServer, type StreamLimits } from '../../../lib/content/server/server.ts';
import type { ContentSource, LocalContent } from '../../../lib/content/store/store.ts';
import { PluginError } from '../../../lib/errors.ts';
import { makeContext } from '../../support/context.ts';

const bytes = Buffer.from('content of a blob');
const digest = digestOf(bytes);

describe('a server that sends few blobs at a time', () => {
  let server: ContentServer;
  /** Lets the blobs end that are being sent, in the order of their beginning. */
  let releases: (() => void)[];

  const start = async (limits: Partial<StreamLimits>): Promise<void> => {
    releases = [];
    const lack = (): Promise<never> => Promise.reject(new PluginError('not-found', 'there is none'));
    const source: ContentSource & LocalContent & { sizeOf(): Promise<number> } = {
      ...{ name: 'a blob', resolve: lack, fetch: lack, tags: () => Promise.resolve([]) },
      ...{ exists: () => Promise.resolve(true), sizeOf: () => Promise.resolve(bytes.length) },
      async *chunks(_, from, to) {
        yield bytes.subarray(from, from + 1);
        await new Promise<void>((resolve) => releases.push(resolve));
        yield bytes.subarray(from + 1, to);
      },
    };
    const streams = { active: 8, activePerAddress: 8, waiting: 8, patience: 60_000, ...limits };
    server = await serveContent(() => source, { host: '127.0.0.1', streams }, makeContext());
  };
  afterEach(async () => {
    for (const release of releases) release();
    await server.close();
  });
  /** Requests the blob from an address of this machine, and returns the response when its headers have come. */
  const ask = async (localAddress = '127.0.0.1'): Promise<IncomingMessage> => {
    const asked = get(`${server.url}/v2/a/blobs/${digest}`, { localAddress, agent: false });
    const [response] = (await once(asked, 'response')) as [IncomingMessage];
    return response;
  };
  const release = (): void => releases.shift()?.();

  it('asks a client to try again if too many wait', async () => {
    await start({ active: 1, waiting: 0 });
    const first = await ask();
    const refused = await ask();
    expect([refused.statusCode, refused.headers['retry-after']]).to.deep.equal([429, '5']);
    expect((await buffer(refused)).toString()).to.include('TOOMANYREQUESTS');
    release();
    expect(await buffer(first)).to.deep.equal(bytes);
    expect((await ask()).statusCode).to.equal(200);
  });

  it('asks a client to try again after a long wait', async () => {
    await start({ active: 1, patience: 1 });
    await ask();
    expect((await ask()).statusCode).to.equal(429);
  });

  it('does not let one address take every turn', async () => {
    await start({ active: 3, activePerAddress: 2 });
    const own = [await ask(), await ask()];
    const third = ask();
    const other = await ask('127.0.0.2');
    expect(other.statusCode).to.equal(200);
    release();
    await Promise.all(own.slice(0, 1).map(buffer));
    expect((await third).statusCode).to.equal(200);
  });
});
