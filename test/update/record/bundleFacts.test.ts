import { chmod, readFile, rename, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import type { VerifyTrust } from '../../../lib/bundle/open/signatureCheck.ts';
import { parseManifest } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, type Digest, digestIn } from '../../../lib/content/oci/reference.ts';
import { gatherFacts, readEvidence, readFacts, type BundleFacts } from '../../../lib/update/record/bundleFacts.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { makeSigningKey, signDigest } from '../../support/release/signing.ts';
import { operatorCommit, streamRelease } from '../../support/release/streams.ts';

/** The content of the facts file, with bytes in base64. */
interface Kept {
  digest: string;
  metadata: string;
  signatures: Record<string, string[]>;
  contents: Record<string, string>;
}

describe('the facts of a bundle', () => {
  let made: TestBundle;
  let digest: Digest;
  let trust: VerifyTrust;
  let folder: string;
  let file: string;
  let context: TestContext;

  before(async () => {
    made = await makeBundle();
    digest = digestOf(await readFile(made.path));
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
  });
  after(() => made.remove());
  beforeEach(async () => {
    folder = await makeFolder();
    file = join(folder, 'facts.json');
    context = makeContext();
  });
  afterEach(() => removeFolder(folder));

  const gather = async (): Promise<BundleFacts> => {
    const bundle = await openBundle(made.path, context);
    const facts = await gatherFacts(bundle, digest, file, trust, context);
    await bundle[Symbol.asyncDispose]();
    return facts;
  };
  const recall = (whom = trust): Promise<BundleFacts | undefined> => readFacts(file, digest, whom, context);
  /** Changes the stored facts, as an attacker with access to the disk does. */
  const alter = async (change: (kept: Kept) => void): Promise<void> => {
    const kept = JSON.parse(await readFile(file, 'utf8')) as Kept;
    change(kept);
    await writeFile(file, JSON.stringify(kept));
  };
  const alterMetadata = (change: Record<string, unknown>): Promise<void> =>
    alter((kept) => {
      const metadata = JSON.parse(Buffer.from(kept.metadata, 'base64').toString()) as object;
      kept.metadata = Buffer.from(JSON.stringify({ ...metadata, ...change })).toString('base64');
    });

  it('are kept in a file of root alone, and verified again without the bundle', async () => {
    const facts = await gather();
    expect((await stat(file)).mode & 0o777).to.equal(0o600);
    expect(await recall()).to.deep.equal(facts);
    expect(
      [...facts.signatures].map(([signed, list]) => [signed, list.map(({ fingerprint }) => fingerprint)]),
    ).to.deep.equal([[made.release.digest, [made.key.fingerprint]]]);
    expect(await readFacts(file, digestOf('another bundle'), trust, context)).to.equal(undefined);
  });

  it('have the content that machine config controllers read, for each platform', async () => {
    await using own = await makeBundle({ ...streamRelease, arch: 'multi' });
    await using bundle = await openBundle(own.path, context);
    const trusted = { ...trust, keyrings: [own.keyFile], fingerprints: [own.key.fingerprint] };
    const { streams } = await gatherFacts(bundle, digest, file, trusted, context);
    const { contents } = (await readEvidence(file, context)) ?? expect.fail();
    const childrenIn = (parent: string): Digest[] => {
      const { config, manifests } = parseManifest(contents.get(parent as Digest) ?? expect.fail(parent), parent);
      return [...manifests, ...(config ? [config] : [])].map((child) => child.digest);
    };
    const systems = streams?.availableStreams.flatMap((each) => [each.osImage, each.osExtensionsImage]) ?? [];
    for (const image of [own.release.digest, ...systems.map((system) => digestIn(system))]) {
      const platforms = childrenIn(image);
      expect(platforms, image).to.have.property('length').above(1);
      expect([...contents.keys()]).to.include.members(platforms.flatMap(childrenIn));
    }
  });

  it('have no content with another digest', async () => {
    await gather();
    const [first = expect.fail()] = (await readEvidence(file, context))?.contents.keys() ?? [];
    await alter((kept) => (kept.contents[first] = Buffer.from('another').toString('base64')));
    expect([...((await readEvidence(file, context))?.contents.keys() ?? [])]).not.to.include(first);
  });

  it('have the operating system streams of the release, read again from the kept labels', async () => {
    await using own = await makeBundle(streamRelease);
    await using bundle = await openBundle(own.path, context);
    const trusted = { ...trust, keyrings: [own.keyFile], fingerprints: [own.key.fingerprint] };
    const { streams } = await gatherFacts(bundle, digest, file, trusted, context);
    expect(streams).to.include({ commit: operatorCommit, commitSource: 'image' });
    expect(streams?.availableStreams.map(({ name }) => name)).to.deep.equal(['rhel-10', 'rhel-9']);
    expect((await readFacts(file, digest, trusted, context))?.streams).to.deep.equal(streams);
    // Without the configuration of an operating system, the file counts as damaged.
    const system = own.release.images.get('rhel-coreos')?.digest ?? '';
    await alter((kept) => {
      kept.contents = Object.fromEntries(Object.entries(kept.contents).filter(([name]) => name !== system));
    });
    expect(await readFacts(file, digest, trusted, context)).to.equal(undefined);
  });

  it('of several releases have the gates of each', async () => {
    const files = {
      'gates.yaml': 'kind: ConfigMap\nmetadata:\n  name: admin-gates\ndata:\n  ack-4.19-x: Check this.\n',
    };
    const several = await makeBundle({ version: '4.20.3', earlier: [{ version: '4.19.4', files }] });
    const bundle = await openBundle(several.path, context);
    try {
      const own = { ...trust, keyrings: [several.keyFile], fingerprints: [several.key.fingerprint] };
      const { hops } = await gatherFacts(bundle, digest, file, own, context);
      expect(hops?.map(({ gates }) => gates)).to.deep.equal([[{ name: 'ack-4.19-x', text: 'Check this.' }], []]);
      expect((await readFacts(file, digest, own, context))?.hops).to.deep.equal(hops);
    } finally {
      await bundle[Symbol.asyncDispose]();
      await several.remove();
    }
  });

  it('are refused once the signer is not trusted any more', async () => {
    await gather();
    await failureOf(recall({ ...trust, keyrings: [], fingerprints: [] }), 'untrusted');
  });

  it('have no signature that is not verified, with any content of the file', async () => {
    const facts = await gather();
    const stranger = await makeSigningKey({ type: 'ecc' });
    const own = made.release.digest;
    const forged = await signDigest(stranger, own);
    const other = digestOf('another release');
    await alter(({ signatures }) => {
      signatures[own] = [forged.toString('base64'), ...(signatures[own] ?? []), 'bm90aGluZw=='];
      signatures[other] = [forged.toString('base64')];
    });
    expect((await recall())?.signatures).to.deep.equal(facts.signatures);
    await alter(({ signatures }) => {
      signatures[own] = [forged.toString('base64')];
    });
    await failureOf(recall(), 'untrusted');
    await alter(({ signatures }) => {
      signatures[own] = [];
    });
    await failureOf(recall(), 'unsigned');
  });

  const lies: readonly (readonly [string, Record<string, unknown>])[] = [
    ['version', { version: '4.12.99' }],
    ['architecture', { arch: 's390x' }],
    ['images', { images: [`quay.io/evil/x@sha256:${'e'.repeat(64)}`] }],
    ['components', { components: { etcd: `quay.io/evil/x@sha256:${'e'.repeat(64)}` } }],
    ['earlier versions', { previous: ['4.1.0'] }],
    ['release', { release: `quay.io/openshift-release-dev/ocp-release@sha256:${'e'.repeat(64)}` }],
    ['format', { formatVersion: 9 }],
    ['sizes', { blobs: [{ digest: 'x', size: -1 }] }],
  ];
  for (const [what, change] of lies) {
    it(`are missing if the file has a wrong ${what}`, async () => {
      await gather();
      await alterMetadata(change);
      expect(await recall()).to.equal(undefined);
      expect(context.lines.join('\n')).to.contain('is ignored');
    });
  }

  it('are missing if the payload in the file is another', async () => {
    await gather();
    await alter(({ contents }) => {
      for (const name of Object.keys(contents)) contents[name] = Buffer.from('{}').toString('base64');
    });
    expect(await recall()).to.equal(undefined);
    for (const text of [
      '',
      'null',
      '{"digest":1}',
      `{"digest":"${digest}","metadata":"","signatures":3,"contents":[]}`,
    ]) {
      await writeFile(file, text);
      expect(await recall(), text).to.equal(undefined);
    }
  });

  it('are not read from a file that others may write or read, or through a link', async () => {
    await gather();
    for (const mode of [0o620, 0o604]) {
      await chmod(file, mode);
      expect(await recall(), mode.toString(8)).to.equal(undefined);
    }
    await chmod(file, 0o600);
    await rename(file, `${file}.elsewhere`);
    await symlink(`${file}.elsewhere`, file);
    expect(await recall()).to.equal(undefined);
    expect(context.lines.filter((line) => line.includes('is ignored'))).to.have.length(3);
  });
});
