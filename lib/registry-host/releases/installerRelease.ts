import { createHash } from 'node:crypto';
import { basename } from 'node:path';
import { pipeline, Transform } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { readTarStream, type StreamedFile } from '#content/archive';
import { readFileContent } from '#content/files';
import type { Digest } from '#content/oci';
import type { Context } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import type { HostCommands } from '#node/machine';
import type { Architecture } from '#release/version';
import { releaseComponents, type ReleaseComponent } from '../installation/installation.ts';
import { mirrorRegistryVersion, quayVersionOf, compareTags } from '../installation/versions.ts';
import { requireImage, type ImageChange, type RegistryRelease, type TargetImages } from './images.ts';
import { requireDigest } from './registryBundle.ts';

const componentOf = new Map<string, ReleaseComponent>(releaseComponents.map((name) => [`${name}.tar`, name]));
const gzipMagic = Buffer.from([0x1f, 0x8b]);

/** The findings of one pass over an archive. */
interface Findings {
  readonly digest: Digest;
  /** The size of each image’s files, in bytes. */
  readonly sizes: ReadonlyMap<ReleaseComponent, number>;
  readonly names: TargetImages;
  readonly arch: Architecture | undefined;
}

/** Returns whether a file is an archive of the installer, by its first bytes. */
export async function isInstallerArchive(path: string, signal: AbortSignal): Promise<boolean> {
  const beginning = await readBeginning(path, signal);
  if (beginning.subarray(0, 2).equals(gzipMagic)) return true;
  const name = beginning.subarray(0, 100).toString('latin1').replace(/\0.*$/s, '').replace(/^\.\//, '');
  return /^(?:image-archive|execution-environment|sqlite3|quay|redis|pause)\.tar$|^mirror-registry$/.test(name);
}

/**
 * Opens the archive of the installer for disconnected hosts: `mirror-registry.tar.gz`, or its `image-archive.tar`. It
 * has the files of the images, so podman creates their IDs. The names of the images are in the installer, or `given`.
 * Throws `usage` if neither has them, `invalid-file` and `not-readable`.
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
    throw new PluginError('usage', `${path} does not name its image of ${component}`, {
      hint: 'Name the version of the release, or its images.',
      settings: ['version', 'targetQuay', 'targetRedis', 'targetPause'],
    });
  };
  const [quay, redis, pause] = [nameOf('quay'), nameOf('redis'), nameOf('pause')];
  return {
    kind: 'installer',
    name: path,
    arch,
    version: mirrorRegistryVersion(quayVersionOf(quay) ?? ''),
    size: [...sizes.values()].reduce((sum, size) => sum + size, 0),
    images: {
      quay: { image: quay, id: undefined },
      redis: { image: redis, id: undefined },
      pause: { image: pause, id: undefined },
    },
    check: (expected) => requireDigest(path, digest, expected),
    load: (commands, changes, loading) => load(path, commands, changes, loading),
    [Symbol.asyncDispose]: () => Promise.resolve(),
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
    await commands.podman(words, file.content);
    ids.set(change.component, await requireImage(commands, change.to, undefined));
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

/** Yields the files of an archive and of the archive of images in it. */
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
      hint: 'Copy it again, and compare its digest with that of the source.',
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
  // The returned stream has the error. The callback only prevents a second throw.
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

/** Reads the names of the images and the architecture from the installer, a Go program. */
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

const systemPath = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const redisPath = `/opt/app-root/src/bin:/opt/app-root/bin:${systemPath}`;

const changes: Readonly<Record<ReleaseComponent, readonly string[]>> = {
  pause: [`ENV PATH=${systemPath}`, 'ENV container=oci', 'ENTRYPOINT=["sleep"]', 'CMD=["infinity"]'],
  redis: [
    `ENV PATH=${redisPath}`,
    'ENV container=oci',
    'ENV STI_SCRIPTS_URL=image:///usr/libexec/s2i',
    'ENV STI_SCRIPTS_PATH=/usr/libexec/s2i',
    'ENV APP_ROOT=/opt/app-root',
    'ENV HOME=/var/lib/redis',
    'ENV PLATFORM=el8',
    'ENV REDIS_VERSION=6',
    'ENV CONTAINER_SCRIPTS_PATH=/usr/share/container-scripts/redis',
    'ENV REDIS_PREFIX=/usr',
    'ENV REDIS_CONF=/etc/redis.conf',
    'ENTRYPOINT=["container-entrypoint"]',
    'USER=1001',
    'WORKDIR=/opt/app-root/src',
    'EXPOSE=6379',
    'VOLUME=/var/lib/redis/data',
    'CMD ["run-redis"]',
  ],
  quay: [
    'ENV container=oci',
    'ENV PYTHONUNBUFFERED=1',
    'ENV PYTHONIOENCODING=UTF-8',
    'ENV LC_ALL=C.UTF-8',
    'ENV LANG=C.UTF-8',
    'ENV QUAYDIR=/quay-registry',
    'ENV QUAYCONF=/quay-registry/conf',
    'ENV QUAYRUN=/quay-registry/conf',
    'ENV QUAYPATH=/quay-registry',
    'ENV PYTHONUSERBASE=/app',
    'ENV PYTHONPATH=/quay-registry',
    'ENV TZ=UTC',
    'ENV RED_HAT_QUAY=true',
    'ENTRYPOINT=["dumb-init","--","/quay-registry/quay-entrypoint.sh"]',
    'WORKDIR=/quay-registry',
    'EXPOSE=7443',
    'EXPOSE=8080',
    'EXPOSE=8443',
    'VOLUME=/conf/stack',
    'VOLUME=/datastorage',
    'VOLUME=/sqlite',
    'VOLUME=/tmp',
    'VOLUME=/var/log',
    'USER=1001',
    'CMD ["registry"]',
  ],
};

/**
 * Returns the `--change` options of `podman import` for an image in the installer’s archive, which has only the files
 * of the image. The options are those of the installer (quay/mirror-registry, cmd/utils.go). The paths of Quay’s
 * programs depend on its version.
 */
export function changesOf(component: ReleaseComponent, image: string): string[] {
  const version = quayVersionOf(image);
  const isLate = version === undefined || compareTags(version, '3.12.14') >= 0;
  const quayPath = isLate
    ? `/opt/app-root/bin:/opt/app-root/src/.local/bin:/opt/app-root/src/bin:${systemPath}`
    : `/app/bin/:${systemPath}`;
  const all = component === 'quay' ? [`ENV PATH=${quayPath}`, ...changes.quay] : changes[component];
  return all.flatMap((change) => ['--change', change]);
}
