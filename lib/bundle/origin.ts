import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { readAllSignatures, type SignaturesByDigest } from '../config/signatures.ts';
import type { Context } from '../context.ts';
import { formatReference, type Reference } from '../oci/reference.ts';
import { fetchFile, type FetchFile } from '../release/signatureStore.ts';
import type { ArchiveWriter } from '../store/archiveWriter.ts';
import { PluginError } from '../errors.ts';
import type { Credentials } from '../store/credentials.ts';
import { Directory, releaseRepository } from '../store/directory.ts';
import { Mirrored } from '../store/mirrored.ts';
import type { MirrorSets } from '../store/mirrors.ts';
import { listRepositories } from '../store/repositories.ts';
import { openSession, type RegistrySettings } from '../store/session.ts';
import { Slots } from '../store/slots.ts';
import type { ContentSource } from '../store/store.ts';
import { DownloadThreads } from '../store/threads.ts';
import { Tokens } from '../store/tokens.ts';
import type { StoredBlob } from './contents.ts';

/** Where the content of a bundle comes from. */
export interface Origin {
  /** The repository of an image. */
  sourceOf(reference: Reference): ContentSource;
  /** Brings a blob into its place in a bundle; `onProgress` is told how many of its bytes are there. */
  bring(blob: StoredBlob, writer: ArchiveWriter, onProgress: (present: number) => void): Promise<void>;
  /** Signatures that came with the content. */
  readonly signatures: SignaturesByDigest;
  readonly fetchFile: FetchFile;
  close(): Promise<void>;
}

/** How registries are talked to, and with which credentials; mirrors are asked before the repositories that they mirror. */
export interface RegistryAccess {
  readonly settings: RegistrySettings;
  readonly credentials: Credentials;
  readonly mirrors: MirrorSets;
}

/** Content from registries. Blobs come over threads of their own, which are started with the first blob. */
export function openRegistryOrigin({ settings, credentials, mirrors }: RegistryAccess, context: Context): Origin {
  const tokens = Promise.withResolvers<Tokens>();
  const session = openSession(
    settings,
    (connections) => {
      const made = new Tokens(credentials, connections, context, settings);
      tokens.resolve(made);
      return made;
    },
    context,
  );
  let threads: Promise<DownloadThreads> | undefined;
  return {
    sourceOf: (reference) => {
      const [first, ...others] = locationsOf(reference, mirrors).map((location) => session.repository(location));
      if (!first) {
        throw new PluginError(
          'not-found',
          `${formatReference(reference)} must not be asked for itself and has no mirror`,
          {
            hint: 'The mirror sets say NeverContactSource for it: give it a mirror there.',
          },
        );
      }
      return others.length === 0 ? first : new Mirrored([first, ...others]);
    },
    bring: async ({ descriptor, images }, writer, onProgress) => {
      const place = writer.place(descriptor.digest);
      if (!place) throw new PluginError('internal', `there is no place for ${descriptor.digest}`);
      threads ??= tokens.promise.then((authorizer) => new DownloadThreads(settings, authorizer, context));
      const repositories = [...images].flatMap(({ reference }) => mirrors.locationsOf(reference));
      const distinct = [...new Map(repositories.map((each) => [`${each.registry}/${each.repository}`, each])).values()];
      await (await threads).download({ place, descriptor, repositories: distinct }, onProgress);
      writer.noteFinished(descriptor.digest);
    },
    signatures: new Map(),
    fetchFile: (url, limit) => fetchFile(session.connections, url, limit, context),
    close: async () => {
      await (await threads)?.close();
      session.close();
    },
  };
}

/**
 * Content from a mirror directory, whatever repositories its images had before; signatures from its `config` folder.
 * Throws `not-found` for a folder that is none.
 */
export async function openDirectoryOrigin(folder: string, access: RegistryAccess, context: Context): Promise<Origin> {
  if (!(await listRepositories(folder)).includes(releaseRepository)) {
    throw new PluginError('not-found', `${folder} is not a mirror directory: it has no v2/${releaseRepository}`, {
      hint: 'Name the folder that holds v2/: one made by oc adm release mirror --to-dir, or a bundle unpacked by tar -xf.',
    });
  }
  const directory = new Directory(folder, releaseRepository, {}, context);
  const registries = openRegistryOrigin(access, context);
  const slots = new Slots(access.settings.maxPerRegistry);
  return {
    sourceOf: () => directory,
    bring: async ({ descriptor }, writer) => {
      const free = await slots.take('plain', context.signal);
      try {
        await writer.push(descriptor, () => directory.fetch(descriptor));
      } finally {
        free();
      }
    },
    signatures: readAllSignatures(await readConfigFolder(join(folder, 'config'))),
    fetchFile: registries.fetchFile,
    close: async () => {
      await directory.close();
      await registries.close();
    },
  };
}

// What a tag leads to is checked by digest and signature afterwards, so mirrors of digests may be asked for tags too.
function locationsOf({ registry, repository, digest }: Reference, mirrors: MirrorSets): Reference[] {
  const byDigest = mirrors.locationsOf({ registry, repository, digest: digest ?? `sha256:${'0'.repeat(64)}` });
  if (digest !== undefined) return byDigest;
  const byTag = mirrors.locationsOf({ registry, repository });
  const isMirror = (location: Reference): boolean =>
    location.registry !== registry || location.repository !== repository;
  return [...byTag.filter(isMirror), ...byDigest];
}

async function readConfigFolder(folder: string): Promise<{ path: string; text: string }[]> {
  const names = await readdir(folder, { recursive: true }).catch(() => []);
  const paths = names.filter((name) => /\.(?:ya?ml|json)$/.test(name)).map((name) => join(folder, name));
  return Promise.all(paths.map(async (path) => ({ path, text: await readFile(path, 'utf8') })));
}
