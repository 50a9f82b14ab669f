import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { clientTlsOf, derivePreSharedKey } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { openListener, type Listener } from '../../../lib/content/http/listener.ts';
import { isPluginError } from '../../../lib/errors.ts';
import { makeContext } from '../../support/context.ts';

const key = derivePreSharedKey('0123456789abcdef0123');
/** The number of changed handshakes in each direction. */
const rounds = Number(process.env['FUZZ_ROUNDS'] ?? 30);
const secret = 'the response of the server';

/** A reproducible sequence of numbers below a limit (mulberry32). */
function randomFrom(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  };
}

/** Returns bytes with a few changes: flipped, truncated, repeated, or with a length that is too large. */
function mutate(bytes: Buffer, random: (limit: number) => number): Buffer {
  const changed = Buffer.from(bytes);
  for (let count = 1 + random(4); count > 0; count -= 1) {
    const at = random(changed.length);
    const kind = random(5);
    if (kind === 0) return changed.subarray(0, at);
    if (kind === 1) return Buffer.concat([changed.subarray(0, at), changed]);
    if (kind === 2) changed[at] = 0xff;
    else changed[at] = (changed[at] ?? 0) ^ (1 << random(8));
  }
  return changed;
}

describe('the exchange with a pre-shared key', () => {
  let listener: Listener;
  let served: number;
  const closing: (() => unknown)[] = [];

  beforeEach(async () => {
    served = 0;
    const handle = async (_: unknown, response: { end(text: string): unknown }): Promise<void> => {
      served += 1;
      await Promise.resolve(response.end(secret));
    };
    listener = await openListener({ host: '127.0.0.1', port: 0, preSharedKey: key }, handle, makeContext());
    closing.push(() => listener.close());
  });
  afterEach(async () => {
    for (const close of closing.splice(0).toReversed()) await close();
  });

  const ask = async (port: number, psk = key): Promise<string> => {
    const connections = new Connections({ certificates: clientTlsOf(psk), connectTimeout: 200, idleTimeout: 200 });
    try {
      const url = new URL(`https://127.0.0.1:${port}/`);
      const { signal } = new AbortController();
      return await text((await connections.exchange({ method: 'GET', url, headers: {}, signal })).body);
    } finally {
      connections.close();
    }
  };
  /** Starts a server that passes bytes to the listener and back, and returns its port. */
  const relay = async (pass: (bytes: Buffer, from: 'client' | 'server', to: Socket) => void): Promise<number> => {
    const wire: Server = createServer((near) => {
      const far = connect(listener.port, '127.0.0.1');
      near.on('data', (bytes: Buffer) => pass(bytes, 'client', far)).on('error', () => far.destroy());
      far.on('data', (bytes: Buffer) => pass(bytes, 'server', near)).on('error', () => near.destroy());
      near.on('close', () => far.destroy());
      far.on('close', () => near.destroy());
    });
    await once(wire.listen(0, '127.0.0.1'), 'listening');
    closing.push(() => wire.close());
    return (wire.address() as AddressInfo).port;
  };

  it('serves nothing to clients whose bytes were changed, and serves others meanwhile', async () => {
    const random = randomFrom(57);
    let left = 0;
    const port = await relay((bytes, from, to) => {
      const isChanged = from === 'client' && left > 0 && random(2) === 0;
      if (isChanged) left = 0;
      to.write(isChanged ? mutate(bytes, random) : bytes);
    });
    const counts = { refused: 0, unchanged: 0 };
    for (let round = 0; round < rounds; round += 1) {
      left = 1;
      const got = await ask(port).catch((error: unknown) => {
        expect(isPluginError(error), String(error)).to.equal(true);
      });
      // The bytes may have stayed what they were, or a change came after the request.
      if (got === undefined) counts.refused += 1;
      else counts.unchanged += 1;
      if (got !== undefined) expect(got).to.equal(secret);
      if (round % 50 === 0) expect(await ask(listener.port)).to.equal(secret);
    }
    expect(counts.refused).to.be.above(rounds / 4);
    expect(await ask(listener.port)).to.equal(secret);
  });

  it('accepts nothing from servers whose bytes were changed', async () => {
    const random = randomFrom(58);
    const port = await relay((bytes, from, to) => {
      to.write(from === 'server' && random(3) > 0 ? mutate(bytes, random) : bytes);
    });
    let refused = 0;
    for (let round = 0; round < rounds; round += 1) {
      const got = await ask(port).catch((error: unknown) => {
        expect(isPluginError(error), String(error)).to.equal(true);
        refused += 1;
      });
      if (got !== undefined) expect(got).to.equal(secret);
    }
    expect(refused).to.be.above(rounds / 2);
  });

  it('serves nothing to clients that send anything else', async () => {
    const random = randomFrom(59);
    for (let round = 0; round < rounds; round += 1) {
      const socket = connect(listener.port, '127.0.0.1').on('error', () => undefined);
      await once(socket, 'connect');
      const junk = Buffer.from(Array.from({ length: 1 + random(600) }, () => random(256)));
      // Half of them begin as a TLS handshake does.
      if (random(2) === 0) junk.set([0x16, 3, 1 + random(3), 0, random(256), 1].slice(0, junk.length));
      socket.end(junk);
      expect(await text(socket).catch(() => '')).not.to.contain('HTTP');
    }
    expect(served).to.equal(0);
    expect(await ask(listener.port)).to.equal(secret);
  });

  it('serves nothing to clients with another key', async () => {
    await ask(listener.port, derivePreSharedKey('another-token-0123456789')).then(
      () => expect.fail('it was served'),
      (error: unknown) => expect(isPluginError(error, 'tls')).to.equal(true),
    );
    expect(served).to.equal(0);
  });
});
