import { expect } from 'chai';
import type { Descriptor } from '../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../lib/content/oci/reference.ts';
import { readPayload, readProvenance } from '../../lib/release/release.ts';
import { TestContent } from '../support/content/image.ts';
import { makeNoiseLayer } from '../support/content/layers.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { usePayloads } from '../support/release/payloads.ts';
import { buildRelease } from '../support/release/release.ts';
import { itWithSharedData, sharedData } from '../support/sharedData.ts';

const repository = 'quay.io/openshift-release-dev/ocp-release';
const name = 'openshift-release-dev/ocp-release';
const someDigest = digestOf('an image');

describe('readPayload', () => {
  const context = makeContext();
  const warnings = (): string[] => context.lines.filter((line) => line.startsWith('warn: '));
  const { openDirectory, read, readLayers } = usePayloads(context);

  it('returns the facts and the components of a release', async () => {
    const built = buildRelease({
      components: ['etcd', 'cli', 'rhel-coreos-8', 'rhel-coreos-8-extensions', 'machine-os-content'],
    });
    const source = await openDirectory(built.content);
    const descriptor = await source.resolve(built.tag);
    const release = await readPayload(source, descriptor, { repository, version: '4.12.4', arch: 'x86_64' }, context);
    expect(release).to.deep.include({
      version: '4.12.4',
      arch: 'x86_64',
      digest: built.digest,
      descriptor,
      pullspec: built.pullspec,
      previous: ['4.11.28', '4.12.2', '4.12.3'],
      children: [],
      verification: { keys: [], stores: [] },
    });
    expect([...release.osImages].sort()).to.deep.equal([
      'machine-os-content',
      'rhel-coreos-8',
      'rhel-coreos-8-extensions',
    ]);
    const images = [...release.images.values()].map(({ name, pullspec, digest }) => ({ name, pullspec, digest }));
    expect(images).to.deep.equal([...built.images.values()]);
    const etcd = release.images.get('etcd');
    expect(etcd?.reference).to.deep.equal({
      registry: 'quay.io',
      repository: 'openshift-release-dev/ocp-v4.0-art-dev',
      digest: built.images.get('etcd')?.digest,
    });
  });

  it('takes the architecture from the image’s configuration', async () => {
    expect((await read({ arch: 'aarch64', format: 'oci' })).arch).to.equal('aarch64');
    expect((await failureOf(read({ arch: 's390x' }, { arch: 'x86_64' }))).message).to.match(
      /is of architecture s390x, not x86_64/,
    );
  });

  it('reads a multi-architecture release by its list, and exposes the children', async () => {
    const built = buildRelease({ arch: 'multi', architectures: ['aarch64', 'x86_64', 's390x'] });
    const source = await openDirectory(built.content);
    const release = await readPayload(source, await source.resolve(built.tag), { repository, arch: 'multi' }, context);
    expect(release).to.include({ arch: 'multi', digest: built.digest, pullspec: built.pullspec });
    expect(release.children.map(({ digest }) => digest)).to.deep.equal(built.children);
    expect(release.children.map(({ platform }) => platform?.architecture)).to.deep.equal(['arm64', 'amd64', 's390x']);
  });

  it('ignores attestations in a list, and accepts a list of one image', async () => {
    const built = buildRelease();
    const content = new TestContent();
    built.addTo(content.content);
    const source = await openDirectory(content.content);
    const platform = { architecture: 'amd64', os: 'linux' };
    const image: Descriptor = { ...(await source.resolve(built.digest)), platform };
    const attestation = { ...image, digest: someDigest, platform: { architecture: 'unknown', os: 'unknown' } };
    const list = content.addList(name, [attestation, image], 'oci');
    const release = await readPayload(await openDirectory(content.content), list, { repository }, context);
    expect(release).to.deep.include({ arch: 'x86_64', digest: list.digest, children: [image] });
  });

  it('refuses a payload of another version', async () => {
    const error = await failureOf(read({ version: '4.12.5' }, { version: '4.12.4' }));
    expect(error.code).to.equal('invalid-release');
    expect(error.message).to.match(/is of version 4\.12\.5, not 4\.12\.4$/);
  });

  it('refuses an image that is no payload', async () => {
    const error = await failureOf(readLayers([makeNoiseLayer('x', 5000)]));
    expect(error).to.include({ code: 'invalid-release', hint: 'It is an image, but not a release payload.' });
  });

  describe('of the verification ConfigMap', () => {
    it('gives the keys and the stores', async () => {
      const stores = ['https://example.com/a', 'http://example.com/b'];
      const { verification } = await read({ verification: { publicKey: 'a key', stores } });
      expect(verification.stores).to.deep.equal(stores);
      expect(verification.keys.map(({ content }) => content)).to.deep.equal(['a key']);
    });

    it('does not let a payload choose local files as stores', async () => {
      const { verification } = await read({
        verification: { publicKey: 'a key', stores: ['file:///etc', '/etc', 'https://x.example'] },
      });
      expect(verification.stores).to.deep.equal(['https://x.example']);
      expect(warnings()[0]).to.match(/names a signature store that is not http/);
    });

    it('passes over manifests that are not YAML', async () => {
      const text = 'release.openshift.io/verification-config-map: [';
      const { verification } = await read({ files: { '0000_00_bad.yaml': text } });
      expect(verification).to.deep.equal({ keys: [], stores: [] });
      expect(warnings()[0]).to.match(/^warn: 0000_00_bad\.yaml in the release payload is not YAML/);
    });

    itWithSharedData('reads the one of a real payload, which has a key twice', async () => {
      const text = sharedData('trust/cluster-update-keys_configmap.yaml').toString();
      const { verification } = await read({ files: { '0000_90_cluster-update-keys_configmap.yaml': text } });
      expect(verification.keys).to.have.length(1);
      expect(verification.keys[0]?.name).to.match(/^verifier-public-key-redhat of 0000_90/);
      expect(verification.stores).to.deep.equal([
        'https://storage.googleapis.com/openshift-release/official/signatures/openshift/release',
        'https://mirror.openshift.com/pub/openshift-v4/signatures/openshift/release',
      ]);
      expect(warnings()).to.deep.equal([]);
    });
  });
});

describe('readProvenance', () => {
  const read = (...versions: string[]): ReturnType<typeof readProvenance> => {
    const tags = versions.map((text, index) => ({
      name: `component-${index}`,
      annotations: { 'io.openshift.build.versions': text },
    }));
    return readProvenance(new Map([['image-references', Buffer.from(JSON.stringify({ spec: { tags } }))]]));
  };

  it('names each operating system of a release with two, once', () => {
    const [el9, el10] = ['9.8.20260419-0', '10.2.20260420-0'];
    const { versions } = read(`machine-os=${el9}`, `machine-os=${el10},kubernetes=1.35.1`, `machine-os=${el9}`);
    expect(versions).to.deep.equal({ 'machine-os': `${el9}, ${el10}`, kubernetes: '1.35.1' });
  });

  it('leaves out versions of another form', () => {
    expect(read('machine-os=<b>', 'Kubernetes=1', 'x', 'constructor=1').versions).to.deep.equal({ constructor: '1' });
  });
});
