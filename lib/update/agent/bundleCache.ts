import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { openBundle } from '../../bundle/open.ts';
import { type Bundle } from '../../bundle/bundle.ts';
import { addBases, addContents, listMissingBlobs } from '../../bundle/complete.ts';
import type { VerifyTrust } from '../../bundle/signatureCheck.ts';
import type { Context } from '../../context.ts';
import { isPluginError, messageOf } from '../../errors.ts';
import { isFileOn, type FoundBundle } from '../../node/media/medium.ts';
import { checkBaseBlobs, openBaseBlobs, serveBaseBlobs } from '../../node/baseBlobs.ts';
import { baseBlobsPath, checkBundleDigest, compareDigest, hashBundle, replicaPath } from '../../node/replica.ts';
import type { Digest } from '../../content/oci/digest.ts';
import { digestIn } from '../../content/oci/reference.ts';
import { copyToFile, requireShare } from '../mirror/retention.ts';
import { gatherFacts, readFacts, readFactsOf, type BundleFacts } from '../bundleFacts.ts';

/** An open bundle, with the base blobs of a delta that the node has as files, and its verified facts. */
export interface CachedBundle {
  readonly bundle: Bundle;
  readonly facts: BundleFacts;
}

/**
 * The folder in which a node keeps copies of bundles from other nodes, and the facts of verified bundles. A copy gets
 * its final name only if its digest matches.
 */
export class BundleCache {
  readonly #folder: string;
  readonly #trust: VerifyTrust;
  /** The digests of media. A changed medium is another object. */
  readonly #digests = new WeakMap<object, Digest>();

  constructor(folder: string, trust: VerifyTrust) {
    this.#folder = folder;
    this.#trust = trust;
  }

  /** The folder of the copies. */
  get folder(): string {
    return this.#folder;
  }

  /**
   * Reads the facts of a bundle that this node verified before, and verifies the signature again. Does not need the
   * bundle itself. Throws the errors of readFacts.
   */
  recall(digest: Digest, context: Context): Promise<BundleFacts | undefined> {
    return readFacts(this.#factsPath(digest), digest, this.#trust, context);
  }

  /** Opens the copy of a bundle; undefined if there is none. Throws the errors of verifying the signature. */
  async openCopy(digest: Digest, context: Context): Promise<CachedBundle | undefined> {
    const path = replicaPath(this.#folder, digest);
    const found = await stat(path).catch(() => undefined);
    return found && this.#open({ path, device: this.#folder }, digest, context, () => Promise.resolve());
  }

  /**
   * Reads a bundle on a medium completely, and verifies its digest and the signature of its release. Throws
   * `digest-mismatch`, `interrupted`, and the errors of reading it and of checking signatures.
   */
  async verify(found: Pick<FoundBundle, 'path' | 'device'>, digest: Digest, context: Context): Promise<CachedBundle> {
    const known = this.#digests.get(found);
    // Another bundle stays another one until its medium changes.
    if (known !== undefined && known !== digest) compareDigest(found.path, known, digest);
    return this.#open(found, digest, context, async (bundle) => {
      const read = await hashBundle(bundle, context);
      this.#digests.set(found, read);
      compareDigest(bundle.path, read, digest);
    });
  }

  /** Adds the base blobs that were fetched to an open delta bundle. Throws the errors of opening their file. */
  async addBaseBlobs({ bundle, facts }: CachedBundle, context: Context): Promise<CachedBundle> {
    return { bundle: await this.#addFetched(bundle, facts.digest, context), facts };
  }

  /**
   * Reads a bundle and its base blobs completely, and returns whether their digests still match. Throws `interrupted`.
   */
  async isWhole({ bundle, facts }: CachedBundle, context: Context): Promise<boolean> {
    try {
      await checkBundleDigest(bundle, facts.digest, context);
      await checkBaseBlobs(bundle, context);
      return true;
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      context.log('warn', messageOf(error));
      return false;
    }
  }

  /**
   * Copies an open bundle to the folder, and the base blobs of a delta bundle, and opens the copy. The copy gets its final name only if its
   * digest matches. Throws `disk-full` before it would fill three quarters of the file system, because kubelets remove
   * images above that, and the errors of reading and writing.
   */
  async keep({ bundle, facts: { digest } }: CachedBundle, context: Context): Promise<CachedBundle | undefined> {
    if (!bundle.chunks) return undefined;
    const base = await serveBaseBlobs(bundle);
    await requireShare(this.#folder, bundle.size + (base?.size ?? 0));
    if (base) await copyToFile(base.chunks(0, base.size), baseBlobsPath(this.#folder, digest), undefined, context);
    await copyToFile(bundle.chunks(0, bundle.size), replicaPath(this.#folder, digest), digest, context);
    return this.openCopy(digest, context);
  }

  /** Checks that a copy for a mirror leaves a quarter of the file system free. Throws `disk-full`. */
  async requireShare(facts: BundleFacts | undefined): Promise<void> {
    if (facts) await requireShare(this.#folder, facts.metadata.size);
  }

  /** Returns the digests of the copies with a release that is among some releases. Reads the facts of each copy. */
  async findCopies(releases: ReadonlySet<string>, context: Context): Promise<Digest[]> {
    const names = await readdir(this.#folder).catch(() => []);
    const found: Digest[] = [];
    for (const name of names.filter((each) => /^bundle-[0-9a-f]{12}\.json$/.test(each))) {
      const facts = await readFactsOf(join(this.#folder, name), this.#trust, context);
      const all = facts && [facts.metadata.release, ...(facts.hops ?? []).map(({ metadata }) => metadata.release)];
      if (facts && all?.some((release) => releases.has(digestIn(release)))) found.push(facts.digest);
    }
    return found;
  }

  /** Removes a corrupt copy, and the base blobs that were fetched with it. */
  async drop({ bundle, facts }: CachedBundle, context: Context): Promise<void> {
    context.log('warn', `${bundle.path} is corrupt: it is removed`);
    for (const pathOf of [replicaPath, baseBlobsPath]) await rm(pathOf(this.#folder, facts.digest), { force: true });
  }

  /** Removes the copies and facts of all bundles except the named ones. */
  async discard(kept: ReadonlySet<Digest>, context: Context): Promise<void> {
    const names = (await readdir(this.#folder).catch(() => [])).filter((name) => /^bundle-[0-9a-f]{12}\./.test(name));
    const stems = [...kept].map((digest) => replicaPath('', digest).replace(/tar$/, ''));
    for (const name of names.filter((each) => !stems.some((stem) => each.startsWith(stem)))) {
      context.log('info', `${name} is no longer needed`);
      await rm(join(this.#folder, name), { force: true });
    }
  }

  async #open(
    { path, device }: Pick<FoundBundle, 'path' | 'device'>,
    digest: Digest,
    context: Context,
    check: (bundle: Bundle) => Promise<void>,
  ): Promise<CachedBundle> {
    const bundle = await openBundle(path, context, { onMedium: isFileOn({ device }, path) });
    try {
      await check(bundle);
      const facts = await gatherFacts(bundle, digest, this.#factsPath(digest), this.#trust, context);
      return { bundle: await this.#addFetched(await addBases(bundle, [], context), digest, context), facts };
    } catch (error) {
      await bundle[Symbol.asyncDispose]();
      throw error;
    }
  }

  async #addFetched(bundle: Bundle, digest: Digest, context: Context): Promise<Bundle> {
    const { base } = bundle.metadata;
    if (!base || (await listMissingBlobs(bundle)).length === 0) return bundle;
    const content = await openBaseBlobs(baseBlobsPath(this.#folder, digest), base.blobs, context);
    if (!content) return bundle;
    const close = async (): Promise<void> => {
      await content.close();
      await bundle[Symbol.asyncDispose]();
    };
    return { ...addContents(bundle, [{ content }]), [Symbol.asyncDispose]: close };
  }

  #factsPath(digest: Digest): string {
    return replicaPath(this.#folder, digest).replace(/tar$/, 'json');
  }
}
