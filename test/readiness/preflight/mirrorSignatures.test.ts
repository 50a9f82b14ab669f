import { generateKeyPairSync } from 'node:crypto';
import { expect } from 'chai';
import { parse } from 'yaml';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../../lib/content/registry/mirrors.ts';
import { Registries } from '../../../lib/content/registry/registries.ts';
import { checkMirrorSignatures } from '../../../lib/readiness/preflight/mirrorSignatures.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { repositoryOf, startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { imagePolicyFiles, type PolicyOptions } from '../../support/release/imagePolicy.ts';
import { buildRelease, type TestRelease } from '../../support/release/release.ts';

const components = ['cli', 'etcd'];
const otherKey = generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' });

describe('checkMirrorSignatures', () => {
  let server: TestApiServer;
  let connected: StartedCluster;
  let registry: TestRegistry;
  let release: TestRelease;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.21.3' });
    ({ server } = connected);
    registry = await startRegistry();
    release = buildRelease({ version: '4.21.4', components, attachments: () => true });
    release.addTo(registry.content);
    const source = 'quay.io/openshift-release-dev';
    putMirrors({ source, mirrors: [`${registry.host}/openshift-release-dev`] });
  });
  afterEach(async () => {
    await connected.close();
    await registry.stop();
  });

  const putMirrors = (...imageDigestMirrors: readonly Json[]): void => {
    const metadata = { name: 'release' };
    const spec = { imageDigestMirrors };
    server.put({ apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet', metadata, spec });
  };
  const putPolicy = (options?: PolicyOptions): void => {
    server.put(parse(Object.values(imagePolicyFiles(options))[0] ?? '') as Json & { metadata: Json });
  };
  const withoutSignature = (name: string): void => {
    const image = release.images.get(name);
    repositoryOf(registry.content, release.componentRepository).tags.delete(
      attachmentTag(image?.digest ?? release.digest),
    );
  };
  /** Returns the findings about the running release, or about the planned one with its manifests. */
  const find = async (planned?: PolicyOptions): Promise<string[]> => {
    const settings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
    const credentials = new Credentials({ environment: {}, home: '/nonexistent' });
    const { cluster, context } = connected;
    await using registries = new Registries({ settings, credentials, mirrors: new MirrorSets() }, context);
    const { version, pullspec } = release;
    const files = Object.entries(imagePolicyFiles(planned)).map(([name, text]) => [name, Buffer.from(text)] as const);
    const pullspecs = Object.fromEntries([...release.images].map(([name, image]) => [name, image.pullspec]));
    const plan = planned && { components: pullspecs, manifests: new Map(files) };
    const access = { registries, pushCommand: (mirror: string) => `push to ${mirror}` };
    const asked = { version, release: pullspec, ...plan };
    const findings = await checkMirrorSignatures(await surveyCluster(cluster), asked, access, context);
    return findings.map(({ severity, message, advice }) => `${severity} ${message}. ${advice}`);
  };

  it('finds nothing if the mirror has the signatures, and asks nothing without a policy', async () => {
    expect(await find()).to.deep.equal([]);
    expect(registry.requests).to.deep.equal([]);
    putPolicy();
    expect(await find()).to.deep.equal([]);
    expect(registry.requests).to.not.deep.equal([]);
  });

  for (const [title, planned] of [
    ['the running release', undefined],
    ['a planned release whose policy the cluster does not have yet', {}],
  ] as const) {
    it(`names the images of ${title} without a signature, and the command that adds them`, async () => {
      if (!planned) putPolicy();
      withoutSignature('etcd');
      const mirror = `${registry.host}/${release.componentRepository}`;
      expect(await find(planned)).to.deep.equal([
        'blocker lacks valid sigstore signatures of 1 of 2 images of 4.21.4, and nodes refuse to pull these ' +
          'from it: etcd. ' +
          `Push the images again with their signatures: push to ${mirror}`,
      ]);
    });
  }

  it('finds signatures by another key than that of the policy', async () => {
    putPolicy({ key: otherKey });
    const found = await find();
    expect(found).to.have.length(2);
    expect(found.join()).to.match(/signatures of 1 of 1 images .*: release\..* of 2 of 2 images .*: cli, etcd\./);
  });

  it('leaves out images that no policy covers, and images that no mirror has', async () => {
    putPolicy({ scopes: ['quay.io/openshift-release-dev/ocp-release'] });
    withoutSignature('etcd');
    expect(await find()).to.deep.equal([]);
    putPolicy();
    repositoryOf(registry.content, release.componentRepository).manifests.clear();
    expect(await find()).to.deep.equal([]);
  });

  it('asks the first mirror that has the image, from which nodes pull it', async () => {
    putPolicy();
    withoutSignature('etcd');
    await using signed = await startRegistry();
    buildRelease({ version: '4.21.4', components, attachments: () => true }).addTo(signed.content);
    const [source, path] = ['quay.io/openshift-release-dev', 'openshift-release-dev'];
    putMirrors({ source, mirrors: [`${signed.host}/empty`, `${registry.host}/${path}`, `${signed.host}/${path}`] });
    expect(await find()).to.have.length(1);
    putMirrors({ source, mirrors: [`${signed.host}/${path}`, `${registry.host}/${path}`] });
    expect(await find()).to.deep.equal([]);
  });

  it('warns once of a mirror that denies the questions', async () => {
    putPolicy();
    registry.fault(/\/manifests\//, { answer: { status: 403 } });
    const found = await find();
    expect(found).to.have.length(1);
    expect(found[0]).to.match(
      /^warning was not asked for all sigstore signatures: .* does not allow this user to read/,
    );
  });
});
