import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../../lib/content/registry/mirrors.ts';
import { Registries } from '../../../lib/content/registry/registries.ts';
import { checkMirroredStreams } from '../../../lib/readiness/preflight/mirroredStreams.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import type { OSImageStreams } from '../../../lib/release/payload/osImageStreams.ts';
import { repositoryOf, startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { buildRelease, type TestRelease } from '../../support/release/release.ts';
import { operatorCommit, streamRelease } from '../../support/release/streams.ts';

describe('checkMirroredStreams', () => {
  let connected: StartedCluster;
  let registry: TestRegistry;
  let release: TestRelease;
  const pullspecOf = (name: string): string => release.images.get(name)?.pullspec ?? '';
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.22.3' });
    registry = await startRegistry();
    release = buildRelease(streamRelease);
    release.addTo(registry.content);
    const mirrors = [`${registry.host}/openshift-release-dev`];
    const spec = { imageDigestMirrors: [{ source: 'quay.io/openshift-release-dev', mirrors }] };
    connected.server.put({
      apiVersion: 'config.openshift.io/v1',
      kind: 'ImageDigestMirrorSet',
      metadata: { name: 'site' },
      spec,
    });
    const metadata = { name: 'pull-secret', namespace: 'openshift-config' };
    connected.server.put({ apiVersion: 'v1', kind: 'Secret', metadata });
  });
  afterEach(async () => {
    await connected.close();
    await registry.stop();
  });

  const find = async (featureSets = ['Default']): Promise<string[]> => {
    const streams: OSImageStreams = {
      version: release.version,
      featureSets,
      commit: operatorCommit,
      commitSource: 'image',
      problems: [],
      availableStreams: ['rhel-coreos-10', 'rhel-coreos'].map((name) => {
        return { name, osImage: pullspecOf(name), osExtensionsImage: pullspecOf(`${name}-extensions`) };
      }),
    };
    const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
    const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
    const { cluster, context } = connected;
    await using registries = new Registries({ settings, credentials, mirrors: new MirrorSets() }, context);
    const access = { registries, pushCommand: (mirror: string) => `push to ${mirror}` };
    const images = [release.pullspec, ...[...release.images.values()].map(({ pullspec }) => pullspec)];
    const plan = { version: release.version, release: release.pullspec, images, streams };
    const findings = await checkMirroredStreams(cluster, await surveyCluster(cluster), plan, access);
    return findings.map(
      ({ severity, subject, message, advice }) => `${severity} ${subject.name} ${message}. ${advice}`,
    );
  };

  it('finds nothing if a mirror has the release image and all operating system images', async () => {
    expect(await find()).to.deep.equal([]);
  });

  it('asks only the mirrors of the site, which this machine may reach', async () => {
    const mirrors = [`localhost:1/openshift-release-dev/ocp-release`];
    const spec = { imageDigestMirrors: [{ source: 'quay.io/openshift-release-dev/ocp-release', mirrors }] };
    const metadata = { name: 'oc-upgrade-bundle' };
    connected.server.put({ apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet', metadata, spec });
    expect(await find()).to.deep.equal([]);
  });

  it('names the images that the mirrors lack, and the command that pushes them', async () => {
    const { manifests } = repositoryOf(registry.content, release.componentRepository);
    manifests.delete(release.images.get('rhel-coreos-10')?.digest ?? release.digest);
    const mirror = `${registry.host}/openshift-release-dev/ocp-release`;
    expect(await find()).to.deep.equal([
      `blocker ${mirror} lacks 1 of 5 images that machine-config-controller of 5.0.1 reads before it updates nodes: ` +
        `${pullspecOf('rhel-coreos-10')}. Push the release again: push to ${mirror}`,
    ]);
  });

  it('warns of a release image with a layer that is not gzip', async () => {
    const { manifests } = repositoryOf(registry.content, release.releaseRepository);
    const { mediaType, bytes } = manifests.get(release.digest) ?? expect.fail();
    const manifest = JSON.parse(bytes.toString()) as { layers: { mediaType: string }[] };
    const [layer = expect.fail()] = manifest.layers;
    layer.mediaType = 'application/vnd.oci.image.layer.v1.tar+zstd';
    const changed = Buffer.from(JSON.stringify(manifest));
    const digest = digestOf(changed);
    manifests.set(digest, { mediaType, bytes: changed });
    Object.assign(release, { pullspec: release.pullspec.replace(release.digest, digest) });
    expect((await find()).join()).to.match(
      /^warning .* with a layer of application\/vnd.+zstd, and .* reads gzip only\./,
    );
  });

  it('warns if the mirrors cannot be asked', async () => {
    await registry.stop();
    expect((await find()).join()).to.match(/^warning .* was not asked for all of 5 images/);
  });

  it('blocks without a pull secret, and warns of a proxy', async () => {
    const { server } = connected;
    const kind = server.kinds.find((each) => each.kind === 'Secret');
    if (kind) server.objects.delete({ kind, namespace: 'openshift-config', name: 'pull-secret' }, {}, false);
    const proxy = { apiVersion: 'config.openshift.io/v1', kind: 'Proxy', metadata: { name: 'cluster' } };
    server.put({ ...proxy, status: { httpsProxy: 'http://proxy.example.com:3128', noProxy: registry.host } });
    expect((await find()).map((line) => line.split('.')[0])).to.deep.equal([
      'blocker pull-secret does not exist, and machine-config-controller of 5',
      'warning cluster machine-config-controller of 5',
    ]);
  });

  it('asks nothing for a feature set without streams', async () => {
    expect(await find(['TechPreviewNoUpgrade'])).to.deep.equal([]);
    expect(registry.requests).to.deep.equal([]);
  });
});
