import { link, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { readBody, type RegistryContent } from '../../fakes/registry/content.ts';

/** Creates a folder for one test. */
export function makeFolder(): Promise<string> {
  return mkdtemp(join(tmpdir(), 'oc-disconnected-'));
}

/** Removes a folder of makeFolder. */
export function removeFolder(path: string): Promise<void> {
  return rm(path, { recursive: true, force: true });
}

/**
 * Writes content in the layout and the steps of `oc adm release mirror --to-dir` (openshift/oc,
 * pkg/cli/image/imagesource/file.go). Files have `.download` names first, and mode 0600. Manifests are in blobs/ with a
 * hard link in manifests/, and tags are relative symbolic links. With the `separator` `-`, as oc does on Windows.
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
