import { expect } from 'chai';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { fetchFile, type FetchFile } from '../../../lib/content/http/fetchFile.ts';
import type { Fault } from '../../fakes/http/faults.ts';
import { startSignatureServer, type SignatureServer } from '../../fakes/registry/signatureServer.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const content = Buffer.from('a small file of some bytes');

describe('fetchFile', () => {
  const context = makeContext();
  const connections = new Connections({ certificates: new Certificates({ insecure: false, folders: [] }) });
  const fetch: FetchFile = (url, limit) => fetchFile(connections, url, limit, context, { attempts: 3, baseDelay: 1 });
  let server: SignatureServer;
  let mirror: SignatureServer;
  beforeEach(async () => {
    server = await startSignatureServer(new Map([['/file', content]]));
    mirror = await startSignatureServer();
  });
  afterEach(() => Promise.all([server.stop(), mirror.stop()]));
  after(() => connections.close());

  const at = (path: string, of: SignatureServer = server): URL => new URL(`${of.url}/${path}`);

  it('follows redirects, five at most, and sends no credentials', async () => {
    mirror.fault(/from/, { redirect: { status: 302, to: at('file').href } });
    expect(await fetch(at('from', mirror), 10_000)).to.deep.equal(content);
    mirror.clearFaults();
    mirror.fault(/./, { redirect: { status: 301, to: '/again' } });
    const error = await failureOf(fetch(at('again', mirror), 10_000), 'server-error');
    expect(error.message).to.match(/redirects too often/);
    expect(mirror.requests).to.have.length(7);
    expect([...server.requests, ...mirror.requests].some(({ headers }) => headers.authorization)).to.equal(false);
  });

  it('follows no redirect to another protocol', async () => {
    mirror.fault(/./, { redirect: { status: 302, to: 'file:///etc/passwd' } });
    await failureOf(fetch(at('file', mirror), 10_000), 'server-error');
  });

  it('tells a refusal from an absence', async () => {
    expect(await fetch(at('absent'), 10)).to.equal(undefined);
    server.fault(/./, { answer: { status: 500, body: 'oops' } });
    const error = await failureOf(fetch(at('x?token=secret'), 10), 'server-error');
    expect(error.message).to.equal(`${server.url}/x answered with status 500`);
  });

  it('retries transient failures', async () => {
    const troubles: Fault[] = [
      { answer: { status: 503 } },
      { answer: { status: 429, headers: { 'retry-after': '0' } } },
      { noAnswer: 'reset' },
      { cut: { after: 10, how: 'end' } },
    ];
    for (const trouble of troubles) {
      server.fault(/./, trouble, { times: 2 });
      expect(await fetch(at('file'), 10_000)).to.deep.equal(content);
    }
  });

  it('retries neither a refusal nor a server that cannot be reached', async () => {
    server.fault(/./, { answer: { status: 403 } });
    await failureOf(fetch(at('x'), 10), 'server-error');
    expect(server.requests).to.have.length(1);
    const gone = await startSignatureServer();
    const url = at('x', gone);
    await gone.stop();
    await failureOf(fetchFile(connections, url, 10, context, { baseDelay: 3_600_000 }), 'unreachable');
  });

  it('reads no more than the limit', async () => {
    server.fault(/./, { answer: { status: 200, body: 'x'.repeat(1000) }, chunked: true });
    await failureOf(fetch(at('x'), 100), 'too-large');
    server.clearFaults();
    expect(await fetch(at('file'), content.length)).to.deep.equal(content);
  });
});
