import { identityOf, type FoundBundle } from '../../node/media/medium.ts';
import type { Digest } from '../../oci/digest.ts';
import type { BundleFacts } from '../bundleFacts.ts';

/** What is known of a medium: `unreadable` is one with the bundle that could not be read to its end, or is damaged. */
export type MediumState = 'verified' | 'another' | 'unreadable';

/** What one node has found out about its media, for one bundle that is allowed: by where they are and what they say of themselves. */
export class MediaStates {
  /** What is known of the bundle by now. */
  facts: BundleFacts | undefined;
  readonly #digest: Digest;
  readonly #verdicts = new Map<string, Exclude<MediumState, 'unreadable'>>();
  /** Not read again until they change, and are other objects then. */
  readonly #unreadable = new WeakSet<FoundBundle>();
  #seen = '';

  constructor(digest: Digest) {
    this.#digest = digest;
  }

  /** Forgets what is gone; whether the media are others than the last time. */
  update(found: readonly FoundBundle[]): boolean {
    const present = new Set(found.map(keyOf));
    for (const key of this.#verdicts.keys()) if (!present.has(key)) this.#verdicts.delete(key);
    const seen = [...present].sort().join();
    const isNew = seen !== this.#seen;
    this.#seen = seen;
    return isNew;
  }

  /** What is known of a medium; undefined for one that has to be verified. */
  judge(found: FoundBundle): MediumState | undefined {
    if (this.facts && identityOf(this.facts.metadata) !== found.identity) return 'another';
    if (found.digest !== undefined && found.digest !== this.#digest) return 'another';
    return this.#unreadable.has(found) ? 'unreadable' : this.#verdicts.get(keyOf(found));
  }

  /** The bundle that should not be there: another one, but for what may be the base of the one that is meant. */
  findStray(found: readonly FoundBundle[]): FoundBundle | undefined {
    const meant = found.filter((each) => this.judge(each) !== 'another');
    const isBase = ({ version, arch }: FoundBundle): boolean =>
      meant.some((each) => each.base === version && each.arch === arch);
    return found.find((each) => !meant.includes(each) && !isBase(each));
  }

  /** Whether a medium has the bundle by all that it says of itself: one with another digest is damaged. */
  isMeant(found: FoundBundle): boolean {
    return found.digest === this.#digest || this.facts !== undefined;
  }

  set(found: FoundBundle, verdict: MediumState): void {
    if (verdict === 'unreadable') this.#unreadable.add(found);
    else this.#verdicts.set(keyOf(found), verdict);
  }
}

function keyOf({ path, identity }: FoundBundle): string {
  return `${path} ${identity}`;
}
