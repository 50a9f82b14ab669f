/**
 * Makes a container image of the files of an archive for Linux: a base image, which has glibc and libstdc++, and one
 * layer on it. The image is an OCI archive, as `skopeo copy oci-archive:FILE` and `podman load` read it. skopeo gets
 * the base. The same files and the same base give the same bytes.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFile, mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { create } from 'tar';
import manifest from '../package.json' with { type: 'json' };
import { archiveOf, executableOf, linkNames, papers, type Platform } from './krew.ts';

/** The folders and the base image of a build. */
interface Build {
  /** The folder with the files of the archive. */
  readonly place: string;
  /** The folder for the image. */
  readonly folder: string;
  /** The base image, as skopeo names it: `docker://registry.access.redhat.com/ubi9/ubi-minimal@sha256:…`. */
  readonly base: string;
  readonly isFast: boolean;
}

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}
interface Configuration {
  readonly config?: { readonly Labels?: Readonly<Record<string, string>> };
  readonly rootfs: { readonly type: 'layers'; readonly diff_ids: readonly string[] };
  readonly history?: readonly object[];
}
type Manifest = Readonly<{ config: Descriptor; layers: readonly Descriptor[] }>;

/** Returns the file name of a platform’s image. */
export function imageNameOf(platform: Platform): string {
  return archiveOf(platform).replace(/\.tar\.gz$/, '.oci.tar');
}

/** Makes the image of a platform. Returns its path. Throws an Error if skopeo is missing or fails. */
export async function makeImage(platform: Platform, { place, folder, base, isFast }: Build): Promise<string> {
  const [layout, tree] = [join(place, 'oci'), join(place, 'tree')];
  const { arch } = platform.krew;
  const copy = ['copy', '--quiet', `--override-arch=${arch}`, '--override-os=linux', '--format=oci', base];
  execFileSync('skopeo', [...copy, `oci:${layout}:base`], { stdio: ['ignore', 'ignore', 'inherit'] });
  const blobs = join(layout, 'blobs', 'sha256');
  const put = async (content: Buffer | string, mediaType: string): Promise<Descriptor> => {
    const digest = createHash('sha256').update(content).digest('hex');
    await writeFile(join(blobs, digest), content);
    return { mediaType, digest: `sha256:${digest}`, size: Buffer.byteLength(content) };
  };
  const read = async ({ digest }: Descriptor): Promise<unknown> =>
    JSON.parse(await readFile(join(blobs, digest.slice('sha256:'.length)), 'utf8'));
  const index = JSON.parse(await readFile(join(layout, 'index.json'), 'utf8')) as { manifests: [Descriptor] };
  const below = (await read(index.manifests[0])) as Manifest;
  const configuration = (await read(below.config)) as Configuration;

  const content = await makeLayer(platform, place, tree, isFast);
  const layer = await put(content, 'application/vnd.oci.image.layer.v1.tar+gzip');
  const diff = `sha256:${createHash('sha256').update(gunzipSync(content)).digest('hex')}`;
  const labels = {
    'org.opencontainers.image.title': manifest.name,
    'org.opencontainers.image.version': manifest.version,
    'org.opencontainers.image.licenses': manifest.license,
  };
  const config = await put(
    JSON.stringify({
      ...configuration,
      created: '1980-01-01T00:00:00Z',
      config: {
        ...configuration.config,
        Entrypoint: [`/usr/bin/${executableOf(platform)}`],
        Cmd: ['--help'],
        Labels: { ...configuration.config?.Labels, ...labels },
      },
      rootfs: { type: 'layers', diff_ids: [...configuration.rootfs.diff_ids, diff] },
      history: [...(configuration.history ?? []), { created_by: `${manifest.name} ${manifest.version}` }],
    }),
    'application/vnd.oci.image.config.v1+json',
  );
  const mediaType = 'application/vnd.oci.image.manifest.v1+json';
  const image = { ...below, schemaVersion: 2, mediaType, config, layers: [...below.layers, layer] };
  const made = await put(JSON.stringify(image), mediaType);
  const name = { 'org.opencontainers.image.ref.name': manifest.version };
  await writeFile(
    join(layout, 'index.json'),
    JSON.stringify({ schemaVersion: 2, manifests: [{ ...made, annotations: name }] }),
  );
  const file = join(folder, imageNameOf(platform));
  const used = [made, config, ...image.layers].map(({ digest }) => `blobs/sha256/${digest.slice('sha256:'.length)}`);
  const names = ['oci-layout', 'index.json', ...new Set(used)];
  await create({ cwd: layout, file, portable: true, mtime: new Date(0) }, names);
  return file;
}

async function makeLayer(platform: Platform, place: string, tree: string, isFast: boolean): Promise<Buffer> {
  const [bin, licences] = [join(tree, 'usr/bin'), join(tree, 'usr/share/licenses', manifest.name)];
  for (const path of [bin, licences]) await mkdir(path, { recursive: true });
  await copyFile(join(place, executableOf(platform)), join(bin, executableOf(platform)));
  for (const name of linkNames) await symlink(executableOf(platform), join(bin, name));
  for (const name of papers) await copyFile(join(place, name), join(licences, name));
  const files = ['usr/bin', `usr/share/licenses/${manifest.name}`];
  const entries = await Promise.all(
    files.map(async (folder) => (await readdir(join(tree, folder))).sort().map((name) => `${folder}/${name}`)),
  );
  const file = `${tree}.tar.gz`;
  await create(
    { cwd: tree, file, gzip: { level: isFast ? 1 : 7 }, portable: true, mtime: new Date(0) },
    entries.flat(),
  );
  return readFile(file);
}
