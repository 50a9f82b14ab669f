import { mkdir, open, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { x as extract } from 'tar';
import { createBundle, type CreateResult } from '../../../lib/bundle/create.ts';
import { RegistryProvider } from '../../../lib/bundle/create/releaseProvider.ts';
import { heldImagesOf } from '../../../lib/bundle/create/siteCheck.ts';
import type { ReportPlace } from '../../../lib/bundle/metadata/metadata.ts';
import type { SiteReport } from '../../../lib/config/siteReport.ts';
import { Archive } from '../../../lib/content/archive/archive.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { Credentials } from '../../../lib/content/registry/auth/credentials.ts';
import { MirrorSets } from '../../../lib/content/registry/mirrors.ts';
import { releaseRepository } from '../../../lib/content/store/directory.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { makeContext } from '../context.ts';
import type { ExtraImage } from '../release/extraImage.ts';
import { makeFolder, removeFolder } from '../release/mirrorDirectory.ts';
import { buildRelease, type ReleaseOptions, type TestRelease } from '../release/release.ts';
import {
  makeSigningKey,
  signatureStore,
  signDigest,
  writeSignatureStore,
  type SigningKey,
} from '../release/signing.ts';
import type { TestContent } from './image.ts';

/** The release of the bundle, and options. */
export interface BundleOptions extends Omit<ReleaseOptions, 'registry'> {
  /** Changes of the release, for each release before it in the bundle. */
  readonly earlier?: readonly Omit<ReleaseOptions, 'registry'>[];
  /** Additional images of quay.io. */
  readonly extraImages?: readonly ExtraImage[];
  /** Whether the release is signed; default true. */
  readonly signed?: boolean;
  /** The size of volumes in bytes, if it is split. */
  readonly volumeSize?: number;
  /** A bundle whose blobs are left out. */
  readonly base?: string;
  /** How drives with the bundle take reports. */
  readonly reports?: ReportPlace;
  /** The site of the bundle, and a catalog of quay.io with updates of its operators. `contents` are on quay.io too. */
  readonly site?: {
    readonly report: SiteReport;
    readonly catalog?: string;
    readonly contents: readonly Pick<TestContent, 'addTo'>[];
  };
}

/** A bundle of `create` in its own folder. */
export interface TestBundle extends AsyncDisposable {
  /** The path of the tar; `.sha256` and `.yaml` are beside it. */
  readonly path: string;
  /** The folder of the bundle. Tests may add files. */
  readonly folder: string;
  /** The last release of the bundle. */
  readonly release: TestRelease;
  /** All releases, in order. */
  readonly releases: readonly TestRelease[];
  readonly result: CreateResult;
  /** The paths that were requested from the registry, in order. */
  readonly requests: readonly string[];
  /** What was logged. */
  readonly lines: readonly string[];
  /** The key that signed the release. */
  readonly key: SigningKey;
  /** The file with the key’s armored public part. */
  readonly keyFile: string;
  /** Unpacks the bundle into a new mirror directory, and returns its path. */
  unpack(): Promise<string>;
  /** Changes a byte in the middle of a blob or manifest in the tar. */
  damage(digest: Digest): Promise<void>;
  remove(): Promise<void>;
}

let sharedKey: Promise<SigningKey> | undefined;

/**
 * Creates a bundle of a test release (by default four small components) from a registry in this process. The registry
 * mirrors quay.io, whose pullspecs are in the bundle, so that the same options give the same bytes.
 */
export async function makeBundle(options: BundleOptions = {}): Promise<TestBundle> {
  const { extraImages = [], signed = true, volumeSize, base, reports, site, earlier = [], ...rest } = options;
  const key = await (sharedKey ??= makeSigningKey());
  const usual = { components: 4, verification: { publicKey: key.publicKey, stores: [] }, ...rest };
  const release = buildRelease(usual);
  const releases = [...earlier.map((changes) => buildRelease({ ...usual, ...changes })), release];
  const folder = await makeFolder();
  const keyFile = join(folder, 'key.asc');
  await writeFile(keyFile, key.publicKey);
  const signatures = new Map(
    await Promise.all(
      (signed ? releases.flatMap(({ digest, children }) => [digest, ...children]) : []).map(
        async (digest): Promise<[Digest, Buffer[]]> => [digest, [await signDigest(key, digest)]],
      ),
    ),
  );
  await writeSignatureStore(folder, signatureStore(signatures, 'signatures/'));

  const { result, requests, lines } = await create({
    releases,
    extraImages,
    folder,
    keyFile,
    key,
    signed,
    volumeSize,
    base,
    reports,
    site,
  }).catch(async (error: unknown) => {
    await removeFolder(folder);
    throw error;
  });
  let unpacked = 0;
  const remove = (): Promise<void> => removeFolder(folder);
  return {
    path: result.path,
    folder,
    release,
    releases,
    result,
    requests,
    lines,
    key,
    keyFile,
    unpack: async () => {
      const root = join(folder, `unpacked-${(unpacked += 1)}`);
      await mkdir(root);
      await extract({ file: result.path, cwd: root });
      return root;
    },
    damage: (digest) => flipByte(result.path, digest),
    remove,
    [Symbol.asyncDispose]: remove,
  };
}

async function create(made: {
  releases: readonly TestRelease[];
  extraImages: readonly ExtraImage[];
  folder: string;
  keyFile: string;
  key: SigningKey;
  signed: boolean;
  volumeSize: number | undefined;
  base: string | undefined;
  reports: ReportPlace | undefined;
  site: BundleOptions['site'];
}): Promise<Pick<TestBundle, 'result' | 'requests' | 'lines'>> {
  const { releases, extraImages, folder, keyFile, key, signed, volumeSize, base, reports, site } = made;
  const server = await startRegistry();
  for (const images of [...releases, ...extraImages, ...(site?.contents ?? [])]) images.addTo(server.content);
  const mirror = { source: 'quay.io', mirrors: [server.host], contactSource: false };
  const context = makeContext();
  const access = {
    settings: { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' },
    credentials: new Credentials({ environment: {}, home: folder }),
    mirrors: new MirrorSets((['digest', 'tag'] as const).map((pulls) => ({ ...mirror, pulls }))),
  };
  const provider = new RegistryProvider(access, context);
  const [first, ...others] = releases.map(({ version, arch, releaseRepository: name }) => {
    return { version, arch, repository: `quay.io/${name}` };
  });
  if (!first) throw new Error('there is no release');
  try {
    const result = await createBundle(
      {
        releases: [first, ...others],
        extraImages: extraImages.map(({ tagged }) => tagged),
        output: folder,
        trust: {
          keyrings: [keyFile],
          fingerprints: [key.fingerprint],
          store: join(folder, 'signatures'),
          allowUnsigned: !signed,
        },
        volumeSize,
        base: base === undefined ? site && heldImagesOf(site.report) : { path: base },
        site: site?.report,
        operators: site?.catalog === undefined ? undefined : { catalogs: [site.catalog], operators: [] },
        reports,
        dryRun: false,
        verifyExisting: false,
        tool: 'test/1',
      },
      provider,
      context,
    );
    return { result, requests: server.requests.map(({ path }) => path), lines: context.lines };
  } finally {
    await provider[Symbol.asyncDispose]();
    await server.stop();
  }
}

/** Changes a byte in the middle of a blob or manifest in a tar. */
export async function flipByte(path: string, digest: Digest): Promise<void> {
  const archive = await Archive.open(path, makeContext());
  const folder = `v2/${releaseRepository}`;
  const entry =
    archive.entries.get(`${folder}/blobs/${digest}`) ?? archive.entries.get(`${folder}/manifests/${digest}`);
  await archive.close();
  if (!entry) throw new Error(`the bundle has no ${digest}`);
  await using file = await open(path, 'r+');
  const position = entry.start + Math.floor(entry.size / 2);
  const { buffer } = await file.read(Buffer.alloc(1), 0, 1, position);
  await file.write(Buffer.from([buffer.readUInt8() ^ 0xff]), 0, 1, position);
}
