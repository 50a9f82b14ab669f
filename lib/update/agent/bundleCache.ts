import { readdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { openBundle } from '../../bundle/open.ts';
import { type Bundle } from '../../bundle/bundle.ts';
import type { VerifyTrust } from '../../bundle/signatureCheck.ts';
import type { Context } from '../../context.ts';
import { isPluginError, messageOf } from '../../errors.ts';
import { isFileOn, type FoundBundle } from '../../node/media/medium.ts';
import { checkBundleDigest, replicaPath } from '../../node/replica.ts';
import type { Digest } from '../../oci/digest.ts';
import { gatherFacts, recallFacts, type BundleFacts } from '../bundleFacts.ts';

/** A bundle that a node has at hand, and what was found out about it when it was verified. */
export interface CachedBundle {
  readonly bundle: Bundle;
  readonly facts: BundleFacts;
}

/**
 * What a node keeps of bundles from one start to the next, in one folder: copies that came from other nodes, and the facts of those that were
 * verified. A copy has its final name only if its digest is right, and facts are kept of verified bundles only.
 */
export class BundleCache {
  readonly #folder: string;
  readonly #trust: VerifyTrust;

  constructor(folder: string, trust: VerifyTrust) {
    this.#folder = folder;
    this.#trust = trust;
  }

  /** Where copies go. */
  get folder(): string {
    return this.#folder;
  }

  /**
   * Reads the facts of a bundle that this node has verified before, also if the bundle is gone since, and verifies the signature again. Throws what
   * recallFacts does.
   */
  recall(digest: Digest, context: Context): Promise<BundleFacts | undefined> {
    return recallFacts(this.#factsPath(digest), digest, this.#trust, context);
  }

  /** Opens the copy of a bundle; undefined where there is none. Throws what verifying the signature does. */
  async openCopy(digest: Digest, context: Context): Promise<CachedBundle | undefined> {
    const path = replicaPath(this.#folder, digest);
    const found = await stat(path).catch(() => undefined);
    return found && this.#open({ path, device: this.#folder }, digest, context, () => Promise.resolve());
  }

  /**
   * Verifies a bundle on a medium, which takes reading it whole: its digest, and who signed the release in it. Throws
   * `digest-mismatch`, `interrupted`, and what reading it and checking signatures throw.
   */
  async verify(found: Pick<FoundBundle, 'path' | 'device'>, digest: Digest, context: Context): Promise<CachedBundle> {
    return this.#open(found, digest, context, (bundle) => checkBundleDigest(bundle, digest, context));
  }

  /** Reads a bundle whole once more: whether it is what it was. Throws `interrupted`. */
  async isWhole({ bundle, facts }: CachedBundle, context: Context): Promise<boolean> {
    try {
      await checkBundleDigest(bundle, facts.digest, context);
      return true;
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      context.log('warn', messageOf(error));
      return false;
    }
  }

  /** Removes a copy that is damaged. */
  async drop({ bundle, facts }: CachedBundle, context: Context): Promise<void> {
    context.log('warn', `${bundle.path} is damaged: it is removed`);
    await rm(replicaPath(this.#folder, facts.digest), { force: true });
  }

  /** Removes everything of bundles but of those that are named. */
  async discard(kept: ReadonlySet<Digest>, context: Context): Promise<void> {
    const names = (await readdir(this.#folder).catch(() => [])).filter((name) => /^bundle-[0-9a-f]{12}\./.test(name));
    const stems = [...kept].map((digest) => replicaPath('', digest).replace(/tar$/, ''));
    for (const name of names.filter((each) => !stems.some((stem) => each.startsWith(stem)))) {
      context.log('info', `${name} is not needed any more`);
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
      return { bundle, facts: await gatherFacts(bundle, digest, this.#factsPath(digest), this.#trust, context) };
    } catch (error) {
      await bundle.close();
      throw error;
    }
  }

  #factsPath(digest: Digest): string {
    return replicaPath(this.#folder, digest).replace(/tar$/, 'json');
  }
}
