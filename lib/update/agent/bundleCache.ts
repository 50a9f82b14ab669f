import { readdir, rm, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { openBundle, type Bundle, addBases, addContents, listMissingBlobs, type VerifyTrust } from '#bundle/open';
import { type Digest, digestIn } from '#content/oci';
import type { Context } from '#context';
import { asFailure, PluginError } from '#errors';
import type { BundleOutline } from '#node/contentCheck';
import { isFileOn, type FoundBundle } from '#node/media';
import {
  checkBaseBlobs,
  openBaseBlobs,
  serveBaseBlobs,
  baseBlobsPath,
  checkBundleDigest,
  compareDigest,
  hashBundle,
  readOutline,
  replicaPath,
} from '#node/transfer';
import { formatBytes } from '#text';
import { copyToFile, measureRoom, sumFiles, type RetentionRoom } from '../mirror/mirrorKeeper.ts';
import { gatherFacts, readFacts, readFactsOf, type BundleFacts } from '../record/bundleFacts.ts';

/** An open bundle, with the base blobs of a delta that the node has as files, and its verified facts. */
export interface CachedBundle {
  readonly bundle: Bundle;
  readonly facts: BundleFacts;
}

/** The copy of a bundle for a mirror, and the bytes that it takes. */
interface RetainedCopy {
  readonly facts: BundleFacts;
  readonly bytes: number;
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

  /** Returns whether there is a copy of a bundle. */
  async has(digest: Digest): Promise<boolean> {
    return (await sumFiles([replicaPath(this.#folder, digest)])) > 0;
  }

  /** Opens the copy of a bundle; undefined if there is none. Throws the errors of verifying the signature. */
  async openCopy(digest: Digest, context: Context): Promise<CachedBundle | undefined> {
    const path = replicaPath(this.#folder, digest);
    const stats = await stat(path).catch(() => undefined);
    return stats && this.#open({ path, device: this.#folder }, digest, context, readOutline);
  }

  /**
   * Reads a bundle on a medium completely, and verifies its digest and the signature of its release. `onRead` gets the
   * number of bytes of each part. Throws `digest-mismatch`, `interrupted`, and the errors of reading it and of checking
   * signatures.
   */
  async verify(
    medium: Pick<FoundBundle, 'path' | 'device'>,
    digest: Digest,
    context: Context,
    onRead?: (bytes: number) => void,
  ): Promise<CachedBundle> {
    const earlierDigest = this.#digests.get(medium);
    // Another bundle stays another one until its medium changes.
    if (earlierDigest !== undefined && earlierDigest !== digest) compareDigest(medium.path, earlierDigest, digest);
    return this.#open(medium, digest, context, async (bundle) => {
      const read = await hashBundle(bundle, context, onRead);
      this.#digests.set(medium, read.digest);
      compareDigest(bundle.path, read.digest, digest);
      return read.outline;
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
      context.log('warn', asFailure(error).message);
      return false;
    }
  }

  /**
   * Copies an open bundle to the folder, and the base blobs of a delta bundle, and opens the copy. The copy gets its
   * final name only if its digest matches. Throws the errors of requireRoom, of reading and of writing.
   */
  async keep({ bundle, facts: { digest } }: CachedBundle, context: Context): Promise<CachedBundle | undefined> {
    if (!bundle.chunks) return undefined;
    const base = await serveBaseBlobs(bundle);
    await this.requireRoom(bundle.size + (base?.size ?? 0), context);
    if (base) await copyToFile(base.chunks(0, base.size), baseBlobsPath(this.#folder, digest), undefined, context);
    await copyToFile(bundle.chunks(0, bundle.size), replicaPath(this.#folder, digest), digest, context);
    return this.openCopy(digest, context);
  }

  /** Returns the room for more copies for a mirror. */
  measureRoom(): Promise<RetentionRoom> {
    return measureRoom(this.#folder);
  }

  /** Checks that there is room for a copy for a mirror. Throws `disk-full` with the limit and the present copies. */
  async requireRoom(bytes: number, context: Context): Promise<void> {
    const room = await this.measureRoom();
    if (bytes <= room.bytes) return;
    const copies = (await this.#listCopies(context)).filter((copy) => copy.bytes > 0);
    const taking = copies.map((copy) => `${copy.facts.metadata.version} takes ${formatBytes(copy.bytes)}`);
    const roomWords = `${room.limit} leaves ${formatBytes(Math.max(0, room.bytes))}`;
    const message = [`the bundle for the mirror has ${formatBytes(bytes)}, and ${roomWords}`, ...taking].join('; ');
    throw new PluginError('disk-full', message, { hint: room.hint });
  }

  /**
   * Chooses the copies that a mirror keeps beside a new one of some bytes. `releases`: the digests of the releases that
   * the cluster needs, the running one first. Its copy always stays, and each other one if it fits. Reads the facts of
   * each copy. Returns their digests, and the bytes that are left.
   */
  async chooseCopies(
    releases: readonly string[],
    bytes: number,
    context: Context,
  ): Promise<{ readonly digests: readonly Digest[]; readonly left: number }> {
    const copies = (await this.#listCopies(context)).map((copy) => {
      const { metadata, hops = [] } = copy.facts;
      const own = [metadata, ...hops.map((hop) => hop.metadata)].map(({ release }) =>
        releases.indexOf(digestIn(release)),
      );
      return { ...copy, rank: Math.min(Infinity, ...own.filter((rank) => rank >= 0)) };
    });
    const room = await this.measureRoom();
    let remainingBytes = copies.reduce((total, copy) => total + copy.bytes, room.bytes) - bytes;
    const digests: Digest[] = [];
    for (const { facts, rank, ...copy } of copies.toSorted((a, b) => a.rank - b.rank)) {
      if (rank === Infinity || (rank > 0 && copy.bytes > remainingBytes)) continue;
      remainingBytes -= copy.bytes;
      digests.push(facts.digest);
    }
    return { digests, left: remainingBytes };
  }

  /** Removes a corrupt copy, and the base blobs that were fetched with it. */
  async drop(digest: Digest, context: Context): Promise<void> {
    context.log('warn', `${replicaPath(this.#folder, digest)} is corrupt: it is removed`);
    for (const pathOf of [replicaPath, baseBlobsPath]) await rm(pathOf(this.#folder, digest), { force: true });
  }

  /**
   * Removes the copies and facts of all bundles except the named ones. `keptFacts`: bundles whose facts stay in any
   * case.
   */
  async discard(kept: ReadonlySet<Digest>, context: Context, keptFacts: readonly Digest[] = []): Promise<void> {
    const names = (await readdir(this.#folder).catch(() => [])).filter((name) => /^bundle-[0-9a-f]{12}\./.test(name));
    const stems = [...kept].map((digest) => replicaPath('', digest).replace(/tar$/, ''));
    stems.push(...keptFacts.map((digest) => this.#factsPath(digest)).map((path) => basename(path)));
    for (const name of names.filter((each) => !stems.some((stem) => each.startsWith(stem)))) {
      context.log('info', `${name} is no longer needed`);
      await rm(join(this.#folder, name), { force: true });
    }
  }

  async #listCopies(context: Context): Promise<RetainedCopy[]> {
    const names = await readdir(this.#folder).catch(() => []);
    const copies: RetainedCopy[] = [];
    for (const name of names.filter((each) => /^bundle-[0-9a-f]{12}\.json$/.test(each))) {
      const facts = await readFactsOf(join(this.#folder, name), this.#trust, context);
      const paths = facts && [replicaPath, baseBlobsPath].map((pathOf) => pathOf(this.#folder, facts.digest));
      if (paths) copies.push({ facts, bytes: await sumFiles(paths) });
    }
    return copies;
  }

  async #open(
    { path, device }: Pick<FoundBundle, 'path' | 'device'>,
    digest: Digest,
    context: Context,
    check: (bundle: Bundle) => Promise<BundleOutline | undefined>,
  ): Promise<CachedBundle> {
    const bundle = await openBundle(path, context, { onMedium: isFileOn({ device }, path) });
    try {
      const outline = await check(bundle);
      const facts = await gatherFacts(bundle, digest, this.#factsPath(digest), this.#trust, context, outline);
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
