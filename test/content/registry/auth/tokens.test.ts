import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import http, { type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { Certificates } from '../../../../lib/content/http/certificates.ts';
import { Connections } from '../../../../lib/content/http/connections.ts';
import { TransientError } from '../../../../lib/content/http/retry.ts';
import { Credentials } from '../../../../lib/content/registry/auth/credentials.ts';
import {
  requestToken,
  Tokens,
  type AuthorizationRequest,
  type TokensOptions,
} from '../../../../lib/content/registry/auth/tokens.ts';
import type { ErrorCode } from '../../../../lib/errors.ts';
import { failureOf } from '../../../support/program/failure.ts';

interface Asked {
  readonly method: string;
  readonly fields: URLSearchParams;
  readonly headers: IncomingHttpHeaders;
}
interface Answer {
  readonly status?: number;
  readonly headers?: Record<string, string>;
  readonly body?: unknown;
}

const subject = { registry: 'q.io', repository: 'a/b', scope: 'repository:a/b:pull' };
const basic = `Basic ${Buffer.from('user:pa:ss').toString('base64')}`;
const entry = { auth: Buffer.from('user:pa:ss').toString('base64') };

describe('Tokens', () => {
  let server: http.Server;
  let connections: Connections;
  let folder: string;
  let realm: string;
  let challenge: string;
  let asked: Asked[];
  let log: string[];
  let answer: (request: Asked) => Answer | Promise<Answer>;

  before(async () => {
    server = http.createServer((request, response) => {
      void (async () => {
        let body = '';
        for await (const chunk of request) body += String(chunk);
        const url = new URL(request.url ?? '', 'http://x');
        const fields = request.method === 'POST' ? new URLSearchParams(body) : url.searchParams;
        const seen = { method: request.method ?? '', fields, headers: request.headers };
        asked.push(seen);
        const { status = 200, headers = {}, body: content } = await answer(seen);
        response.writeHead(status, headers).end(typeof content === 'string' ? content : JSON.stringify(content));
      })();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    realm = `http://127.0.0.1:${(server.address() as AddressInfo).port}/token`;
    challenge = `Bearer realm="${realm}",service="the registry"`;
    folder = await mkdtemp(join(tmpdir(), 'tokens-'));
  });
  after(async () => {
    server.close();
    await rm(folder, { recursive: true });
  });
  beforeEach(() => {
    asked = [];
    log = [];
    let issued = 0;
    answer = () => ({ body: { token: `token${(issued += 1)}`, expires_in: 300 } });
    connections = new Connections({ certificates: new Certificates({ insecure: false }) });
  });
  afterEach(() => {
    connections.close();
  });

  const login = async (auths: Record<string, unknown> = {}, options: TokensOptions = {}) => {
    const file = join(folder, 'auth.json');
    await writeFile(file, JSON.stringify({ auths }));
    const context = {
      signal: new AbortController().signal,
      log: (_: unknown, message: string) => log.push(message),
      onEvent: () => undefined,
    };
    return new Tokens(new Credentials({ file, environment: {} }), connections, context, options);
  };

  describe('at a registry with Basic', () => {
    const challenge = 'Basic realm="q.io"';

    it('says nothing until the registry asks, then the user and the password without being asked again', async () => {
      const tokens = await login({ 'q.io': entry });
      expect(await tokens.authorize(subject)).to.equal(undefined);
      expect(await tokens.authorize({ ...subject, challenge })).to.equal(basic);
      expect(await tokens.authorize({ ...subject, repository: 'c' })).to.equal(basic);
      expect(await tokens.authorize({ ...subject, registry: 'other.io' })).to.equal(undefined);
    });

    it('names the files that it read if there are no credentials', async () => {
      const tokens = await login({ 'other.io': entry });
      const error = await failureOf(tokens.authorize({ ...subject, challenge }), 'unauthorized');
      expect(error.message).to.contain('q.io requires credentials for a/b').and.to.contain(join(folder, 'auth.json'));
      expect(error.settings).to.deep.equal(['pullSecret']);
      expect(await tokens.authorize(subject)).to.equal(undefined);
    });

    it('names the file of refused credentials', async () => {
      const tokens = await login({ 'q.io': entry });
      const error = await failureOf(tokens.authorize({ ...subject, challenge, rejected: basic }), 'unauthorized');
      expect(error.message).to.contain('q.io refuses the credentials').and.to.contain(join(folder, 'auth.json'));
      expect(error.message).not.to.contain('pa:ss');
    });
  });

  describe('at a registry with Bearer', () => {
    it('asks with GET, the password, the service and each scope', async () => {
      const tokens = await login({ 'q.io': entry });
      const scope = 'repository:a/b:pull,push repository:c/d:pull';
      const extended = `Bearer realm="${realm}?given=1",service="the registry"`;
      expect(await tokens.authorize({ ...subject, scope, challenge: extended })).to.equal('Bearer token1');
      expect(asked).to.have.length(1);
      expect(asked[0]?.headers.authorization).to.equal(basic);
      expect([...(asked[0]?.fields ?? [])]).to.deep.equal([
        ['given', '1'],
        ['service', 'the registry'],
        ['scope', 'repository:a/b:pull,push'],
        ['scope', 'repository:c/d:pull'],
      ]);
    });

    it('requests an anonymous token without credentials', async () => {
      const tokens = await login();
      expect(await tokens.authorize({ ...subject, challenge })).to.equal('Bearer token1');
      expect(asked[0]?.headers.authorization).to.equal(undefined);
    });

    it('requests the scope of the challenge if it has none of its own', async () => {
      const tokens = await login();
      await tokens.authorize({ ...subject, scope: '', challenge: `${challenge},scope="registry:catalog:*"` });
      expect(asked[0]?.fields.get('scope')).to.equal('registry:catalog:*');
    });

    it('takes access_token for token', async () => {
      answer = () => ({ body: { access_token: 'other' } });
      expect(await (await login()).authorize({ ...subject, challenge })).to.equal('Bearer other');
    });

    it('keeps a token for its scope, and needs no challenge for the next scope', async () => {
      const tokens = await login();
      await tokens.authorize({ ...subject, challenge });
      expect(await tokens.authorize(subject)).to.equal('Bearer token1');
      expect(await tokens.authorize({ ...subject, scope: 'repository:a/b:pull,push' })).to.equal('Bearer token2');
      expect(await tokens.authorize(subject)).to.equal('Bearer token1');
      expect(asked).to.have.length(2);
    });

    it('asks once for all who want the same token at once', async () => {
      const tokens = await login();
      const all = await Promise.all(Array.from({ length: 20 }, () => tokens.authorize({ ...subject, challenge })));
      expect(new Set(all)).to.deep.equal(new Set(['Bearer token1']));
      expect(asked).to.have.length(1);
    });

    it('replaces a rejected token once, for all requests', async () => {
      const tokens = await login();
      const rejected = await tokens.authorize({ ...subject, challenge });
      const request = { ...subject, challenge, rejected };
      const all = await Promise.all(Array.from({ length: 20 }, () => tokens.authorize(request)));
      expect(new Set(all)).to.deep.equal(new Set(['Bearer token2']));
      expect(await tokens.authorize(request)).to.equal('Bearer token2');
      expect(asked).to.have.length(2);
    });

    it('does not blame the credentials when a new token is the rejected one', async () => {
      answer = () => ({ body: { token: 'same' } });
      for (const auths of [{ 'q.io': entry }, undefined]) {
        const tokens = await login(auths);
        const rejected = await tokens.authorize({ ...subject, challenge });
        const again = tokens.authorize({ ...subject, challenge, rejected });
        if (auths) expect(await again).to.equal(rejected);
        else await failureOf(again, 'unauthorized');
      }
    });

    it('renews a token before it expires, by the clock of the server', async () => {
      // The Date header has whole seconds.
      const now = Math.floor(Date.now() / 1000) * 1000;
      const at = (seconds: number) => new Date(now + seconds * 1000);
      const bodies = [
        // Issued long ago, and almost expired, on a server whose clock is an hour ahead.
        { token: 'old', expires_in: 300, issued_at: at(3600 - 299.999).toISOString() },
        { token: 'new', expires_in: 300, issued_at: at(3600).toISOString() },
      ];
      answer = () => ({ headers: { date: at(3600).toUTCString() }, body: bodies.shift() });
      const tokens = await login();
      expect(await tokens.authorize({ ...subject, challenge })).to.equal('Bearer old');
      // The old token is valid for a millisecond more.
      await new Promise((resolve) => setTimeout(resolve, 10));
      expect(await tokens.authorize(subject)).to.equal('Bearer new');
      expect(await tokens.authorize(subject)).to.equal('Bearer new');
    });

    it('takes a token without a stated life as valid for a minute', async () => {
      answer = () => ({ body: { token: 'one' } });
      const request = { ...subject, realm: new URL(realm), service: '', scope: '', stated: '', credential: undefined };
      const before = Date.now();
      const { renewAt } = await requestToken(request, connections, new AbortController().signal);
      expect(renewAt).to.be.within(before + 54_000, Date.now() + 54_000);
    });

    it('exchanges an identity token by OAuth2', async () => {
      const tokens = await login({ 'q.io': { identitytoken: 'identity' } });
      expect(await tokens.authorize({ ...subject, challenge })).to.equal('Bearer token1');
      expect(asked).to.have.length(1);
      expect(asked[0]?.method).to.equal('POST');
      expect(Object.fromEntries(asked[0]?.fields ?? [])).to.deep.equal({
        grant_type: 'refresh_token',
        refresh_token: 'identity',
        client_id: 'oc-disconnected',
        service: 'the registry',
        scope: 'repository:a/b:pull',
      });
    });

    for (const refusal of [{ status: 404 }, { status: 405 }, { status: 401, body: { error: 'invalid_client' } }]) {
      it(`turns to OAuth2 with the password when GET is answered ${refusal.status}`, async () => {
        answer = ({ method }) => (method === 'GET' ? refusal : { body: { access_token: 'oauth' } });
        const tokens = await login({ 'q.io': entry });
        expect(await tokens.authorize({ ...subject, challenge })).to.equal('Bearer oauth');
        expect(Object.fromEntries(asked[1]?.fields ?? [])).to.include({
          grant_type: 'password',
          username: 'user',
          password: 'pa:ss',
        });
      });
    }

    it('sends a registry token as it is', async () => {
      const tokens = await login({ 'q.io': { registrytoken: 'ready' } });
      expect(await tokens.authorize({ ...subject, challenge })).to.equal('Bearer ready');
      await failureOf(tokens.authorize({ ...subject, challenge, rejected: 'Bearer ready' }), 'unauthorized');
      expect(asked).to.deep.equal([]);
    });

    it('follows redirects, with the password to the same origin only, and not back', async () => {
      const elsewhere = realm.replace('127.0.0.1', 'localhost');
      const to = (location: string): Answer => ({ status: 307, headers: { location } });
      const places = [`${realm}/?n=1`, `${elsewhere}?n=2`, `${realm}?n=3`];
      answer = () => {
        const next = places[asked.length - 1];
        return next === undefined ? { body: { token: 'there' } } : to(next);
      };
      const tokens = await login({ 'q.io': entry });
      expect(await tokens.authorize({ ...subject, challenge })).to.equal('Bearer there');
      expect(asked.map(({ headers }) => headers.authorization)).to.deep.equal([basic, basic, undefined, undefined]);
      expect(asked.map(({ fields }) => fields.get('n'))).to.deep.equal([null, '1', '2', '3']);
    });

    it('uses the credential of the repository', async () => {
      const tokens = await login({ 'q.io/a': entry });
      await tokens.authorize({ ...subject, challenge });
      await tokens.authorize({ ...subject, repository: 'c/d', scope: 'repository:c/d:pull' });
      expect(asked.map(({ headers }) => headers.authorization)).to.deep.equal([basic, undefined]);
    });
  });

  describe('when the token server does not give a token', () => {
    const cases: [what: string, answer: Answer, code: ErrorCode, message: string][] = [
      ['refuses the login', { status: 401, body: 'no' }, 'unauthorized', 'q.io refuses the credentials for a/b'],
      ['calls the grant invalid', { status: 400, body: { error: 'invalid_grant' } }, 'unauthorized', 'q.io refuses'],
      ['forbids it', { status: 403 }, 'denied', 'q.io does not allow this user to access a/b'],
      ['redirects without end', { status: 302, headers: { location: '/x' } }, 'server-error', 'answered 302'],
      ['redirects nowhere', { status: 302, headers: { location: 'file:///x' } }, 'server-error', 'answered 302'],
      ['answers something else', { body: '<html>' }, 'server-error', 'answered without a token for q.io'],
      ['answers an empty token', { body: { token: '' } }, 'server-error', 'answered without a token'],
      ['answers a token with a line break', { body: { token: 'a\r\nb' } }, 'server-error', 'without a token'],
      ['answers without end', { body: { token: 'a', x: 'y'.repeat(2 ** 20) } }, 'server-error', 'without a token'],
    ];
    for (const status of [400, 405]) {
      it(`quotes why Quay answers ${status}`, async () => {
        const error = { code: 'NAME_INVALID', message: 'Nested repositories are not supported. Found: a/b/pa:ss' };
        answer = () => ({ status, body: { errors: [error] } });
        const tokens = await login({ 'q.io': entry });
        const { message } = await failureOf(tokens.authorize({ ...subject, challenge }), 'server-error');
        expect(message).to.contain(
          `answered ${status} (NAME_INVALID: Nested repositories are not supported. Found: a/b/…)`,
        );
        expect(asked.filter(({ method }) => method === 'POST')).to.deep.equal([]);
      });
    }

    it('quotes why Quay allows no write', async () => {
      for (const [code, reason] of [
        ['DENIED', 'System is currently read-only.'],
        ['UNSUPPORTED', 'Cannot create organization'],
      ]) {
        answer = () => ({ status: 405, body: { errors: [{ code, message: reason }] } });
        const tokens = await login({ 'q.io': entry });
        const { message, hint } = await failureOf(tokens.authorize({ ...subject, challenge }), 'denied');
        expect(message).to.contain(`answered 405 (${code}: ${reason})`);
        expect(hint).to.equal('It may be read-only, or this user may not create a/b.');
      }
    });

    for (const [what, given, code, message] of cases) {
      it(`reports that it ${what}`, async () => {
        answer = () => given;
        const tokens = await login({ 'q.io': entry });
        const error = await failureOf(tokens.authorize({ ...subject, challenge }), code);
        expect(error.message).to.contain(message);
        expect(error).not.to.be.instanceOf(TransientError);
      });
    }

    it('reports that credentials are required if it refuses an anonymous request', async () => {
      answer = () => ({ status: 401 });
      const error = await failureOf((await login()).authorize({ ...subject, challenge }), 'unauthorized');
      expect(error.message).to.contain('q.io requires credentials for a/b, and there are none for it in');
    });

    it('lets the transport try again after a passing failure', async () => {
      answer = () => ({ status: asked.length === 1 ? 503 : 429, headers: { 'retry-after': '7' } });
      const tokens = await login();
      const busy = await failureOf(tokens.authorize({ ...subject, challenge }), 'server-error');
      const limited = await failureOf(tokens.authorize({ ...subject, challenge }), 'rate-limited');
      for (const error of [busy, limited])
        expect(error).to.be.instanceOf(TransientError).and.include({ retryAfter: 7000 });
      answer = () => ({ body: { token: 'atlast' } });
      expect(await tokens.authorize(subject)).to.equal('Bearer atlast');
    });

    it('says that it cannot be reached', async () => {
      const gone = { ...subject, challenge: 'Bearer realm="http://127.0.0.1:1/token"' };
      const error = await failureOf((await login()).authorize(gone), 'unreachable');
      expect(error.message).to.contain('127.0.0.1:1');
    });
  });

  describe('keeping secrets', () => {
    const plain: AuthorizationRequest = { ...subject, challenge: 'Bearer realm="http://192.0.2.1/token?key=hidden"' };

    it('sends no password over plain http', async () => {
      const error = await failureOf((await login({ 'q.io': entry })).authorize(plain), 'tls');
      expect(error.message).to.equal('q.io requests the credentials at http://192.0.2.1/token, which is not encrypted');
    });

    it('does so if the user sets insecure', async () => {
      connections.close();
      // The server is used as a proxy, so that nothing leaves this machine.
      const environment = { HTTP_PROXY: realm };
      connections = new Connections({ certificates: new Certificates({ insecure: true }), environment });
      const tokens = await login({ 'q.io': entry }, { insecure: true });
      expect(await tokens.authorize(plain)).to.equal('Bearer token1');
      expect(asked[0]?.headers).to.include({ host: '192.0.2.1', authorization: basic });
    });

    it('logs the address of the token server, and neither passwords nor tokens', async () => {
      const tokens = await login({ 'q.io': entry });
      await tokens.authorize({ ...subject, challenge });
      expect(log).to.deep.equal([`requesting a token from ${realm} for repository:a/b:pull`]);
    });
  });
});
