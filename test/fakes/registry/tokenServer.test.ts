import { expect } from 'chai';
import { basicAuthorization, startTokenServer, type TokenServer, type TokenServerOptions } from './tokenServer.ts';

const login = { username: 'user', password: 'secret' };
const scope = 'repository:team/app:pull,push';

describe('startTokenServer', () => {
  let server: TokenServer;

  async function ask(query: Record<string, string>, authorization?: string): Promise<Response> {
    const url = `${server.url}/token?${new URLSearchParams({ service: 'registry.test', ...query }).toString()}`;
    return await fetch(url, { headers: authorization === undefined ? {} : { authorization } });
  }

  async function post(form: Record<string, string>): Promise<Response> {
    const body = new URLSearchParams({ service: 'registry.test', client_id: 'test', ...form });
    return await fetch(`${server.url}/token`, { method: 'POST', body });
  }

  async function start(options: Partial<TokenServerOptions> = {}): Promise<void> {
    server = await startTokenServer({ ...login, ...options });
  }

  afterEach(async () => {
    await server.stop();
  });

  it('gives a token for the requested scope', async () => {
    await start({ expiresIn: 60 });
    const response = await ask({ scope }, basicAuthorization('user', 'secret'));
    const { token, access_token, expires_in } = (await response.json()) as Record<string, string>;
    expect(access_token).to.equal(undefined);
    expect(expires_in).to.equal(60);
    expect(server.allows(token ?? '', 'team/app', 'push')).to.equal(true);
    expect(server.allows(token ?? '', 'team/app', 'delete')).to.equal(false);
    expect(server.allows(token ?? '', 'team', 'pull')).to.equal(false);
    server.revokeTokens();
    expect(server.accepts(token ?? '')).to.equal(false);
  });

  it('refuses wrong passwords, and anonymous requests if anonymous pulls are off', async () => {
    await start();
    const refused = await ask({ scope }, basicAuthorization('user', 'wrong'));
    expect(refused.status).to.equal(401);
    expect(await refused.json()).to.have.nested.property('errors[0].code', 'UNAUTHORIZED');
    expect((await ask({ scope })).status).to.equal(401);
    expect((await post({ grant_type: 'password', username: 'user', password: 'wrong' })).status).to.equal(401);
    expect((await ask({ service: 'other', scope }, basicAuthorization('user', 'secret'))).status).to.equal(400);
  });

  it('allows anonymous pulls if they are on, and leaves out actions that a user may not do', async () => {
    await start({ anonymousPull: true, allow: (_user, repository) => repository === 'team/app' });
    const { token = '' } = (await (await ask({ scope })).json()) as { token?: string };
    expect(server.allows(token, 'team/app', 'pull')).to.equal(true);
    expect(server.allows(token, 'team/app', 'push')).to.equal(false);
    const both = server.issue('user', ['repository:team/app:pull', 'repository:team/other:pull']);
    expect(server.allows(both, 'team/app', 'pull')).to.equal(true);
    expect(server.allows(both, 'team/other', 'pull')).to.equal(false);
  });

  it('takes a password or an identity token in an OAuth2 form', async () => {
    await start({ identityToken: 'refresh', field: 'access_token', announceExpiry: false });
    const forms: Record<string, string>[] = [
      { grant_type: 'password', username: 'user', password: 'secret', scope },
      { grant_type: 'refresh_token', refresh_token: 'refresh', scope },
    ];
    for (const form of forms) {
      const answer = (await (await post(form)).json()) as Record<string, string>;
      expect(answer).to.have.all.keys('access_token');
      expect(server.allows(answer['access_token'] ?? '', 'team/app', 'push')).to.equal(true);
    }
    expect((await post({ grant_type: 'refresh_token', refresh_token: 'other' })).status).to.equal(401);
  });

  it('lets tokens expire', async () => {
    await start({ expiresIn: 0 });
    expect(server.accepts(server.issue('user', [scope]))).to.equal(false);
  });

  it('counts the requests that overlap', async () => {
    await start({ anonymousPull: true });
    server.fault(/token/, { delay: 50 });
    await Promise.all([ask({ scope }), ask({ scope }), ask({ scope })]);
    expect(server.requests).to.have.length(3);
    expect(server.peakActive).to.equal(3);
  });
});
