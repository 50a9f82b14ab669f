import { expect } from 'chai';
import { makeBundle, type TestBundle } from '../../../support/content/bundle.ts';
import { created } from '../../../support/content/layers.ts';
import { executeProgram } from '../../../support/program/execution.ts';
import { extraImage } from '../../../support/release/extraImage.ts';

interface CycloneDx {
  readonly components: readonly {
    readonly 'bom-ref': string;
    readonly name: string;
    readonly purl: string;
    readonly hashes: readonly { readonly content: string }[];
    readonly licenses?: readonly unknown[];
    readonly externalReferences?: readonly { readonly url: string; readonly comment: string }[];
  }[];
  readonly dependencies: readonly { readonly dependsOn: readonly string[] }[];
}

interface Spdx {
  readonly packages: readonly {
    readonly SPDXID: string;
    readonly name: string;
    readonly sourceInfo?: string;
    readonly licenseDeclared: string;
    readonly licenseComments?: string;
    readonly checksums?: readonly { readonly checksumValue: string }[];
  }[];
  readonly relationships: readonly { readonly relatedSpdxElement: string }[];
}

describe('inspect --sbom', () => {
  const extra = extraImage({ labels: { 'org.opencontainers.image.licenses': 'Apache-2.0 AND MIT' } });
  const other = extraImage({ seed: 'other', tag: 'v2', labels: { License: 'ASL 2.0, and others' } });
  let bundle: TestBundle;
  before(async () => {
    bundle = await makeBundle({ extraImages: [extra, other] });
  });
  after(() => bundle.remove());

  const bill = async (format: string, more: NodeJS.ProcessEnv = {}): Promise<unknown> => {
    const { code, stdout, stderr } = await executeProgram(
      'oc-adm_upgrade_bundle',
      ['inspect', bundle.path, `--sbom=${format}`],
      { env: { ...process.env, ...more } },
    );
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout);
  };
  const digests = (): string[] =>
    [
      bundle.release.digest,
      ...[...bundle.release.images.values()].map(({ digest }) => digest),
      extra.digest,
      other.digest,
    ]
      .map((digest) => digest.replace('sha256:', ''))
      .sort();

  it('lists each image with its digest, source and package URL as CycloneDX', async () => {
    const { components, dependencies } = (await bill('cyclonedx')) as CycloneDx;
    expect(components.map(({ hashes }) => hashes[0]?.content).sort()).to.deep.equal(digests());
    const cvo = components.find(({ name }) => name === 'cluster-version-operator');
    const image = bundle.release.images.get('cluster-version-operator');
    const [repository = '', digest = ''] = (image?.pullspec ?? '').split('@');
    const name = repository.split('/').at(-1) ?? '';
    const url = `repository_url=${encodeURIComponent(repository)}`;
    expect(cvo?.purl).to.equal(`pkg:oci/${name}@${encodeURIComponent(digest)}?${url}`);
    expect(cvo?.externalReferences?.[0]?.url).to.equal('https://github.com/openshift/cluster-version-operator');
    expect(cvo?.externalReferences?.[0]?.comment).to.match(/^commit [0-9a-f]{40}$/);
    expect(new Set(dependencies[0]?.dependsOn)).to.deep.equal(new Set(components.map((each) => each['bom-ref'])));
    const others = [extra, other].map((each) =>
      components.find(({ hashes }) => hashes[0]?.content === each.digest.slice('sha256:'.length)),
    );
    expect(others.map((each) => each?.licenses)).to.deep.equal([
      [{ expression: 'Apache-2.0 AND MIT' }],
      [{ license: { name: 'ASL 2.0, and others' } }],
    ]);
    for (const each of others) expect(each).to.not.have.property('externalReferences');
    expect(cvo).to.not.have.property('licenses');
  });

  it('lists the same images as SPDX, each with an identifier of its own', async () => {
    const { packages, relationships } = (await bill('spdx')) as Spdx;
    const [release, ...images] = packages;
    expect(release?.name).to.equal('OpenShift');
    expect(images.map(({ checksums }) => checksums?.[0]?.checksumValue).sort()).to.deep.equal(digests());
    expect(new Set(packages.map(({ SPDXID }) => SPDXID)).size).to.equal(packages.length);
    expect(relationships.map(({ relatedSpdxElement }) => relatedSpdxElement)).to.deep.equal(
      packages.map(({ SPDXID }) => SPDXID),
    );
    const declared = images.filter(({ licenseDeclared }) => licenseDeclared !== 'NOASSERTION');
    expect(declared.map(({ licenseDeclared }) => licenseDeclared)).to.deep.equal(['Apache-2.0 AND MIT']);
    expect(images.flatMap(({ licenseComments = [] }) => licenseComments)).to.deep.equal(['ASL 2.0, and others']);
    expect(images.filter(({ sourceInfo }) => / at commit [0-9a-f]{40}$/.test(sourceInfo ?? ''))).to.have.length(
      bundle.release.images.size,
    );
  });

  it('has the time of the release, or of the build that it belongs to, and so the same bytes each time', async () => {
    const timeOf = async (format: string, more: NodeJS.ProcessEnv): Promise<string | undefined> => {
      const { metadata, creationInfo } = (await bill(format, more)) as {
        metadata?: { timestamp: string };
        creationInfo?: { created: string };
      };
      return metadata?.timestamp ?? creationInfo?.created;
    };
    for (const format of ['cyclonedx', 'spdx']) {
      expect(await timeOf(format, { SOURCE_DATE_EPOCH: '' })).to.equal(created);
      expect(await timeOf(format, { SOURCE_DATE_EPOCH: '1700000000' })).to.equal('2023-11-14T22:13:20Z');
    }
  });
});
