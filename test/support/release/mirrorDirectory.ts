import { link, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { readBody, type RegistryContent } from '../../fakes/registry/content.ts';

/** A new folder for one test. */
export function makeFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'oc-disconnected-'));
}

/** Removes what makeFolder made. */
export function removeFolder(path: string): Promise<void> {
  return rm(path, { recursive: true, force: true });
}

/**
 * Lays content out as `oc adm release mirror --to-dir` does, step by step as its source has it (openshift/oc,
 * pkg/cli/image/imagesource/file.go): through `.download` names, mode 0600, manifests in blobs/ with a hard link in
 * manifests/, tags as relative symbolic links. With `separator` `-` as oc does on Windows.
 */
export async function layOutAsOc(root: string, content: RegistryContent, separator: ':' | '-' = ':'): Promise<void> {
  const nameOf = (digest: string): string => digest.replace(':', separator);
  for (const [repository, { manifests, tags }] of content.repositories) {
    const folder = join(root, 'v2', repository);
    await mkdir(join(folder, 'blobs'), { recursive: true, mode: 0o755 });
    await mkdir(join(folder, 'manifests'), { recursive: true, mode: 0o755 });
    const place = async (path: string, make: (path: string) => Promise<void>): Promise<void> => {
      await make(`${path}.download`);
      await rename(`${path}.download`, path);
    };
    for (const [digest, body] of content.blobs) {
      await place(join(folder, 'blobs', nameOf(digest)), async (path) => {
        await writeFile(path, await buffer(readBody(body)), { mode: 0o600 });
      });
    }
    for (const [digest, { bytes }] of manifests) {
      const blob = join(folder, 'blobs', nameOf(digest));
      await place(blob, (path) => writeFile(path, bytes, { mode: 0o600 }));
      await place(join(folder, 'manifests', nameOf(digest)), (path) => link(blob, path));
    }
    for (const [tag, digest] of tags) {
      await place(join(folder, 'manifests', tag), (path) => symlink(nameOf(digest), path));
    }
  }
}
