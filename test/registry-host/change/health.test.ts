import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect } from 'chai';
import { ownAddressOf, waitForHealth } from '../../../lib/registry-host/change/health.ts';

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

  it('is asked at an address that forwards to containers', () => {
    const each = { netmask: '', mac: '', cidr: null } as const;
    const interfaces = {
      lo: [{ ...each, address: 'fd00::9', family: 'IPv6', internal: true, scopeid: 0 }],
      eth0: [
        { ...each, address: '10.0.0.2', family: 'IPv4', internal: false },
        { ...each, address: 'fe80::2', family: 'IPv6', internal: false, scopeid: 2 },
        { ...each, address: 'fd00::2', family: 'IPv6', internal: false, scopeid: 0 },
      ],
    } satisfies Parameters<typeof ownAddressOf>[1];
    expect(['', '0.0.0.0', '10.0.0.2', '::1', '::'].map((bound) => ownAddressOf(bound, interfaces))).to.deep.equal([
      '127.0.0.1',
      '127.0.0.1',
      '10.0.0.2',
      '::1',
      'fd00::2',
    ]);
    expect(ownAddressOf('::', { lo: interfaces.lo })).to.equal('::1');
  });
});
