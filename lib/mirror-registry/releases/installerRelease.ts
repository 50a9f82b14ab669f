import { createHash } from 'node:crypto';
import { pipeline, Transform } from 'node:stream';
import { basename } from 'node:path';
import { createGunzip } from 'node:zlib';
import type { Context } from '../../context.ts';
import { isPluginError, messageOf, PluginError } from '../../errors.ts';
import type { Digest } from '../../oci/digest.ts';
import type { Architecture } from '../../release/version.ts';
import { readFileContent } from '../../files/fileContent.ts';
import { readTarStream, type StreamedFile } from '../../archive/tarStream.ts';
import type { HostCommands } from '../../machine/hostCommands.ts';
import { requireImage } from './images.ts';
import { releaseComponents, type ReleaseComponent } from '../installation.ts';
import { changesOf } from './installerImages.ts';
import type { ImageChange } from './images.ts';
import type { TargetImages } from './images.ts';
import { requireDigest } from './registryBundleCheck.ts';
import type { RegistryRelease } from './images.ts';
import { mirrorRegistryVersion, quayVersionOf } from '../versions.ts';

const componentOf = new Map<string, ReleaseComponent>(releaseComponents.map((name) => [`${name}.tar`, name]));
const gzipMagic = Buffer.from([0x1f, 0x8b]);

/** What one reading of an archive found. */
interface Findings {
  readonly digest: Digest;
  /** The files of each image, in bytes. */
  readonly sizes: ReadonlyMap<ReleaseComponent, number>;
  /** The names that the installer in it was built with. */
  readonly names: TargetImages;
  readonly arch: Architecture | undefined;
}

/** Tells by the first bytes of a file whether it is an archive of the installer’s. */
export async function isInstallerArchive(path: string, signal: AbortSignal): Promise<boolean> {
  const beginning = await readBeginning(path, signal);
  if (beginning.subarray(0, 2).equals(gzipMagic)) return true;
  const name = beginning.subarray(0, 100).toString('latin1').replace(/\0.*$/s, '').replace(/^\.\//, '');
  return /^(?:image-archive|execution-environment|sqlite3|quay|redis|pause)\.tar$|^mirror-registry$/.test(name);
}

/**
 * Opens what the installer of a mirror registry comes in for hosts without a network: `mirror-registry.tar.gz`, or `image-archive.tar` of it.
 * It has the files of images, not the images, so their IDs are podman’s making. Their names are those that the installer in it was built with,
 * unless `given` has others. It is read once. Throws `usage` where neither has them, `invalid-file` and `not-readable`.
 */
export async function openInstallerRelease(
  path: string,
  given: TargetImages,
  context: Context,
): Promise<RegistryRelease> {
  const { digest, sizes, names, arch } = await readArchive(path, context.signal);
  const nameOf = (component: ReleaseComponent): string => {
    if (!sizes.has(component)) throw new PluginError('invalid-file', `${path} has no ${component}.tar`);
    const image = given[component] ?? names[component];
    if (image !== undefined) return image;
    throw new PluginError('usage', `${path} does not tell what its image of ${component} is called`, {
      hint: 'Name the release with --version, or the images with --target-quay, --target-redis and --target-pause.',
    });
  };
  const [quay, redis, pause] = [nameOf('quay'), nameOf('redis'), nameOf('pause')];
  return {
    ...{ kind: 'installer', name: path, arch },
    version: mirrorRegistryVersion(quayVersionOf(quay) ?? ''),
    size: [...sizes.values()].reduce((sum, size) => sum + size, 0),
    images: {
      quay: { image: quay, id: undefined },
      redis: { image: redis, id: undefined },
      pause: { image: pause, id: undefined },
    },
    check: (expected) => requireDigest(path, digest, expected),
    load: (commands, changes, loading) => load(path, commands, changes, loading),
    close: () => Promise.resolve(),
  };
}

async function load(
  path: string,
  commands: HostCommands,
  changes: readonly ImageChange[],
  context: Context,
): Promise<Map<ReleaseComponent, string>> {
  const ids = new Map<ReleaseComponent, string>();
  for await (const { file, component } of readImages(path, context.signal)) {
    const change = changes.find((each) => each.component === component);
    if (!change) continue;
    context.log('info', `loading ${change.to}`);
    const words = ['image', 'import', '--quiet', ...changesOf(change.component, change.to), '-', change.to];
    await commands.podman(words, context.signal, file.content);
    ids.set(change.component, await requireImage(commands, change.to, undefined, context.signal));
  }
  return ids;
}

async function readArchive(path: string, signal: AbortSignal): Promise<Findings> {
  const hash = createHash('sha256');
  const sizes = new Map<ReleaseComponent, number>();
  let program: Pick<Findings, 'names' | 'arch'> = { names: {}, arch: undefined };
  for await (const { file, component } of readImages(path, signal, hash)) {
    if (component !== undefined) sizes.set(component, file.size);
    else if (basename(file.path) === 'mirror-registry') program = await readProgram(file.content);
  }
  return { digest: `sha256:${hash.digest('hex')}`, sizes, ...program };
}

/** The files of an archive, those of the archive of images in it among them. */
async function* readImages(
  path: string,
  signal: AbortSignal,
  hash?: { update(chunk: Buffer): unknown },
): AsyncGenerator<{ readonly file: StreamedFile; readonly component: ReleaseComponent | undefined }> {
  try {
    for await (const file of readTarStream(await openArchive(path, signal, hash), path)) {
      if (basename(file.path) !== 'image-archive.tar') yield { file, component: componentOf.get(file.path) };
      else {
        for await (const inner of readTarStream(file.content, `image-archive.tar in ${path}`)) {
          yield { file: inner, component: componentOf.get(inner.path) };
        }
      }
    }
  } catch (cause) {
    if (isPluginError(cause)) throw cause;
    throw new PluginError('invalid-file', `${path} cannot be read: ${messageOf(cause)}`, {
      hint: 'Bring it again, and compare its digest with that of where it comes from.',
      cause,
    });
  }
}

async function openArchive(
  path: string,
  signal: AbortSignal,
  hash: { update(chunk: Buffer): unknown } | undefined,
): Promise<AsyncIterable<Buffer>> {
  const isPacked = (await readBeginning(path, signal)).subarray(0, 2).equals(gzipMagic);
  const raw = readFileContent(path, signal);
  const counted = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash?.update(chunk);
      done(null, chunk);
    },
  });
  // The error arrives through what is returned; the callback only keeps it from being thrown a second time.
  const ignore = (): void => undefined;
  return isPacked ? pipeline(raw, counted, createGunzip(), ignore) : pipeline(raw, counted, ignore);
}

async function readBeginning(path: string, signal: AbortSignal): Promise<Buffer> {
  for await (const chunk of readFileContent(path, signal) as AsyncIterable<Buffer>) return chunk;
  return Buffer.alloc(0);
}

const machines: Readonly<Record<number, Architecture>> = {
  0x3e: 'x86_64',
  0xb7: 'aarch64',
  0x15: 'ppc64le',
  0x16: 's390x',
};

/** What the installer itself, a program in Go, says of its images and of its machine. */
async function readProgram(content: AsyncIterable<Buffer>): Promise<Pick<Findings, 'names' | 'arch'>> {
  const names: Partial<Record<ReleaseComponent, string>> = {};
  let arch: Architecture | undefined;
  let tail = '';
  for await (const chunk of content) {
    if (tail === '' && chunk.subarray(1, 4).toString() === 'ELF') {
      arch = machines[chunk[5] === 2 ? chunk.readUInt16BE(18) : chunk.readUInt16LE(18)];
    }
    const text = tail + chunk.toString('latin1');
    for (const [, name = '', image = ''] of text.matchAll(/cmd\.(quay|redis|pause)Image=([\w./:@-]+)(?=[^\w./:@-])/g)) {
      names[name as ReleaseComponent] ??= image;
    }
    tail = text.slice(-1024);
  }
  return { names, arch };
}
