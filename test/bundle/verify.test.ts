import { execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFile, link, mkdir, readdir, rename, rm, symlink, truncate, unlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { getCACertificates } from 'node:tls';
import { expect } from 'chai';
import { metadataPath, type BundleMetadata } from '../../lib/bundle/metadata/metadata.ts';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { verifyBundle, type VerifyReport } from '../../lib/bundle/verify.ts';
import { formatManifest } from '../../lib/config/manifest.ts';
import { mirrorSetManifest } from '../../lib/config/mirrorSets.ts';
import { updateServiceManifests } from '../../lib/config/updateService.ts';
import { Archive } from '../../lib/content/archive/archive.ts';
import { mediaTypes } from '../../lib/content/oci/descriptor.ts';
import { digestOf, hexOf, type Digest } from '../../lib/content/oci/reference.ts';
import { directoryLock } from '../../lib/content/store/directory.ts';
import { repack, rewrite, type UnpackedBundle } from '../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { makeContext, type TestContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { extraImage } from '../support/release/extraImage.ts';
import { makeSigningKey, signatureStore, signDigest, writeSignatureStore } from '../support/release/signing.ts';

type VerifyOptions = Parameters<typeof verifyBundle>[1];

const folder = 'v2/openshift/release';
const extra = extraImage();

let bundle: TestBundle;
let copies = 0;
const copyPath = (): string => join(bundle.folder, `copy-${(copies += 1)}.tar`);
const trusting = (more: Partial<VerifyOptions['trust']> = {}, of: TestBundle = bundle): VerifyOptions => ({
  trust: {
    keyrings: [of.keyFile],
    fingerprints: [of.key.fingerprint],
    allowUnsigned: false,
    fetchFile: () => Promise.reject(new Error('nothing should be fetched')),
    ...more,
  },
});

async function check(path: string, options = trusting(), context: TestContext = makeContext()): Promise<VerifyReport> {
  await using opened = await openBundle(path, context, { tolerant: true });
  return await verifyBundle(opened, options, context);
}

/** Returns the problems as `kind subject`, each kind once. */
function sortsOf({ problems }: VerifyReport): string[] {
  return [...new Set(problems.map(({ kind, subject }) => `${kind} ${subject}`))].sort();
}

const messagesOf = ({ problems }: VerifyReport): string => problems.map(({ message }) => message).join('\n');

/** Checks a well-formed copy with a change. */
async function checkChanged(
  change: (unpacked: UnpackedBundle) => void,
  options?: VerifyOptions,
): Promise<VerifyReport> {
  return check(await repack(bundle.path, copyPath(), change), options);
}

/** Checks a copy with one changed byte, `offset` bytes after the beginning of an entry or its content. */
async function checkFlipped(path: string, of: 'header' | 'content' | 'padding', offset: number): Promise<VerifyReport> {
  const archive = await Archive.open(bundle.path, makeContext());
  const entry = archive.entries.get(path) ?? { start: 0, size: 0 };
  await archive.close();
  const position = { header: entry.start - 512, content: entry.start, padding: entry.start + entry.size }[of] + offset;
  const copy = await rewrite(bundle.path, copyPath(), (bytes) => {
    bytes.writeUInt8(bytes.readUInt8(position) ^ 0x01, position);
    return bytes;
  });
  return check(copy);
}

const componentOf = (name: string): Digest => bundle.release.images.get(name)?.digest ?? 'sha256:';
const configPath = (of: TestBundle = bundle): string =>
  `config/signature/sha256/${hexOf(of.release.digest).slice(0, 16)}.yaml`;

describe('verifyBundle', () => {
  let names: string[];
  let blobPath: string;

  before(async () => {
    bundle = await makeBundle({ layers: 1, baseLayers: 1, extraImages: [extra] });
    names = [...bundle.release.images.keys()];
    blobPath = `${folder}/blobs/${bundle.result.metadata.blobs.at(-1)?.digest ?? ''}`;
  });
  after(() => bundle.remove());

  it('finds a bundle good that is as it was made', async () => {
    const context = makeContext();
    const report = await check(bundle.path, trusting(), context);
    expect(report.problems).to.deep.equal([]);
    expect(report).to.deep.include({
      version: '4.12.4',
      arch: 'x86_64',
      release: bundle.release.pullspec,
      digest: bundle.result.digest,
      confirmedBy: [`${bundle.path}.sha256`],
      images: { expected: 6, whole: 6 },
      blobs: bundle.result.metadata.blobs.length,
      bytes: bundle.result.metadata.size,
    });
    expect(report.signatures.map(({ fingerprint }) => fingerprint)).to.deep.equal([bundle.key.fingerprint]);
    const [plan] = context.events;
    expect(plan).to.deep.include({ kind: 'plan', bytes: report.bytes });
    const seen = context.events.reduce((sum, event) => sum + (event.kind === 'bytes' ? event.bytes : 0), 0);
    expect(seen).to.equal(report.bytes);
  });

  it('stays good if it is packed again unchanged', async () => {
    const copy = await repack(bundle.path, copyPath(), () => undefined);
    const report = await check(copy);
    expect(report.problems).to.deep.equal([]);
    expect(report.digest).to.equal(bundle.result.digest);
  });

  describe('for a tar that was damaged', () => {
    it('finds one changed byte anywhere', async () => {
      const manifest = `${folder}/manifests/${componentOf(names[0] ?? '')}`;
      expect(sortsOf(await checkFlipped(blobPath, 'content', 0))).to.deep.equal(['corrupt blob']);
      expect(sortsOf(await checkFlipped(manifest, 'content', 40))).to.deep.equal(['corrupt manifest']);
      expect(sortsOf(await checkFlipped(blobPath, 'header', 3))).to.include.members(['corrupt bundle', 'missing blob']);
      expect(sortsOf(await checkFlipped(blobPath, 'padding', 1))).to.deep.equal(['corrupt bundle']);
      expect(sortsOf(await checkFlipped(configPath(), 'content', 30))).to.include('corrupt file');
    });

    it('names the images that need corrupt content', async () => {
      const name = names[1] ?? '';
      const report = await checkFlipped(`${folder}/manifests/${componentOf(name)}`, 'content', 40);
      expect(report.problems).to.have.length(1);
      expect(report.problems[0]).to.deep.include({ what: componentOf(name), images: [name] });
      expect(report.images).to.deep.equal({ expected: 6, whole: 5 });
    });

    it('finds every byte of metadata.json that matters', async () => {
      const text = JSON.stringify(bundle.result.metadata, null, 2);
      const inVersion = text.indexOf('4.12.4') + 5;
      expect(sortsOf(await checkFlipped(metadataPath, 'content', inVersion))).to.include('inconsistent metadata');
      const inBlobs = text.indexOf('"blobs"') + text.slice(text.indexOf('"blobs"')).indexOf('"size": ') + 8;
      expect(sortsOf(await checkFlipped(metadataPath, 'content', inBlobs))).to.deep.equal(['inconsistent metadata']);
    });

    it('reports the number of good bytes of a truncated tar, and the missing blobs', async () => {
      const size = bundle.result.metadata.size;
      const copy = await rewrite(bundle.path, copyPath(), (bytes) => bytes.subarray(0, Math.floor(size * 0.65)));
      const report = await check(copy);
      expect(sortsOf(report)).to.deep.equal(['missing blob', 'truncated blob', 'truncated bundle']);
      expect(report.digest).to.equal(undefined);
      expect(messagesOf(report)).to.match(/cut short: .* \(\d+%\) can be used/);
      expect(
        report.problems.filter(({ kind }) => kind === 'missing').every(({ images }) => images.length > 0),
      ).to.equal(true);
    });

    it('finds a tar cut anywhere not good', async () => {
      const size = bundle.result.metadata.size;
      for (const length of [size - 1, size - 513, size - 512, size - 1024, size - 1500, Math.floor(size / 3)]) {
        const copy = await rewrite(bundle.path, copyPath(), (bytes) => bytes.subarray(0, length));
        expect((await check(copy)).problems, String(length)).not.to.be.empty;
      }
      const copy = await rewrite(bundle.path, copyPath(), (bytes) => bytes.subarray(0, 700));
      await failureOf(check(copy), 'invalid-bundle');
    });

    it('finds bytes after the end of the tar', async () => {
      const copy = await rewrite(bundle.path, copyPath(), (bytes) => Buffer.concat([bytes, Buffer.from('more')]));
      const report = await check(copy);
      expect(sortsOf(report)).to.deep.equal(['unexpected bundle']);
      expect(report.digest).not.to.equal(bundle.result.digest);
    });

    it('finds an entry that is there twice', async () => {
      const copy = await rewrite(bundle.path, copyPath(), (bytes) => {
        const end = bytes.length - 1024;
        return Buffer.concat([bytes.subarray(0, end), bytes.subarray(0, end)]);
      });
      expect(messagesOf(await check(copy))).to.include('metadata.json twice');
    });

    it('compares the digest of the whole with .sha256 and with a given digest', async () => {
      const copy = await repack(bundle.path, copyPath(), ({ metadata }) => Object.assign(metadata, { tool: 'other' }));
      expect((await check(copy)).problems).to.deep.equal([]);
      await writeFile(
        `${copy}.sha256`,
        `${hexOf(bundle.result.digest ?? 'sha256:')}  ${copy.split('/').at(-1) ?? ''}\n`,
      );
      const expected = [{ digest: digestOf('x'), source: '--digest' }];
      const report = await check(copy, { ...trusting(), expected });
      expect(sortsOf(report)).to.deep.equal(['corrupt bundle']);
      expect(messagesOf(report)).to.include(`${copy}.sha256 says`).and.to.include('--digest says');
      expect(report.confirmedBy).to.deep.equal([]);
    });
  });

  describe('for a tar of another tool', () => {
    it('finds content that is missing', async () => {
      const name = names[0] ?? '';
      const report = await checkChanged(({ files }) => {
        files.delete(`${folder}/manifests/${componentOf(name)}`);
        files.delete(blobPath);
      });
      expect(sortsOf(report)).to.deep.equal(['missing blob', 'missing manifest']);
      expect(report.problems.find(({ subject }) => subject === 'manifest')?.images).to.deep.equal([name]);
    });

    it('finds a sigstore attachment that lost its blob', async () => {
      const name = names[0] ?? '';
      const report = await checkChanged(({ files }) => {
        const target = String(files.get(`${folder}/manifests/sha256-${hexOf(componentOf(name))}.sig`));
        const manifest = JSON.parse(String(files.get(`${folder}/manifests/${target}`))) as {
          layers: { digest: string }[];
        };
        files.delete(`${folder}/blobs/${manifest.layers[0]?.digest ?? ''}`);
      });
      expect(sortsOf(report)).to.deep.equal(['missing blob']);
      expect(report.problems[0]?.images).to.deep.equal([`the sigstore signature of ${name}`]);
    });

    it('finds a sigstore attachment that was taken away with all that belongs to it', async () => {
      const report = await checkChanged(({ files }) => {
        const path = `${folder}/manifests/sha256-${hexOf(componentOf(names[0] ?? ''))}.sig`;
        const target = String(files.get(path));
        const manifest = JSON.parse(String(files.get(`${folder}/manifests/${target}`))) as {
          layers: { digest: string }[];
        };
        for (const gone of [path, `${folder}/manifests/${target}`]) files.delete(gone);
        files.delete(`${folder}/blobs/${manifest.layers[0]?.digest ?? ''}`);
      });
      expect(sortsOf(report)).to.include('inconsistent metadata');
    });

    it('finds a manifest that is whole and no manifest', async () => {
      const content = Buffer.from('{"schemaVersion":1}');
      const digest = digestOf(content);
      const report = await checkChanged((unpacked) => {
        unpacked.files.set(`${folder}/manifests/${digest}`, content);
        const pullspec = `quay.io/example/odd@${digest}`;
        unpacked.files.set(`${folder}/manifests/4.12.4-x86_64-extra-odd-${digest.slice(7, 19)}`, digest);
        const { images, extraImages } = unpacked.metadata;
        unpacked.metadata = {
          ...unpacked.metadata,
          images: [...images, pullspec],
          extraImages: [...extraImages, pullspec],
        };
      });
      expect(sortsOf(report)).to.deep.equal(['inconsistent manifest']);
    });

    it('is not kept busy by lists that name each other over and over', async () => {
      const files = new Map<string, Buffer>();
      let digest = componentOf(names[0] ?? '');
      for (let depth = 0; depth < 64; depth += 1) {
        const entry = { mediaType: mediaTypes.ociIndex, digest, size: 1 };
        const list = { schemaVersion: 2, mediaType: mediaTypes.ociIndex, manifests: [entry, entry, entry] };
        const content = Buffer.from(JSON.stringify(list));
        digest = digestOf(content);
        files.set(`${folder}/manifests/${digest}`, content);
      }
      const pullspec = `quay.io/example/deep@${digest}`;
      const report = await checkChanged((unpacked) => {
        for (const [path, content] of files) unpacked.files.set(path, content);
        unpacked.files.set(`${folder}/manifests/4.12.4-x86_64-extra-deep-${digest.slice(7, 19)}`, digest);
        const { images, extraImages } = unpacked.metadata;
        unpacked.metadata = {
          ...unpacked.metadata,
          images: [...images, pullspec],
          extraImages: [...extraImages, pullspec],
        };
      });
      expect(report.problems).to.deep.equal([]);
      expect(report.images.whole).to.equal(7);
    });

    it('shows no control characters of a bundle', async () => {
      const report = await checkChanged(({ files }) => files.set('\u001b[31mred', Buffer.from('x')));
      expect(messagesOf(report))
        .to.include('an entry has characters other than')
        .and.not.to.match(/red|\u001b/);
    });
  });

  it('lists problems in any number', async () => {
    await using opened = await openBundle(bundle.path, makeContext());
    const scan: typeof opened.scan = async (scanner) => {
      const digests = await opened.scan(scanner);
      for (let count = 0; count < 150_000; count += 1) scanner({ path: `x${count}`, size: 0 }, Buffer.alloc(0));
      return digests;
    };
    expect((await verifyBundle({ ...opened, scan }, {}, makeContext())).problems).to.have.lengthOf(150_000);
  });

  describe('for a metadata.json that lies', () => {
    const lie = (change: (metadata: BundleMetadata) => Partial<BundleMetadata>): Promise<VerifyReport> =>
      checkChanged((unpacked) => {
        unpacked.metadata = { ...unpacked.metadata, ...change(unpacked.metadata) };
      });

    it('is the only one to be blamed for it', async () => {
      const component = componentOf(names[0] ?? '');
      const { digest } = bundle.release;
      const lies: Partial<BundleMetadata>[] = [
        ...[digestOf('another release'), component].map((other) => ({ release: `quay.io/a/b@${other}` })),
        { version: '4.12.5' },
        { arch: 's390x' },
        { previous: ['4.0.0'] },
        { osImages: [] },
        { blobs: [] },
        { signatures: {} },
        { signatures: { [digest]: [{ fingerprint: 'A'.repeat(40), signer: 'x' }] } },
        { signatures: { ...bundle.result.metadata.signatures, [component]: [{ fingerprint: 'A', signer: 'x' }] } },
      ];
      for (const change of lies) {
        const report = await lie(() => change);
        expect(sortsOf(report), JSON.stringify(change)).to.deep.equal(['inconsistent metadata']);
        expect(report.release).to.include(digest);
        expect(report.version).to.equal('4.12.4');
      }
    });

    it('finds a component that was dropped, added or replaced', async () => {
      const [first = '', second = '', third = ''] = names;
      const report = await lie(({ components }) => {
        const { [first]: dropped = '', [second]: moved = '', ...rest } = components;
        return { components: { ...rest, [second]: dropped, 'not-there': moved } };
      });
      const messages = messagesOf(report);
      expect(sortsOf(report)).to.deep.equal(['inconsistent metadata']);
      expect(messages).to.include(`leaves out the component ${first}`).and.to.include('a component not-there');
      expect(messages).to.include(`the component ${second} another image`).and.not.to.include(third);
    });

    it('still looks for the component that it hides', async () => {
      const name = names[0] ?? '';
      const report = await checkChanged((unpacked) => {
        const { [name]: hidden = '', ...components } = unpacked.metadata.components;
        const images = unpacked.metadata.images.filter((image) => image !== hidden);
        unpacked.metadata = { ...unpacked.metadata, components, images };
        unpacked.files.delete(`${folder}/manifests/${componentOf(name)}`);
      });
      expect(sortsOf(report)).to.include('missing manifest');
    });

    it('finds an image that is added without being an extra image', async () => {
      const report = await lie(({ images }) => ({ images: [...images, `quay.io/a/b@${digestOf('x')}`] }));
      expect(sortsOf(report)).to.deep.equal(['inconsistent metadata']);
    });
  });

  describe('for signatures', () => {
    it('finds a missing signature, also if unsigned releases are allowed', async () => {
      const change = ({ files }: UnpackedBundle): void => void files.delete(configPath());
      const report = await checkChanged(change);
      expect(sortsOf(report)).to.deep.equal(['unsigned signature']);
      expect(report.signatures).to.deep.equal([]);
      const allowed = await checkChanged(change, trusting({ allowUnsigned: true }));
      expect(sortsOf(allowed)).to.deep.equal(['missing signature']);
    });

    it('asks a signature store only when one is given', async () => {
      const copy = await repack(bundle.path, copyPath(), (unpacked) => {
        unpacked.files.delete(configPath());
        unpacked.metadata = { ...unpacked.metadata, signatures: {} };
      });
      const store = join(bundle.folder, 'store');
      const signature = await signDigest(bundle.key, bundle.release.digest);
      await writeSignatureStore(
        bundle.folder,
        signatureStore(new Map([[bundle.release.digest, [signature]]]), 'store/'),
      );
      expect((await check(copy, trusting({ store }))).problems).to.deep.equal([]);
      expect(sortsOf(await check(copy))).to.deep.equal(['unsigned signature']);
    });

    it('finds one of another release', async () => {
      await using other = await makeBundle({ version: '4.12.5', seed: 'other' });
      const archive = await Archive.open(other.path, makeContext());
      const content = await archive.read(configPath(other));
      await archive.close();
      const report = await checkChanged(({ files }) => files.set(configPath(other), content));
      expect(sortsOf(report)).to.deep.equal(['unexpected file']);
      const swapped = await checkChanged(({ files }) => {
        files.delete(configPath());
        files.set(configPath(other), content);
      });
      expect(sortsOf(swapped)).to.deep.equal(['unexpected file', 'unsigned signature']);
    });

    it('finds additional objects in config that would be applied to a cluster', async () => {
      const object = 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n';
      const report = await checkChanged(({ files }) => {
        files.set('config/more.yaml', Buffer.from(object));
        files.set(configPath(), Buffer.from(`${String(files.get(configPath()))}---\n${object}`));
      });
      expect(sortsOf(report)).to.deep.equal(['unexpected file']);
      expect(report.problems).to.have.length(2);
      const labelled = await checkChanged(({ files }) => {
        const text = String(files.get(configPath()));
        files.set(
          configPath(),
          Buffer.from(text.replace('namespace: openshift-config-managed', 'namespace: openshift-config')),
        );
      });
      expect(sortsOf(labelled)).to.deep.equal(['unexpected file']);
    });

    it('lets a mirror directory, and no tar, have the mirror set and the update service of a mirror', async () => {
      const repository = 'registry.test/openshift/release';
      const source = `quay.io/${bundle.release.componentRepository}`;
      const manifests = [
        mirrorSetManifest('idms', [{ source, mirrors: [repository] }]),
        ...updateServiceManifests({
          releases: repository,
          graphDataImage: `${repository}@${bundle.release.digest}`,
          certificateAuthority: getCACertificates('default')[0],
        }),
      ];
      const namespace = 'apiVersion: v1\nkind: Namespace\nmetadata:\n  name: x\n';
      const root = await bundle.unpack();
      for (const folder of ['mirrors', 'update-service']) await mkdir(join(root, 'config', folder));
      for (const { path, object } of manifests) await writeFile(join(root, path), formatManifest(object));
      const context = makeContext();
      expect((await check(root, trusting(), context)).problems).to.deep.equal([]);
      for (const { path } of manifests) expect(context.lines.join('\n')).to.include(path);
      await writeFile(join(root, 'config/update-service/more.yaml'), namespace);
      expect(sortsOf(await check(root))).to.deep.equal(['unexpected file']);
      const inTar = await checkChanged(({ files }) => {
        for (const { path, object } of manifests) files.set(path, Buffer.from(formatManifest(object)));
      });
      expect(inTar.problems.map(({ what }) => what)).to.have.members(manifests.map(({ path }) => path));
    });

    it('does not accept a key that is not trusted', async () => {
      const report = await check(bundle.path, trusting({ fingerprints: [] }));
      expect(sortsOf(report)).to.deep.equal(['untrusted signature']);
      expect(report.problems[0]?.hint).to.include(bundle.key.fingerprint);
      const other = await makeSigningKey();
      const strange = await check(bundle.path, trusting({ fingerprints: [other.fingerprint] }));
      expect(sortsOf(strange)).to.deep.equal(['untrusted signature']);
    });

    it('finds the key in the release itself, when its fingerprint is trusted', async () => {
      expect((await check(bundle.path, trusting({ keyrings: [] }))).problems).to.deep.equal([]);
    });

    it('accepts the signature of an expired key', async () => {
      const key = await makeSigningKey({ expired: true });
      const signature = (await signDigest(key, bundle.release.digest)).toString('base64');
      const keyFile = join(bundle.folder, 'expired.asc');
      await writeFile(keyFile, key.publicKey);
      const copy = await repack(bundle.path, copyPath(), (unpacked) => {
        const { files, metadata } = unpacked;
        const text = String(files.get(configPath()));
        const signed = text
          .replace(/(-1: ?).+/, `$1${signature}`)
          .replace(/(signed-by: ).+/, (_, name: string) => name + key.fingerprint);
        files.set(configPath(), Buffer.from(signed));
        const signatures = { [bundle.release.digest]: [{ fingerprint: key.fingerprint, signer: 'x' }] };
        unpacked.metadata = { ...metadata, signatures };
      });
      const report = await check(copy, trusting({ keyrings: [keyFile], fingerprints: [key.fingerprint] }));
      expect(report.problems).to.deep.equal([]);
    });

    it('takes an unsigned release when that is allowed, with a warning', async () => {
      await using unsigned = await makeBundle({ signed: false });
      expect(sortsOf(await check(unsigned.path))).to.deep.equal(['unsigned signature']);
      const context = makeContext();
      const report = await check(unsigned.path, trusting({ allowUnsigned: true }), context);
      expect(report.problems).to.deep.equal([]);
      expect(context.lines.join()).to.include('warn: no signature');
    });
  });

  describe('for a multi-architecture release', () => {
    let multi: TestBundle;
    before(async () => {
      multi = await makeBundle({ arch: 'multi' });
    });
    after(() => multi.remove());

    it('follows the lists, and judges the signatures of the list and of its images', async () => {
      const report = await check(multi.path, trusting({}, multi));
      expect(report.problems).to.deep.equal([]);
      expect(report).to.deep.include({ arch: 'multi', images: { expected: 5, whole: 5 } });
      expect(report.signatures.map(({ digest }) => digest)).to.have.members([
        multi.release.digest,
        ...multi.release.children,
      ]);
    });

    it('finds an image of a list missing, and a signature of one', async () => {
      const [child = 'sha256:' as const, other = 'sha256:' as const] = multi.release.children;
      const path = join(multi.folder, 'changed.tar');
      await repack(multi.path, path, ({ files }) => {
        files.delete(`${folder}/manifests/${other}`);
        files.delete(`config/signature/sha256/${hexOf(child).slice(0, 16)}.yaml`);
      });
      const report = await check(path, trusting({}, multi));
      expect(sortsOf(report)).to.include.members(['missing manifest', 'missing signature']);
      expect(report.problems.find(({ subject }) => subject === 'manifest')?.images).to.deep.equal(['release']);
    });
  });

  describe('for a mirror directory', () => {
    let root: string;
    const at = (...parts: string[]): string => join(root, ...parts);
    const release = (...parts: string[]): string => at('v2', 'openshift', 'release', ...parts);
    beforeEach(async () => {
      root = await bundle.unpack();
    });

    /** Changes it to the form of oc: no metadata, manifests also among the blobs, the signature as JSON. */
    const makeItOcs = async (): Promise<void> => {
      await unlink(at(metadataPath));
      for (const name of await readdir(release('manifests'))) {
        if (name.startsWith('sha256:')) await link(release('manifests', name), release('blobs', name));
        if (name.includes('-extra-') || name.endsWith(`${hexOf(extra.digest)}.sig`))
          await unlink(release('manifests', name));
      }
      await rm(at('config'), { recursive: true });
      await mkdir(at('config'));
      const id = `sha256-${hexOf(bundle.release.digest)}`;
      const object = {
        kind: 'ConfigMap',
        apiVersion: 'v1',
        metadata: {
          name: id,
          namespace: 'openshift-config-managed',
          creationTimestamp: null,
          labels: { 'release.openshift.io/verification-signatures': '' },
        },
        binaryData: { [`${id}-1`]: (await signDigest(bundle.key, bundle.release.digest)).toString('base64') },
      };
      await writeFile(at('config', `signature-${id.slice(0, 23)}.json`), JSON.stringify(object));
    };

    it('finds an unpacked bundle good', async () => {
      const report = await check(root);
      expect(report.problems).to.deep.equal([]);
      expect(report.digest).to.equal(undefined);
      expect(report.images).to.deep.equal({ expected: 6, whole: 6 });
    });

    it('finds corrupt, truncated, missing and unexpected content', async () => {
      const [first = '', second = '', third = ''] = bundle.result.metadata.blobs.slice(-3).map(({ digest }) => digest);
      await writeFile(release('blobs', first), 'other');
      await truncate(release('blobs', second), 10);
      await unlink(release('blobs', third));
      await symlink('/etc/passwd', release('blobs', digestOf('link')));
      await writeFile(release('blobs', `${digestOf('x')}.download`), 'x');
      const report = await check(root);
      const expected = ['missing blob', 'truncated blob', 'unexpected file'];
      expect(sortsOf(report)).to.deep.equal(expected);
      expect(report.problems.filter(({ kind }) => kind === 'unexpected')).to.have.length(2);
      await appendFile(release('blobs', third), Buffer.alloc(20_000));
      expect(sortsOf(await check(root))).to.include('corrupt blob');
    });

    it('names each pipe and socket, and never waits for one', async () => {
      const paths = [
        'config/pipe.yaml',
        'config/signature/pipe',
        `v2/openshift/release/blobs/${digestOf('a pipe')}`,
        'v2/openshift/release/manifests/pipe',
        'pipe',
        directoryLock,
      ];
      for (const path of paths) execFileSync('mkfifo', [at(path)]);
      const server = createServer().listen(at('config', 'socket.json'));
      await once(server, 'listening');
      const { problems } = await check(root);
      server.close();
      const words = 'is a pipe, socket or device, which does not belong in a bundle';
      expect(problems.map(({ message }) => message)).to.have.members(
        [...paths, 'config/socket.json'].map((path) => `${path} ${words}`),
      );
    });

    it('does not take a blob out of a link that leads elsewhere', async () => {
      const digest = bundle.result.metadata.blobs.at(-1)?.digest ?? '';
      await rename(release('blobs', digest), join(bundle.folder, 'elsewhere'));
      await symlink(join(bundle.folder, 'elsewhere'), release('blobs', digest));
      expect(sortsOf(await check(root))).to.deep.equal(['missing blob', 'unexpected file']);
    });

    it('reads one that oc wrote', async () => {
      await makeItOcs();
      const report = await check(root);
      const [surplus, ...others] = sortsOf(report);
      // No list has the extra image any more.
      expect([surplus, ...others]).to.deep.equal(['unexpected blob', 'unexpected manifest']);
      expect(report.images).to.deep.equal({ expected: 5, whole: 5 });
      expect(report.signatures).to.have.length(1);
    });

    it('finds a lost blob and a swapped tag in one that oc wrote', async () => {
      await makeItOcs();
      const [first = '', second = ''] = names;
      await unlink(release('manifests', `4.12.4-x86_64-${first}`));
      await symlink(componentOf(second), release('manifests', `4.12.4-x86_64-${first}`));
      expect(sortsOf(await check(root))).to.include('corrupt tag');
    });
  });

  it('ends when it is interrupted', async () => {
    const context = makeContext((event) => {
      if (event.kind === 'bytes') context.interrupt();
    });
    const root = await bundle.unpack();
    await failureOf(check(root, trusting(), context), 'interrupted');
  });
});
