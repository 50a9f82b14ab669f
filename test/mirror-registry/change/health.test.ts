import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { waitForHealth } from '../../../lib/mirror-registry/change/health.ts';

describe('health of a registry', () => {
  for (const [what, body] of [
    ['a page', '<html>Welcome</html>'],
    ['no text', ''],
    ['other JSON', '{"data": {"services": {}}}'],
  ] as const) {
    it(`is not proven by an answer with 200 that has ${what}`, async () => {
      await using server = createServer((_request, response) => response.end(body)).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const check = {
        address: '127.0.0.1',
        port: (server.address() as AddressInfo).port,
        host: 'localhost',
        isTls: false,
      };
      const waited = waitForHealth(
        { ...check, authorities: undefined, certificate: undefined },
        0,
        new AbortController().signal,
      );
      expect(String(await waited.catch((error: unknown) => error))).to.include('names no services');
    });
  }
});
