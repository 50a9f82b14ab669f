import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeAuthority, type Authority } from './certificates.ts';
import { pushRelease } from './content/push.ts';
import { basicUser, startDockerRegistry, type DockerRegistry, type DockerRegistryOptions } from './dockerRegistry.ts';
import { startDockerTokens } from './dockerTokens.ts';
import { requirePeer, run, runSuccessfully } from './peers.ts';
import { buildRelease } from './release/release.ts';

const basic = `Basic ${Buffer.from(`${basicUser.username}:${basicUser.password}`).toString('base64')}`;

describe('startDockerRegistry', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  const release = buildRelease({ components: 4 });
  let authority: Authority;
  let folder: string;
  let registry: DockerRegistry | undefined;

  before(async () => {
    authority = await makeAuthority();
    folder = await mkdtemp(join(tmpdir(), 'registry-test-'));
  });

  afterEach(async () => {
    await registry?.stop();
    registry = undefined;
  });

  after(async () => {
    await authority.remove();
    await rm(folder, { recursive: true, force: true });
  });

  async function start(options?: DockerRegistryOptions): Promise<DockerRegistry> {
    registry = await startDockerRegistry(options);
    return registry;
  }

  function inspect(host: string, ...flags: string[]) {
    return run('skopeo', ['inspect', '--format={{.Digest}}', ...flags, nameAt(host)]);
  }

  function nameAt(host: string): string {
    return `docker://${host}/${release.releaseRepository}:${release.tag}`;
  }

  it('holds a pushed release, whose digest skopeo finds', async () => {
    const { host, url } = await start();
    await pushRelease(release, url);
    expect(await inspect(host, '--tls-verify=false')).to.deep.include({ code: 0, stdout: `${release.digest}\n` });
  });

  it('gives skopeo a whole image', async () => {
    const { host, url } = await start();
    await pushRelease(release, url);
    const { digest = '' } = release.images.get('rhel-coreos-8') ?? {};
    const target = join(folder, 'image');
    const source = `docker://${host}/${release.componentRepository}@${digest}`;
    await runSuccessfully('skopeo', ['copy', '--src-tls-verify=false', source, `oci:${target}:copy`]);
    const blobs = await readdir(join(target, 'blobs/sha256'));
    expect(blobs).to.have.length(4 + 2);
  });

  it('holds a multi-arch release', async () => {
    const multi = buildRelease({ arch: 'multi', components: ['etcd', 'pod'], listOfOne: 'pod', lazy: true });
    const { host, url } = await start();
    await pushRelease(multi, url);
    const source = `docker://${host}/${multi.releaseRepository}:${multi.tag}`;
    const target = `dir:${join(folder, 'multi')}`;
    await runSuccessfully('skopeo', ['copy', '--all', '--src-tls-verify=false', source, target]);
    const raw = await runSuccessfully('skopeo', ['inspect', '--raw', target]);
    expect(JSON.parse(raw)).to.have.property('manifests').with.length(2);
  });

  it('speaks TLS with Basic authentication', async () => {
    const { host, url } = await start({ certificate: await authority.issue(), authentication: 'basic' });
    await pushRelease(release, url, { ca: authority.certificate, authorization: () => basic });
    const credentials = `--creds=${basicUser.username}:${basicUser.password}`;
    expect(await inspect(host, '--tls-verify=false', credentials)).to.include({ code: 0 });
    expect((await inspect(host, '--tls-verify=false', '--no-creds')).stderr).to.match(/unauthorized|authentication/);
    expect((await inspect(host, credentials)).stderr).to.match(/certificate/);
  });

  it('trusts our token server', async () => {
    const tokens = await startDockerTokens({ users: { robot: 'wonderful' } });
    try {
      const { host, url } = await start({ authentication: tokens });
      await pushRelease(release, url, { authorization: tokens.authorization });
      expect(await inspect(host, '--tls-verify=false', '--creds=robot:wonderful')).to.include({ code: 0 });
      expect(tokens.requests).to.deep.include({
        method: 'GET',
        scopes: [`repository:${release.releaseRepository}:pull`],
        user: 'robot',
      });
      expect(await inspect(host, '--tls-verify=false', '--creds=robot:wrong')).not.to.include({ code: 0 });
    } finally {
      await tokens.stop();
    }
  });

  it('serves the content of an earlier one', async () => {
    const storage = join(folder, 'storage');
    const first = await start({ storage });
    await pushRelease(release, first.url);
    await first.stop();
    const { host } = await start({ storage, readOnly: true });
    expect(await inspect(host, '--tls-verify=false')).to.include({ code: 0 });
  });
});
