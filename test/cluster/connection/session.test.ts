import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFile, writeFile, stat } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { get } from 'node:https';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { bundle } from '../../../.config/bundle.ts';
import { connectCluster, type ClusterOptions } from '../../../lib/cluster/client.ts';
import { findTarget } from '../../../lib/cluster/connection/kubeconfig.ts';
import { Session } from '../../../lib/cluster/connection/session.ts';
import { startSocksProxy, startTunnelProxy } from '../../fakes/http/proxies.ts';
import { startApiServer, type ApiServerOptions, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeAuthority, type Authority, type Certificate } from '../../support/certificates.ts';
import { hasty } from '../../support/cluster.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('Session', () => {
  let authority: Authority;
  let serverCertificate: Certificate;
  let folder: KubeconfigFolder;
  const running: { stop(): Promise<void> }[] = [];
  const clusters: Disposable[] = [];

  before(async () => {
    authority = await makeAuthority();
    serverCertificate = await authority.issue({ hosts: ['127.0.0.1', 'api.cluster.test'] });
    folder = await makeKubeconfigFolder();
  });

  afterEach(async () => {
    for (const cluster of clusters.splice(0)) cluster[Symbol.dispose]();
    for (const server of running.splice(0)) await server.stop();
  });

  after(async () => {
    await folder.remove();
    await authority.remove();
  });

  const start = async (options: ApiServerOptions = {}): Promise<TestApiServer> => {
    const { key, certificate: cert } = serverCertificate;
    const server = await startApiServer({ ...options, tls: { key, cert, ...options.tls } });
    running.push(server);
    return server;
  };
  /** Connects through a kubeconfig, and returns the name of the user for the server. */
  const ask = async (
    kubeconfig: string,
    options: Partial<ClusterOptions> = {},
    context: TestContext = makeContext(),
  ): Promise<string> => {
    const cluster = await connectCluster({ kubeconfig, environment: {}, retry: hasty, ...options }, context);
    clusters.push(cluster);
    return (await cluster.version()).gitVersion;
  };
  const openSession = async (kubeconfig: string): Promise<Session> => {
    const session = new Session(await findTarget({ kubeconfig, environment: {} }), { environment: {} }, makeContext());
    clusters.push(session);
    return session;
  };
  const caData = (): string => Buffer.from(authority.certificate).toString('base64');
  const trusted = (server: TestApiServer) => ({ server: server.url, 'certificate-authority-data': caData() });
  const accepts = (...tokens: string[]) => ({ tokens: new Map(tokens.map((token) => [token, 'me'] as const)) });

  describe('certificates of the server', () => {
    it('trusts the authority of the kubeconfig, as data or as a file beside it', async () => {
      const server = await start();
      expect(await ask(await folder.write({ cluster: trusted(server) }))).to.equal('v1.27.3');
      await folder.file('ca.crt', authority.certificate);
      const cluster = { server: server.url, 'certificate-authority': 'ca.crt' };
      expect(await ask(await folder.write({ cluster }))).to.equal('v1.27.3');
      const options = { certificateAuthority: authority.certificateFile };
      expect(await ask(await folder.write({ cluster: { server: server.url } }), options)).to.equal('v1.27.3');
    });

    it('prefers the data to a file, as client-go does', async () => {
      const cluster = { ...trusted(await start()), 'certificate-authority': 'absent.crt' };
      expect(await ask(await folder.write({ cluster }))).to.equal('v1.27.3');
    });

    it('refuses a server of another authority, and names the option for it', async () => {
      const server = await start();
      const kubeconfig = await folder.write({ cluster: { server: server.url } });
      const failure = await failureOf(ask(kubeconfig), 'tls');
      expect(failure.message).to.contain(`the certificate of ${server.host} is not trusted`);
      expect(failure.hint).to.contain('certificate-authority-data of the cluster “here”').and.contain(kubeconfig);
      expect(await ask(kubeconfig, { insecureSkipTlsVerify: true })).to.equal('v1.27.3');
      const insecure = { server: server.url, 'insecure-skip-tls-verify': true };
      expect(await ask(await folder.write({ cluster: insecure }))).to.equal('v1.27.3');
    });

    it('verifies by tls-server-name if there is one', async () => {
      const cluster = { ...trusted(await start()), 'tls-server-name': 'api.cluster.test' };
      expect(await ask(await folder.write({ cluster }))).to.equal('v1.27.3');
      const failure = await failureOf(
        ask(await folder.write({ cluster: { ...cluster, 'tls-server-name': 'other.test' } })),
        'tls',
      );
      expect(failure.message).to.contain('is for another name');
    });

    it('uses plain http if the kubeconfig requires it', async () => {
      const server = await startApiServer();
      running.push(server);
      expect(await ask(await folder.write({ cluster: { server: server.url } }))).to.equal('v1.27.3');
    });

    it('says which certificate cannot be used', async () => {
      const cluster = {
        ...trusted(await start()),
        'certificate-authority-data': undefined,
        'certificate-authority': 'x',
      };
      const absent = await failureOf(ask(await folder.write({ cluster })), 'not-readable');
      expect(absent.message).to.match(/certificate-authority .*x does not exist/);
      await folder.file('x', '{"auths": {}}');
      const wrong = await failureOf(ask(await folder.write({ cluster })), 'invalid-file');
      expect(wrong.message).to.match(/certificate-authority .*x of .* has no certificate in PEM/);
      const data = { ...cluster, 'certificate-authority-data': 'bm9uZQ==' };
      await failureOf(ask(await folder.write({ cluster: data })), 'invalid-file');
    });
  });

  describe('users', () => {
    it('logs in with a token, a password, a client certificate', async () => {
      const client = await authority.issue({ hosts: ['admin'], client: true });
      const seen: string[] = [];
      const server = await start({
        ...accepts('sesame'),
        passwords: new Map([['bob', 'secret']]),
        tls: { ca: authority.certificate, requestCert: true, rejectUnauthorized: false },
        allow: ({ user }) => seen.push(user) > 0,
      });
      const certificate = {
        'client-certificate-data': Buffer.from(client.certificate).toString('base64'),
        'client-key': client.keyFile,
      };
      for (const user of [{ token: 'sesame' }, { username: 'bob', password: 'secret' }, certificate]) {
        const kubeconfig = await folder.write({ cluster: trusted(server), user });
        const cluster = await connectCluster({ kubeconfig, environment: {} }, makeContext());
        clusters.push(cluster);
        await cluster.list('v1', 'ConfigMap');
      }
      const failure = await failureOf(ask(await folder.write({ cluster: trusted(server) })), 'unauthorized');
      expect(failure.message).to.contain('refuses the credentials of the user “me”');
      expect(failure.hint).to.contain('oc login');
      expect(seen).to.deep.equal(['me', 'bob', 'admin']);
    });

    it('takes a token with a newline at its end, and the token of the file of which the token file is gone', async () => {
      const server = await start(accepts('sesame'));
      for (const user of [{ token: 'sesame\n' }, { tokenFile: '/nowhere/token', token: 'sesame' }])
        expect(await ask(await folder.write({ cluster: trusted(server), user }))).to.equal('v1.27.3');
      const lost = await folder.write({ cluster: trusted(server), user: { tokenFile: '/nowhere/token' } });
      await failureOf(ask(lost), 'not-readable');
    });

    it('says when the client certificate expired that a cluster refuses', async () => {
      const expired = await authority.issue({ hosts: ['admin'], client: true, expired: true });
      const tls = { ca: authority.certificate, requestCert: true, rejectUnauthorized: false };
      const server = await start({ ...accepts('sesame'), tls });
      const user = { 'client-certificate': expired.certificateFile, 'client-key': expired.keyFile };
      const failure = await failureOf(ask(await folder.write({ cluster: trusted(server), user })), 'unauthorized');
      const { validToDate } = new X509Certificate(expired.certificate);
      const end = validToDate.toISOString().replace('.000', '');
      expect(failure.message).to.match(new RegExp(`: its client certificate expired at ${end}$`));
      expect(failure.hint).to.contain('node-kubeconfigs').and.to.contain('“oc login” does not renew it');
    });

    it('takes --token instead of the token of the kubeconfig, and never shows either', async () => {
      const server = await start(accepts('given'));
      const user = { exec: { command: 'absent', apiVersion: 'client.authentication.k8s.io/v1' }, token: 'filed' };
      const kubeconfig = await folder.write({ cluster: trusted(server), user });
      expect(await ask(kubeconfig, { token: 'given' })).to.equal('v1.27.3');
      const context = makeContext();
      const failure = await failureOf(ask(kubeconfig, { token: 'wrong-token' }, context), 'unauthorized');
      expect(`${failure.message}${String(failure.hint)}${context.lines.join('')}`).to.not.match(/wrong-token|filed/);
    });

    it('reads token files, line end and all, again when the token is refused', async () => {
      const { tokens } = accepts('one');
      const server = await start({ tokens });
      const file = await folder.file('token', 'one\n');
      const kubeconfig = await folder.write({ cluster: trusted(server), user: { tokenFile: 'token' } });
      const cluster = await connectCluster({ kubeconfig, environment: {} }, makeContext());
      clusters.push(cluster);
      await cluster.version();
      tokens.delete('one');
      tokens.set('two', 'me');
      await writeFile(file, 'two\n');
      await cluster.version();
      expect(server.requests.map(({ status }) => status)).to.deep.equal([200, 401, 200]);
    });

    it('asks an auth-provider, or says that it failed', async () => {
      const server = await start(accepts('provided'));
      const provider = { name: 'tokenFile', config: { tokenFile: await folder.file('provided', 'provided') } };
      const kubeconfig = await folder.write({ cluster: trusted(server), user: { 'auth-provider': provider } });
      expect(await ask(kubeconfig)).to.equal('v1.27.3');
      const broken = { name: 'tokenFile', config: { tokenFile: `${folder.folder}/absent` } };
      const other = await folder.write({ cluster: trusted(server), user: { 'auth-provider': broken } });
      expect((await failureOf(ask(other), 'bad-credentials-file')).message).to.contain('auth-provider');
    });

    describe('with the auth-provider oidc', () => {
      /** Returns an ID token that expires after some seconds. */
      const makeIdToken = (seconds: number): string => {
        const parts = [{ alg: 'none' }, { exp: Math.floor(Date.now() / 1000) + seconds }];
        return [...parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')), ''].join('.');
      };
      const connect = async (token: string): Promise<string> => {
        const server = await start(accepts(token));
        const config = { 'id-token': token, 'refresh-token': 'r', 'client-id': 'c', 'idp-issuer-url': 'https://idp' };
        const user = { 'auth-provider': { name: 'oidc', config } };
        return await ask(await folder.write({ cluster: trusted(server), user }));
      };

      it('sends its token while that is valid', async () => {
        expect(await connect(makeIdToken(3600))).to.equal('v1.27.3');
        expect(await connect('no-web-token')).to.equal('v1.27.3');
      });

      it('refuses an expired token, and names the plugins that refresh theirs', async () => {
        const { message, hint } = await failureOf(connect(makeIdToken(-60)), 'bad-credentials-file');
        expect(message).to.match(
          /^the OIDC token of .*config expired at 20.*Z, and an auth-provider is not refreshed here$/,
        );
        expect(hint).to.match(/“oc whoami”.*exec plugin.*oc-oidc of “oc login”/);
      });
    });

    it('keeps its connection while only the token changes', async () => {
      const { tokens } = accepts('one');
      const server = await start({ tokens });
      const file = await folder.file('token', 'one');
      const kubeconfig = await folder.write({ cluster: trusted(server), user: { tokenFile: 'token' } });
      const session = await openSession(kubeconfig);
      const first = await session.access();
      await writeFile(file, 'two');
      const second = await session.access(first);
      expect(second.headers).to.deep.equal({ Authorization: 'Bearer two' });
      expect(second.agent).to.equal(first.agent);
    });

    it('closes its connections, idle ones too', async () => {
      const server = await start();
      const kubeconfig = await folder.write({ cluster: trusted(server), user: {} });
      const session = await openSession(kubeconfig);
      const { agent } = await session.access();
      const [response] = (await once(get(`${server.url}/version`, { agent }), 'response')) as [IncomingMessage];
      const { socket } = response;
      await buffer(response);
      expect(socket.destroyed).to.equal(false);
      session[Symbol.dispose]();
      expect(socket.destroyed).to.equal(true);
    });

    it('logs in with --username and --password, and acts as a UID', async () => {
      const server = await start({ passwords: new Map([['bob', 'secret']]) });
      const kubeconfig = await folder.write({ cluster: trusted(server), user: { token: 'filed' } });
      const login = { username: 'bob', password: 'secret', as: 'carol', asUid: '7', asUserExtra: ['a/b=c'] };
      expect(await ask(kubeconfig, login)).to.equal('v1.27.3');
      expect(server.requests[0]?.headers).to.include({
        'impersonate-user': 'carol',
        'impersonate-uid': '7',
        'impersonate-extra-a%2fb': 'c',
      });
      await failureOf(ask(kubeconfig, { ...login, password: 'wrong' }), 'unauthorized');
    });

    it('acts as another user and groups', async () => {
      const seen: string[] = [];
      const server = await start({
        ...accepts('sesame'),
        allow: ({ user, groups, verb }) => seen.push(`${user} ${verb} ${groups.join('+')}`) > 0,
      });
      const kubeconfig = await folder.write({ cluster: trusted(server), user: { token: 'sesame' } });
      const options = { kubeconfig, environment: {}, as: 'carol', asGroup: ['a', 'b'] };
      const cluster = await connectCluster(options, makeContext());
      clusters.push(cluster);
      await cluster.list('v1', 'ConfigMap');
      expect(seen).to.include('carol list a+b');
    });
  });

  describe('credential plugins', () => {
    const exec = (command: string, more: object = {}) => ({
      exec: { apiVersion: 'client.authentication.k8s.io/v1', command, ...more },
    });
    const credential = (status: object): string =>
      JSON.stringify({ apiVersion: 'client.authentication.k8s.io/v1', kind: 'ExecCredential', status });
    const plugin = (name: string, script: string) => folder.file(name, `#!/bin/sh\n${script}\n`, 0o755);
    const environment = { PATH: process.env['PATH'] };

    it('runs a command beside the kubeconfig, with its arguments, variables and cluster info', async () => {
      const server = await start(accepts('from-plugin'));
      await plugin(
        'plugin',
        `echo "open https://login.test" >&2; cat; printf '%s\\n' "$1" "$GREETING" "$KUBERNETES_EXEC_INFO" >"$OUT"
         echo '${credential({ token: 'from-plugin' })}'`,
      );
      const out = `${folder.folder}/out`;
      const env = [
        { name: 'GREETING', value: 'hello' },
        { name: 'OUT', value: out },
      ];
      const user = exec('./plugin', { args: ['first'], env, provideClusterInfo: true });
      const context = makeContext();
      expect(await ask(await folder.write({ cluster: trusted(server), user }), { environment }, context)).to.equal(
        'v1.27.3',
      );
      const [argument, greeting, info] = (await readFile(out, 'utf8')).split('\n');
      expect([argument, greeting]).to.deep.equal(['first', 'hello']);
      expect(JSON.parse(info ?? '')).to.deep.equal({
        kind: 'ExecCredential',
        apiVersion: 'client.authentication.k8s.io/v1',
        spec: { interactive: false, cluster: { server: server.url, 'certificate-authority-data': caData() } },
      });
      expect(context.lines).to.include('info: open https://login.test');
    });

    it('runs it once for many requests, and again when the token is refused or has expired', async () => {
      const { tokens } = accepts('token-1');
      const server = await start({ tokens });
      await plugin(
        'counting',
        `n=$(($(cat "$0.count" 2>/dev/null || echo 0) + 1)); echo $n >"$0.count"
         when=$([ $n = 2 ] && echo 2001-01-01T00:00:00Z || echo 2999-01-01T00:00:00Z)
         echo '${credential({ token: 'token-N', expirationTimestamp: 'WHEN' })}' | sed "s/-N/-$n/; s/WHEN/$when/"`,
      );
      const kubeconfig = await folder.write({ cluster: trusted(server), user: exec('./counting') });
      const cluster = await connectCluster({ kubeconfig, environment }, makeContext());
      clusters.push(cluster);
      for (let index = 0; index < 3; index += 1) await cluster.version();
      tokens.delete('token-1');
      for (const token of ['token-2', 'token-3']) tokens.set(token, 'me');
      await cluster.version();
      await cluster.version();
      const used = server.requests.map(({ headers }) => headers.authorization?.slice('Bearer token-'.length));
      expect(used).to.deep.equal(['1', '1', '1', '1', '2', '3']);
    });

    it('takes a client certificate from it', async () => {
      const client = await authority.issue({ hosts: ['plugged'], client: true });
      const server = await start({ tls: { ca: authority.certificate, requestCert: true, rejectUnauthorized: true } });
      const status = { clientCertificateData: client.certificate, clientKeyData: client.key };
      await folder.file('credential.json', credential(status));
      await plugin('certified', `cat "$(dirname "$0")/credential.json"`);
      const kubeconfig = await folder.write({ cluster: trusted(server), user: exec('./certified') });
      expect(await ask(kubeconfig, { environment })).to.equal('v1.27.3');
    });

    it('names the failure: absent, failed, not JSON, another version', async () => {
      const server = await start(accepts('x'));
      await plugin('failing', 'echo "your session has ended" >&2; exit 3');
      await plugin('nonsense', 'echo token-that-leaks');
      await plugin('older', `echo '${credential({ token: 'x' }).replace('/v1', '/v1beta1')}'`);
      await plugin('empty', `echo '${credential({})}'`);
      const cases: [object, RegExp, RegExp][] = [
        [
          exec('no-such-plugin', { installHint: 'dnf install it' }),
          /no-such-plugin: there is no such command/,
          /dnf install it/,
        ],
        [exec('./failing'), /failing ended with 3: your session has ended/, /by hand/],
        [exec('./nonsense'), /nonsense printed something that is not JSON/, /by hand/],
        [exec('./older'), /answered as client.authentication.k8s.io\/v1beta1/, /by hand/],
        [exec('./empty'), /returned neither a token nor a certificate/, /by hand/],
        [exec('./empty', { interactiveMode: 'Always' }), /needs a terminal/, /oc login/],
      ];
      for (const [user, message, hint] of cases) {
        const kubeconfig = await folder.write({ cluster: trusted(server), user: user as Record<string, unknown> });
        const failure = await failureOf(ask(kubeconfig, { environment }), 'bad-credentials-file');
        expect(failure.message).to.match(message).and.not.contain('leaks');
        expect(failure.hint).to.match(hint);
      }
    });

    it('ends it when the run is interrupted', async () => {
      await plugin('sleeping', 'echo sleeping >&2; exec sleep 60');
      const kubeconfig = await folder.write({ cluster: trusted(await start()), user: exec('./sleeping') });
      const context = makeContext();
      const asked = failureOf(ask(kubeconfig, { environment }, context), 'interrupted');
      await context.untilLogged('sleeping');
      context.interrupt();
      await asked;
    });
  });

  describe('proxies', () => {
    it('goes through proxy-url, with its login, even to this machine', async () => {
      const server = await start();
      const proxy = await startTunnelProxy();
      running.push(proxy);
      const cluster = { ...trusted(server), 'proxy-url': `http://me:pw@${proxy.host}` };
      expect(await ask(await folder.write({ cluster }))).to.equal('v1.27.3');
      expect(proxy.targets).to.deep.equal([server.host]);
      expect(proxy.logins).to.deep.equal([`Basic ${Buffer.from('me:pw').toString('base64')}`]);
    });

    it('goes through HTTPS_PROXY, unless NO_PROXY has the host', async () => {
      const server = await start();
      const proxy = await startTunnelProxy(() => server.host);
      running.push(proxy);
      const cluster = { ...trusted(server), server: 'https://api.cluster.test:6443' };
      const kubeconfig = await folder.write({ cluster });
      const environment = { HTTPS_PROXY: `http://${proxy.host}` };
      expect(await ask(kubeconfig, { environment })).to.equal('v1.27.3');
      expect(proxy.targets).to.deep.equal(['api.cluster.test:6443']);
      await failureOf(ask(kubeconfig, { environment: { ...environment, NO_PROXY: '.cluster.test' } }), 'unreachable');
      expect(proxy.targets).to.have.length(1);
    });

    it('goes through a SOCKS proxy', async () => {
      const server = await start(accepts('sesame'));
      const proxy = await startSocksProxy(() => server.host);
      running.push(proxy);
      const cluster = {
        ...trusted(server),
        server: 'https://api.cluster.test:6443',
        'proxy-url': `socks5h://${proxy.host}`,
      };
      const kubeconfig = await folder.write({ cluster, user: { token: 'sesame' } });
      expect(await ask(kubeconfig)).to.equal('v1.27.3');
      expect(proxy.targets).to.deep.equal(['api.cluster.test:6443']);
      const distrusted = { ...cluster, 'certificate-authority-data': undefined };
      await failureOf(ask(await folder.write({ cluster: distrusted, user: { token: 'sesame' } })), 'tls');
    });

    it('refuses an invalid proxy-url, without showing it', async () => {
      const cluster = { ...trusted(await start()), 'proxy-url': 'ftp://me:pw@proxy' };
      expect((await failureOf(ask(await folder.write({ cluster })), 'invalid-file')).message).to.not.contain('pw');
    });
  });
});

/** Returns an OIDC token that expires in an hour. */
function makeIdToken(): string {
  const parts = [{ alg: 'none' }, { exp: Math.floor(Date.now() / 1000) + 3600 }];
  return [...parts.map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')), ''].join('.');
}

describe('@kubernetes/client-node in an executable', () => {
  it('connects through SOCKS with a token of OIDC, without the modules that no command uses', async () => {
    await using folder = await makeKubeconfigFolder();
    const file = join(folder.folder, 'client.cjs');
    const unused = /node_modules\/undici\/|client-node\/dist\/(?:index|exec|watch|cp)\.js/;
    expect((await bundle('lib/cluster/client.ts', file)).filter((path) => unused.test(path))).to.deep.equal([]);
    // With its types of objects and clients of APIs, it would be 1 MB.
    expect((await stat(file)).size).to.be.lessThan(700_000);
    const bundled = createRequire(import.meta.url)(file) as { readonly connectCluster: typeof connectCluster };
    const token = makeIdToken();
    const server = await startApiServer({ tokens: new Map([[token, 'me']]) });
    const proxy = await startSocksProxy(() => server.host);
    try {
      const cluster = { server: 'http://api.cluster.test:6443', 'proxy-url': `socks5h://${proxy.host}` };
      const user = { 'auth-provider': { name: 'oidc', config: { 'id-token': token } } };
      const kubeconfig = await folder.write({ cluster, user });
      using connected = await bundled.connectCluster({ kubeconfig, environment: {} }, makeContext());
      expect((await connected.version()).gitVersion).to.equal('v1.27.3');
      expect(proxy.targets).to.deep.equal(['api.cluster.test:6443']);
    } finally {
      await proxy.stop();
      await server.stop();
    }
  });
});
