import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import {
  type Credential,
  Credentials,
  type CredentialsOptions,
} from '../../../../lib/content/registry/auth/credentials.ts';
import { isPluginError, type PluginError } from '../../../../lib/errors.ts';

const basic = (pair: string) => ({ auth: Buffer.from(pair).toString('base64') });

async function failureOf(promise: Promise<unknown>): Promise<PluginError> {
  const error: unknown = await promise.then(
    () => new Error('nothing failed'),
    (thrown: unknown) => thrown,
  );
  if (!isPluginError(error, 'bad-credentials-file')) throw error;
  return error;
}

async function loadCredentials(options: CredentialsOptions): Promise<Credentials> {
  const credentials = new Credentials(options);
  await credentials.load();
  return credentials;
}

describe('Credentials', () => {
  let home: string;
  beforeEach(async () => {
    home = await mkdtemp(join(tmpdir(), 'credentials-'));
  });
  afterEach(() => rm(home, { recursive: true }));

  const put = async (path: string, content: unknown) => {
    const file = join(home, path);
    await mkdir(dirname(file), { recursive: true });
    await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content));
    return file;
  };

  describe('reading files', () => {
    it('reads the file it is given and no other', async () => {
      await put('.docker/config.json', { auths: { 'other.io': basic('u:p') } });
      const file = await put('secret.json', { auths: { 'quay.io': basic('user:word') } });
      const credentials = await loadCredentials({ file, environment: {}, home });
      expect(credentials.files).to.deep.equal([file]);
      expect(await credentials.find('quay.io', 'a/b')).to.deep.equal({
        username: 'user',
        password: 'word',
        from: file,
      });
      expect(await credentials.find('other.io', 'a/b')).to.equal(undefined);
    });

    it('names a given file that is missing', async () => {
      const file = join(home, 'none.json');
      const error = await failureOf(loadCredentials({ file, environment: {} }));
      expect(error.message).to.equal(`the credentials file ${file} does not exist`);
    });

    it('reads the credentials in a Secret object of a cluster, and says so', async () => {
      const inner = Buffer.from(JSON.stringify({ auths: { 'quay.io': basic('user:word') } })).toString('base64');
      const secret = { apiVersion: 'v1', kind: 'Secret', data: { '.dockerconfigjson': inner } };
      const file = await put('secret.json', secret);
      const credentials = await loadCredentials({ file, environment: {} });
      expect(await credentials.find('quay.io', 'a/b')).to.include({ username: 'user', password: 'word' });
      expect(credentials.warnings).to.deep.equal([
        `${file} is a Secret object of a cluster: its .dockerconfigjson is read`,
      ]);
      const other = await put('other.json', { kind: 'Secret', data: { token: inner } });
      const error = await failureOf(loadCredentials({ file: other, environment: {} }));
      expect(error.message).to.contain('is a Secret object of a cluster without a .dockerconfigjson');
    });

    it('leaves out a line break at the end of an auth, and says so', async () => {
      const file = await put('secret.json', { auths: { 'quay.io': basic('user:word\n') } });
      const credentials = await loadCredentials({ file, environment: {} });
      expect(await credentials.find('quay.io', 'a/b')).to.include({ password: 'word' });
      expect(credentials.warnings).to.deep.equal([
        `the “auth” for quay.io in ${file} ends with a line break or blank, which is left out`,
      ]);
    });

    it('knows the entries for another port of a host', async () => {
      const file = await put('secret.json', { auths: { 'a.example': basic('u:p'), 'b.example:1/x': basic('u:p') } });
      const credentials = await loadCredentials({ file, environment: {} });
      expect(credentials.findOtherPorts('a.example:5000')).to.deep.equal([{ name: 'a.example', path: file }]);
      expect(credentials.findOtherPorts('b.example')).to.deep.equal([{ name: 'b.example:1/x', path: file }]);
      expect(credentials.findOtherPorts('a.example')).to.deep.equal([]);
    });

    it('names a malformed file and shows nothing of it', async () => {
      for (const content of [
        '{"auths": {"quay.io": {"auth": "c2VjcmV0"}',
        '["c2VjcmV0"]',
        '',
        '{"auths": ["c2VjcmV0"]}',
      ]) {
        const file = await put('secret.json', content);
        const error = await failureOf(loadCredentials({ file, environment: {} }));
        expect(error.message).to.contain(file);
        expect(`${error.message} ${String(error.cause)}`).not.to.contain('c2VjcmV0');
      }
    });

    it('reports a path that is not a file, or a file too large for credentials', async () => {
      const large = await put('large.json', ' '.repeat(5e6));
      for (const [file, why] of [
        [home, 'is a folder'],
        [large, 'exceeds the limit of 4194304 bytes'],
      ] as const) {
        const error = await failureOf(loadCredentials({ file, environment: {} }));
        expect(error.message).to.equal(`the credentials file ${file} ${why}`);
      }
    });

    it('reads the file that REGISTRY_AUTH_FILE names and no other, and wants it to exist', async () => {
      await put('.docker/config.json', { auths: { 'quay.io': basic('u:p') } });
      const file = await put('named.json', { auths: {} });
      const credentials = await loadCredentials({ environment: { REGISTRY_AUTH_FILE: file }, home });
      expect(credentials.files).to.deep.equal([file]);
      await failureOf(loadCredentials({ environment: { REGISTRY_AUTH_FILE: join(home, 'none') }, home }));
    });

    it('looks through the files of podman and docker in the order of oc', async () => {
      const environment = { XDG_RUNTIME_DIR: join(home, 'run'), HOME: home };
      const files = [
        await put('run/containers/auth.json', { auths: { 'a.io': basic('run:1') } }),
        await put('.config/containers/auth.json', { auths: { 'a.io': basic('config:2'), 'b.io': basic('config:2') } }),
        await put('.docker/config.json', { auths: { 'b.io/x': basic('docker:3'), 'c.io': basic('docker:3') } }),
        await put('.dockercfg', { 'https://d.io/v1/': { ...basic('old:4'), email: 'x@y.z' } }),
      ];
      const credentials = await loadCredentials({ environment });
      expect(credentials.files).to.deep.equal(files);
      const users = ['a.io', 'b.io', 'c.io', 'd.io', 'e.io'].map(
        async (host) => (await credentials.find(host, 'x'))?.username,
      );
      expect(await Promise.all(users)).to.deep.equal(['run', 'config', 'docker', 'old', undefined]);
    });

    it('follows XDG_CONFIG_HOME and DOCKER_CONFIG', async () => {
      await put('.docker/config.json', {});
      await put('.config/containers/auth.json', {});
      const files = [await put('x/containers/auth.json', {}), await put('d/config.json', {})];
      const environment = { XDG_CONFIG_HOME: join(home, 'x'), DOCKER_CONFIG: join(home, 'd') };
      expect((await loadCredentials({ environment, home })).files).to.deep.equal(files);
    });

    it('passes over a default folder that the user may not search, but not over an unreadable file', async () => {
      const hidden = await put('run/containers/auth.json', { auths: {} });
      const own = await put('.docker/config.json', { auths: {} });
      const environment = { XDG_RUNTIME_DIR: join(home, 'run') };
      await chmod(await put('other/.docker/config.json', {}), 0);
      await chmod(home, 0o711);
      await chmod(dirname(hidden), 0);
      const isRoot = process.geteuid?.() === 0;
      if (isRoot) process.seteuid?.(65_534);
      try {
        expect((await loadCredentials({ environment, home })).files).to.deep.equal([own]);
        await failureOf(loadCredentials({ file: hidden, environment }));
        await failureOf(loadCredentials({ environment, home: join(home, 'other') }));
      } finally {
        if (isRoot) process.seteuid?.(0);
        await chmod(dirname(hidden), 0o700);
      }
    });

    it('waits until the first request, unless it must read now', async () => {
      const file = await put('broken.json', '{');
      const credentials = new Credentials({ file, environment: {} });
      expect(credentials.files).to.deep.equal([]);
      await failureOf(credentials.load());
      await failureOf(credentials.find('quay.io', 'a/b'));
    });

    it('finds no credentials without files', async () => {
      const credentials = await loadCredentials({ environment: {}, home });
      expect(credentials.files).to.deep.equal([]);
      expect(await credentials.find('quay.io', 'a/b')).to.equal(undefined);
    });
  });

  describe('find', () => {
    const find = async (auths: Record<string, unknown>, registry: string, repository: string) => {
      const file = await put('secret.json', { auths });
      return await (await loadCredentials({ file, environment: {} })).find(registry, repository);
    };

    it('finds them among names and secrets that are all slashes and zero bytes, which are read once', async () => {
      const slashes = '/'.repeat(1e6);
      const auth = Buffer.from(`u:${'\0'.repeat(1e6)}p`).toString('base64');
      const file = await put('secret.json', { auths: { [`a.io${slashes}b`]: basic('u:p'), 'quay.io/': { auth } } });
      const credentials = await loadCredentials({ file, environment: {} });
      expect((await credentials.find('quay.io', 'a/b'))?.password).to.have.length(1e6 + 1);
    });

    it('prefers the longest path, at slashes only', async () => {
      const auths = Object.fromEntries(
        ['q.io/a/b/c', 'q.io/a/b', 'q.io/a', 'q.io'].map((name) => [name, basic(`${name}:p`)]),
      );
      for (const [repository, name] of [
        ['a/b/c', 'q.io/a/b/c'],
        ['a/b/c/d', 'q.io/a/b/c'],
        ['a/b/cc', 'q.io/a/b'],
        ['a/x', 'q.io/a'],
        ['aa/b', 'q.io'],
      ] as const) {
        expect((await find(auths, 'q.io', repository))?.username, repository).to.equal(name);
      }
    });

    it('compares hosts whole, ports included', async () => {
      const auths = { 'quay.io': basic('u:p'), 'lab:5000': basic('u:p') };
      for (const host of ['myquay.io', 'quay.io.evil.com', 'quay.io:443', 'uay.io', 'lab', 'lab:50000']) {
        expect(await find(auths, host, 'a/b'), host).to.equal(undefined);
      }
      expect(await find(auths, 'lab:5000', 'a')).to.include({ username: 'u' });
    });

    it('understands keys that are URLs, after plain ones', async () => {
      expect(await find({ 'https://q.io:5000/v2/': basic('u:p') }, 'q.io:5000', 'a')).to.include({ username: 'u' });
      const both = { 'https://q.io': basic('url:p'), 'q.io': basic('plain:p'), 'http://q.io/v1/': basic('url:p') };
      expect(await find(both, 'q.io', 'a')).to.include({ username: 'plain' });
    });

    it('knows docker.io by all its names', async () => {
      for (const key of ['docker.io', 'https://index.docker.io/v1/', 'index.docker.io', 'registry-1.docker.io']) {
        expect(await find({ [key]: basic('u:p') }, 'docker.io', 'library/a'), key).to.include({ username: 'u' });
      }
      expect(await find({ 'docker.io/me': basic('u:p') }, 'registry-1.docker.io', 'me/a')).to.include({
        username: 'u',
      });
    });

    const entries: [what: string, entry: unknown, expected: Credential | undefined][] = [
      ['a password with colons', basic('u:a:b:c'), { username: 'u', password: 'a:b:c' }],
      ['a password beyond ASCII', basic('u:pässwörd'), { username: 'u', password: 'pässwörd' }],
      ['a padded auth', basic('u:p\0\0'), { username: 'u', password: 'p' }],
      ['a name and a password', { username: 'u', password: 'p' }, { username: 'u', password: 'p' }],
      ['an identity token', { ...basic('0000:'), identitytoken: 'id' }, { identityToken: 'id' }],
      ['a registry token', { registrytoken: 'reg' }, { registryToken: 'reg' }],
      ['an empty entry', {}, undefined],
      ['an entry with an empty auth', { auth: '' }, undefined],
      ['an entry that is no object', 'x', undefined],
    ];
    for (const [what, entry, expected] of entries) {
      it(`reads ${what}`, async () => {
        const found = await find({ 'q.io': entry }, 'q.io', 'a');
        expect(found && { ...found, from: undefined }).to.deep.equal(expected && { ...expected, from: undefined });
      });
    }

    it('passes over an empty entry to a shorter one', async () => {
      expect(await find({ 'q.io/a': {}, 'q.io': basic('u:p') }, 'q.io', 'a')).to.include({ username: 'u' });
    });

    it('names the entry with an invalid auth, without showing it', async () => {
      const error = await failureOf(find({ 'q.io': basic('mysecret') }, 'q.io', 'a'));
      expect(error.message).to.contain('“auth” for q.io').and.not.to.contain('mysecret');
      expect(await find({ 'q.io': basic('mysecret') }, 'other.io', 'a')).to.equal(undefined);
    });
  });

  describe('credential helpers', () => {
    const environment = () => ({ PATH: `${join(home, 'bin')}:/usr/bin:/bin`, HELPER_LOG: join(home, 'log') });
    const helper = async (name: string, script: string) => {
      const file = await put(
        `bin/docker-credential-${name}`,
        `#!/bin/sh\nread host\necho "$1 $host" >>"$HELPER_LOG"\n${script}\n`,
      );
      await chmod(file, 0o755);
    };
    const load = async (content: unknown) =>
      await loadCredentials({ file: await put('secret.json', content), environment: environment() });
    const answer = (username: string, secret: string) =>
      `echo '{"ServerURL":"x","Username":"${username}","Secret":"${secret}"}'`;
    const missing = 'echo "credentials not found in native keychain"; exit 1';
    const log = async () => (await readFile(join(home, 'log'), 'utf8')).trim().split('\n');

    it('asks the helper of the host, once, before the entries of the file', async () => {
      await helper('lab', answer('helped', 'pw'));
      const credentials = await load({ credHelpers: { 'q.io:5000': 'lab' }, auths: { 'q.io:5000/a': basic('u:p') } });
      const found = await Promise.all(['a', 'b', 'a/c'].map((name) => credentials.find('q.io:5000', name)));
      for (const credential of found) {
        expect(credential).to.deep.equal({
          username: 'helped',
          password: 'pw',
          from: 'the credential helper docker-credential-lab',
        });
      }
      expect(await log()).to.deep.equal(['get q.io:5000']);
      expect(await credentials.find('other.io', 'a')).to.equal(undefined);
    });

    it('asks the credential store of the file if the file has no entry', async () => {
      await helper('store', answer('stored', 'pw'));
      const credentials = await load({ credsStore: 'store', auths: { 'q.io': {}, 'own.io': basic('u:p') } });
      expect(await credentials.find('q.io', 'a')).to.include({ username: 'stored' });
      expect(await credentials.find('own.io', 'a')).to.include({ username: 'u' });
      expect(await credentials.find('docker.io', 'library/a')).to.include({ username: 'stored' });
      expect(await log()).to.deep.equal(['get q.io', 'get https://index.docker.io/v1/']);
    });

    it('takes the user <token> for an identity token', async () => {
      await helper('lab', answer('<token>', 'refresh'));
      const credentials = await load({ credHelpers: { 'q.io': 'lab' } });
      expect(await credentials.find('q.io', 'a'))
        .to.include({ identityToken: 'refresh' })
        .and.not.to.have.property('password');
    });

    it('continues with the entries if the helper has none', async () => {
      await helper('lab', missing);
      const credentials = await load({
        credHelpers: { 'q.io': 'lab', 'p.io': 'lab' },
        auths: { 'q.io': basic('u:p') },
      });
      expect(await credentials.find('q.io', 'a')).to.include({ username: 'u' });
      expect(await credentials.find('p.io', 'a')).to.equal(undefined);
    });

    const failures: [what: string, script: string][] = [
      ['fails', 'echo hunter2; echo hunter2 >&2; exit 3'],
      ['does not answer with a credential', 'echo hunter2'],
      ['does not answer with a credential', `echo '{"Secret":"hunter2"}'`],
    ];
    for (const [what, script] of failures) {
      it(`names a helper that ${what}: ${script.slice(0, 20)}`, async () => {
        await helper('lab', script);
        const error = await failureOf((await load({ credHelpers: { 'q.io': 'lab' } })).find('q.io', 'a'));
        expect(error.message).to.contain('docker-credential-lab').and.to.contain('q.io');
        expect(`${error.message} ${String(error.hint)} ${String(error.cause)}`).not.to.contain('hunter2');
      });
    }

    it('names a helper that is not installed', async () => {
      const error = await failureOf((await load({ credHelpers: { 'q.io': 'absent' } })).find('q.io', 'a'));
      expect(error.message).to.contain('docker-credential-absent was not found on the PATH');
      await helper('locked', 'true');
      await chmod(join(home, 'bin/docker-credential-locked'), 0o644);
      const locked = await failureOf((await load({ credHelpers: { 'q.io': 'locked' } })).find('q.io', 'a'));
      expect(locked.message).to.contain('docker-credential-locked was not found on the PATH, or may not be executed');
    });

    it('runs nothing for a name that is a path', async () => {
      for (const name of ['../lab', 'a/b', 'a b', 5]) {
        const error = await failureOf((await load({ credHelpers: { 'q.io': name } })).find('q.io', 'a'));
        expect(error.message).to.contain('names an invalid credential helper for q.io');
      }
    });
  });
});
