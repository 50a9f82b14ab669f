import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { expect } from 'chai';
import { findTarget } from '../../../lib/cluster/connection/kubeconfig.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('findTarget', () => {
  let folder: KubeconfigFolder;
  before(async () => {
    folder = await makeKubeconfigFolder();
  });
  after(() => folder.remove());

  it('reads --kubeconfig before KUBECONFIG before ~/.kube/config', async () => {
    await mkdir(join(folder.folder, '.kube'));
    const write = (file: string) => folder.write({ file, cluster: { server: `https://${file.replace(/.*\//, '')}` } });
    const [flag, variable] = [await write('flag'), await write('variable')];
    await write('.kube/config');
    const environment = { HOME: folder.folder, KUBECONFIG: variable };
    expect((await findTarget({ kubeconfig: flag, environment })).server).to.equal('https://flag');
    expect((await findTarget({ environment })).server).to.equal('https://variable');
    expect((await findTarget({ environment: { HOME: folder.folder } })).server).to.equal('https://config');
  });

  it('names the paths that it read if there is no kubeconfig', async () => {
    const failure = await failureOf(findTarget({ environment: { HOME: '/nowhere' } }), 'no-cluster');
    expect(failure.message).to.contain('/nowhere/.kube/config');
    expect(failure.hint).to.contain('oc login');
    const environment = { KUBECONFIG: ['/absent/1', '/absent/2'].join(delimiter) };
    expect((await failureOf(findTarget({ environment }), 'no-cluster')).message).to.contain('/absent/1 or /absent/2');
    const named = await failureOf(findTarget({ kubeconfig: '/absent/3', environment }), 'not-readable');
    expect(named.hint).to.contain('Name a kubeconfig that exists');
  });

  it('reads UTF-16 with its mark, as PowerShell writes it', async () => {
    const text = await readFile(await folder.write({ file: 'plain', cluster: { server: 'https://a' } }), 'utf8');
    const little = Buffer.from(`\ufeff${text}`, 'utf16le');
    for (const [file, bytes] of Object.entries({ little, big: Buffer.from(little).swap16() })) {
      await writeFile(join(folder.folder, file), bytes);
      const { server } = await findTarget({ kubeconfig: join(folder.folder, file), environment: {} });
      expect(server, file).to.equal('https://a');
    }
  });

  it('merges several files: the first to name something wins, absent ones are passed over', async () => {
    const one = await folder.write({ file: 'one', cluster: { server: 'https://one' }, current: '' });
    const two = await folder.write({ file: 'two', cluster: { server: 'https://two' }, user: { token: 'two' } });
    const other = await folder.write({ file: 'other', cluster: { server: 'https://other' }, prefix: 'other-' });
    const environment = { KUBECONFIG: [one, '/absent', two, other].join(delimiter) };
    const target = await findTarget({ environment });
    expect(target).to.deep.include({
      name: 'test',
      server: 'https://one',
      user: {},
      source: `${one}, ${two}, ${other}`,
    });
    expect((await findTarget({ environment, context: 'other-test' })).server).to.equal('https://other');
    expect((await findTarget({ environment, cluster: 'other-here' })).server).to.equal('https://other');
  });

  it('resolves paths by the folder of their file', async () => {
    const kubeconfig = await folder.write({
      cluster: { server: 'https://a/', 'certificate-authority': 'ca.crt' },
      user: { tokenFile: '/abs/token', 'client-key': 'sub/key', exec: { command: './plugin' } },
    });
    const { cluster, user, server } = await findTarget({ kubeconfig, environment: {} });
    expect(server).to.equal('https://a');
    expect(cluster['certificate-authority']).to.equal(join(folder.folder, 'ca.crt'));
    expect(user).to.deep.equal({
      tokenFile: '/abs/token',
      'client-key': join(folder.folder, 'sub/key'),
      exec: { command: join(folder.folder, 'plugin') },
    });
    const bare = await folder.write({ cluster: { server: 'https://a' }, user: { exec: { command: 'aws' } } });
    expect((await findTarget({ kubeconfig: bare, environment: {} })).user).to.deep.equal({ exec: { command: 'aws' } });
  });

  it('lays flags over it', async () => {
    const own = { 'certificate-authority-data': 'x', 'proxy-url': 'http://own', 'tls-server-name': 'own' };
    const kubeconfig = await folder.write({
      cluster: { server: 'https://a', ...own },
      user: { exec: { command: 'a' } },
      context: { namespace: 'mine' },
    });
    expect(await findTarget({ kubeconfig, environment: {}, server: 'https://b' })).to.deep.include({
      namespace: 'mine',
      cluster: { server: 'https://b', ...own },
    });
    const flags = {
      server: 'https://b',
      certificateAuthority: '/ca',
      namespace: 'other',
      token: 't',
      tlsServerName: 'name',
      insecureSkipTlsVerify: false,
      as: 'carol',
      asGroup: ['g'],
    };
    expect(await findTarget({ kubeconfig, environment: {}, ...flags })).to.deep.include({
      server: 'https://b',
      namespace: 'other',
      cluster: {
        server: 'https://b',
        'certificate-authority': '/ca',
        'tls-server-name': 'name',
        'proxy-url': 'http://own',
      },
      user: { token: 't', as: 'carol', 'as-groups': ['g'] },
    });
    expect((await findTarget({ environment: {}, server: 'https://c' })).server).to.equal('https://c');
  });

  it('verifies by an authority that is named, although the file says not to', async () => {
    const kubeconfig = await folder.write({ cluster: { server: 'https://a', 'insecure-skip-tls-verify': true } });
    const clusterOf = async (flags: object) => (await findTarget({ kubeconfig, environment: {}, ...flags })).cluster;
    expect(await clusterOf({})).to.have.property('insecure-skip-tls-verify', true);
    expect(await clusterOf({ certificateAuthority: '/ca' })).not.to.have.property('insecure-skip-tls-verify');
    expect(await clusterOf({ certificateAuthority: '/ca', insecureSkipTlsVerify: true })).to.have.property(
      'insecure-skip-tls-verify',
      true,
    );
  });

  it('logs in as the flags say, instead of as the file does', async () => {
    const user = { token: 'filed', username: 'filed', password: 'filed', 'client-certificate': '/cert', as: 'alice' };
    const kubeconfig = await folder.write({ cluster: { server: 'https://a' }, user: { ...user, 'as-uid': '1' } });
    const userOf = async (flags: object) => (await findTarget({ kubeconfig, environment: {}, ...flags })).user;
    const kept = { 'client-certificate': '/cert', as: 'alice', 'as-uid': '1' };
    expect(await userOf({ username: 'bob', password: 'pw' })).to.deep.equal({
      ...kept,
      username: 'bob',
      password: 'pw',
    });
    expect(await userOf({ token: 'given' })).to.deep.equal({ ...kept, token: 'given' });
    expect(await userOf({ password: 'new' })).to.include({ username: 'filed', password: 'new', token: 'filed' });
    expect(await userOf({ as: 'carol', asUid: '7' })).to.include({ as: 'carol', 'as-uid': '7' });
    expect(await userOf({ as: 'carol' })).not.to.have.property('as-uid');
    const asUserExtra = ['scopes=a', 'example.com/x=b=c', 'scopes=d'];
    expect((await userOf({ as: 'carol', asUserExtra }))['as-user-extra']).to.deep.equal({
      scopes: ['a', 'd'],
      'example.com/x': ['b=c'],
    });
  });

  it('refuses flags that say nothing together, or two things', async () => {
    const kubeconfig = await folder.write({ cluster: { server: 'https://a' } });
    for (const [flags, words] of [
      [{ token: 't', username: 'u' }, 'two ways to log in'],
      [{ password: 'p' }, 'needs a user name'],
      [{ asUid: '7' }, 'needs a user to impersonate'],
      [{ asGroup: ['g'] }, 'needs a user to impersonate'],
      [{ asUserExtra: ['a=b'] }, 'needs a user to impersonate'],
      [{ as: 'carol', asUserExtra: ['a'] }, '“a” is not an extra field'],
      [{ clientCertificate: '/cert' }, 'a client certificate needs its key'],
      [{ clientKey: '/key' }, 'a client certificate needs its key'],
    ] as const) {
      const failure = await failureOf(findTarget({ kubeconfig, environment: {}, ...flags }), 'usage');
      expect(failure.message).to.contain(words);
    }
  });

  it('uses the service account inside a pod', async () => {
    const environment = { KUBERNETES_SERVICE_HOST: 'fd00::1', KUBERNETES_SERVICE_PORT: '443' };
    expect((await findTarget({ environment })).server).to.equal('https://[fd00::1]:443');
  });

  it('names the contexts there are when one is not, or none is chosen', async () => {
    const kubeconfig = await folder.write({ cluster: { server: 'https://a' } });
    const unknown = await failureOf(findTarget({ kubeconfig, context: 'x', environment: {} }), 'no-cluster');
    expect(unknown.message).to.contain('has no context “x”');
    expect(unknown.hint).to.contain('test');
    const without = await folder.write({ cluster: { server: 'https://a' }, current: '' });
    expect((await failureOf(findTarget({ kubeconfig: without, environment: {} }), 'no-cluster')).hint).to.contain(
      'contexts test',
    );
  });

  it('refuses a file that is not a kubeconfig, and does not quote it', async () => {
    const kubeconfig = await folder.file('broken', 'users:\n- user: {token: sesame\n');
    const failure = await failureOf(findTarget({ kubeconfig, environment: {} }), 'invalid-file');
    expect(failure.message).to.contain(kubeconfig);
    expect(failure.message + String(failure.cause)).to.not.contain('sesame');
    const wrong = await folder.write({ cluster: { server: 'tcp://a' } });
    await failureOf(findTarget({ kubeconfig: wrong, environment: {} }), 'invalid-file');
  });
});
