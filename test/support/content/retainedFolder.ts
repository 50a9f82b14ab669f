import { copyFile, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { replicaPath } from '../../../lib/node/transfer/replica.ts';
import { RetainedBundles, type RetainedFiles } from '../../../lib/update/mirror/retainedBundles.ts';
import { makeContext } from '../context.ts';
import type { TestBundle } from './bundle.ts';

/** Retains a bundle as an agent does: the copy, and the facts beside it. Returns the path of the copy. */
export async function retainCopy(folder: string, path: string, digest: Digest): Promise<string> {
  const copy = replicaPath(folder, digest);
  await copyFile(path, `${copy}.partial`);
  await rename(`${copy}.partial`, copy);
  await writeFile(copy.replace(/tar$/, 'json'), '{}');
  return copy;
}

/** The folder of an agent, and the bundles in it as a mirror finds them. */
export class RetainedFolder {
  readonly folder: string;
  readonly context = makeContext();
  readonly bundles: RetainedBundles;

  private constructor(folder: string) {
    this.folder = folder;
    this.bundles = new RetainedBundles(folder, this.certificates, this.context);
  }

  static async open(): Promise<RetainedFolder> {
    return new RetainedFolder(await mkdtemp(join(tmpdir(), 'retained-')));
  }

  /** The folder with the certificate of the mirror, which a test may create. */
  get certificates(): string {
    return join(this.folder, 'mirror');
  }

  /** Retains a copy of a bundle by a name of its own. */
  retain({ path }: TestBundle, name = path): Promise<string> {
    return retainCopy(this.folder, path, digestOf(name));
  }

  /** Reads the folder after a change. */
  async refresh(): Promise<RetainedFiles> {
    return (await this.bundles.refresh()) ?? expect.fail('nothing has changed');
  }

  async close(): Promise<void> {
    await this.bundles.close();
    await rm(this.folder, { recursive: true });
  }
}
