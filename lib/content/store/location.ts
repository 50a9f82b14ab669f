import { stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { openArchive } from '../archive/archive.ts';
import { findArchive } from '../archive/volumes.ts';
import { isMissing, describeReadError } from '../files/fileRange.ts';
import { formatReference, parseReference, type Reference } from '../oci/reference.ts';
import { Directory, listRepositories } from './directory.ts';
import type { ContentSource } from './store.ts';

/** The location of content, parsed from the text of the user. Paths are absolute. */
export type Location =
  | { readonly kind: 'directory'; readonly path: string }
  | { readonly kind: 'archive'; readonly path: string }
  | { readonly kind: 'registry'; readonly reference: Reference };

/** Repositories that are opened together. */
export interface OpenedLocation {
  /** The names of the repositories, sorted. */
  readonly repositories: readonly string[];
  /** Returns the content of one repository; undefined if it does not exist. */
  repository(name: string): ContentSource | undefined;
  [Symbol.asyncDispose](): Promise<void>;
}

/**
 * Parses a location. `file://…`, paths (`/…`, `./…`, `../…`, `….tar` and other archives) and existing files and folders
 * are a mirror directory or an archive (a file, its volumes or a device). Any other text is a reference into a
 * registry, with or without `docker://`. Throws `not-found` for a path that does not exist, and `invalid-reference`.
 */
export async function parseLocation(text: string): Promise<Location> {
  if (text.startsWith('docker://')) return { kind: 'registry', reference: parseReference(text.slice(9)) };
  const path = pathOf(text);
  const stats = await stat(path).catch((error: unknown) => {
    if (!isMissing(error) && looksLikePath(text)) throw describeReadError(error, path);
    return undefined;
  });
  if (stats?.isDirectory()) return { kind: 'directory', path };
  if (stats?.isFile() || stats?.isBlockDevice()) return { kind: 'archive', path };
  const volumes = stats || !looksLikePath(text) ? undefined : await findArchive(path);
  if (volumes) return { kind: 'archive', path: volumes.path };
  if (stats) throw new PluginError('usage', `${path} is neither a folder nor a file nor a block device`);
  if (looksLikePath(text)) throw new PluginError('not-found', `${path} does not exist`);
  return { kind: 'registry', reference: parseReference(text) };
}

/**
 * Opens a location on this machine for reading. Throws `not-found` for a folder that is not a mirror directory,
 * `invalid-bundle` for a file or device that is not an archive, and `usage` for a location in a registry.
 */
export async function openLocation(location: Location, context: Context): Promise<OpenedLocation> {
  switch (location.kind) {
    case 'archive': {
      const archive = await openArchive(location.path, context);
      return open(
        archive.repositories(),
        (name) => archive.repository(name),
        () => archive.close(),
      );
    }
    case 'directory': {
      const names = await listRepositories(location.path);
      if (names.length === 0) {
        throw new PluginError('not-found', `${location.path} is not a mirror directory: it has no images in v2/`, {
          hint: `Name the folder that holds v2/, or a bundle by its file: ${join(location.path, 'upgrade-….tar')}.`,
        });
      }
      return open(names, (name) => new Directory(location.path, name, {}, context));
    }
    case 'registry': {
      const name = formatReference(location.reference);
      throw new PluginError('usage', `${name} is in a registry; a file or a folder is needed here`);
    }
  }
}

function open(
  repositories: readonly string[],
  repository: (name: string) => ContentSource,
  close: () => Promise<void> = () => Promise.resolve(),
): OpenedLocation {
  return {
    repositories,
    repository: (name) => (repositories.includes(name) ? repository(name) : undefined),
    [Symbol.asyncDispose]: close,
  };
}

function looksLikePath(text: string): boolean {
  return /^(?:file:\/\/|\/|\.\.?(?:\/|$))|\.(?:tar|tar\.\d{3}|tar\.gz|tgz)$/.test(text);
}

// The text is not a URL: oc reads file://a/b as the relative path a/b, and decodes nothing.
function pathOf(text: string): string {
  return resolve(text.startsWith('file://') ? text.slice('file://'.length) : text);
}
