import { request, type IncomingHttpHeaders } from 'node:http';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import type { Listener } from '../../../lib/content/http/listener.ts';
import { servePage } from '../../../lib/content/server/pageServer.ts';
import { makeContext } from '../../support/context.ts';

interface Answer {
  readonly status: number | undefined;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

describe('servePage', () => {
  let server: Listener;
  let count = 0;
  before(async () => {
    const page = { html: '<p>hello</p>', policy: "default-src 'none'", data: () => ({ count: (count += 1) }) };
    server = await servePage(page, makeContext());
  });
  after(() => server.close());

  const ask = (path: string, { method = 'GET', host = '' } = {}): Promise<Answer> =>
    new Promise((resolve, reject) => {
      const headers = host === '' ? {} : { host };
      request(new URL(path, server.url), { method, headers }, (response) => {
        const { statusCode: status, headers: answered } = response;
        text(response).then((body) => resolve({ status, headers: answered, body }), reject);
      })
        .once('error', reject)
        .end();
    });

  it('gives the page, and the data as they are at each request', async () => {
    expect(server.host).to.equal('127.0.0.1');
    expect((await ask('.')).body).to.equal('<p>hello</p>');
    count = 0;
    for (const expected of [1, 2]) expect(JSON.parse((await ask('data')).body)).to.deep.equal({ count: expected });
  });

  it('forbids other content, frames, caches and other origins', async () => {
    for (const path of ['.', 'data']) {
      const { headers } = await ask(path);
      expect(headers['content-security-policy']).to.equal("default-src 'none'; frame-ancestors 'none'");
      expect(headers).to.include({
        'cache-control': 'no-store',
        'referrer-policy': 'no-referrer',
        'x-content-type-options': 'nosniff',
        'cross-origin-resource-policy': 'same-origin',
      });
      expect(headers).not.to.have.property('access-control-allow-origin');
    }
  });

  it('is found only with its secret, of 128 bits', async () => {
    expect(new URL(server.url).pathname).to.match(/^\/[0-9a-f]{32}\/$/);
    for (const path of ['/', '/data', '/favicon.ico', `/${'0'.repeat(32)}/`, `/${'0'.repeat(32)}/data`, 'other', '..'])
      expect((await ask(path)).status, path).to.equal(404);
  });

  it('answers for loopback names only', async () => {
    const { port } = new URL(server.url);
    for (const host of [`localhost:${port}`, '127.0.0.1', `[::1]:${port}`])
      expect((await ask('data', { host })).status).to.equal(200);
    for (const host of [`evil.example.com:${port}`, 'localhost.example.com']) {
      const { status, body } = await ask('data', { host });
      expect(status).to.equal(421);
      expect(body).not.to.contain('count');
    }
  });

  it('only reads', async () => {
    for (const method of ['POST', 'PUT', 'DELETE', 'OPTIONS']) {
      const { status, headers } = await ask('data', { method });
      expect([status, headers.allow]).to.deep.equal([405, 'GET, HEAD']);
    }
    expect(await ask('.', { method: 'HEAD' })).to.include({ status: 200, body: '' });
  });
});
