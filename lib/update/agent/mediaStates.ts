import { identityOf, type FoundBundle } from '../../node/media/medium.ts';
import type { Digest } from '../../oci/digest.ts';
import type { BundleFacts } from '../bundleFacts.ts';

/** The state of a medium. `unreadable`: it has the allowed bundle, but cannot be read to its end or is corrupt. */
export type MediumState = 'verified' | 'another' | 'unreadable';

/** The states of the media of one node for one allowed bundle, by path and by what the media say about themselves. */
export class MediaStates {
  /** The verified facts about the allowed bundle; undefined until they are known. */
  facts: BundleFacts | undefined;
  readonly #digest: Digest;
  readonly #states = new Map<string, Exclude<MediumState, 'unreadable'>>();
  /** By object: a medium that changes is another object, and is read again. */
  readonly #unreadable = new WeakSet<FoundBundle>();
  #present = '';

  constructor(digest: Digest) {
    this.#digest = digest;
  }

  /** Forgets removed media. Returns whether any medium came or went since the last call. */
  update(found: readonly FoundBundle[]): boolean {
    const keys = new Set(found.map(keyOf));
    for (const key of this.#states.keys()) if (!keys.has(key)) this.#states.delete(key);
    const present = [...keys].sort().join();
    const isChanged = present !== this.#present;
    this.#present = present;
    return isChanged;
  }

  /** Returns the state of a medium; undefined for one that has to be verified. */
  stateOf(found: FoundBundle): MediumState | undefined {
    if (this.facts && identityOf(this.facts.metadata) !== found.identity) return 'another';
    if (found.digest !== undefined && found.digest !== this.#digest) return 'another';
    return this.#unreadable.has(found) ? 'unreadable' : this.#states.get(keyOf(found));
  }

  /** Finds another bundle than the allowed one; its possible base release is not reported. */
  findOther(found: readonly FoundBundle[]): FoundBundle | undefined {
    const expected = found.filter((each) => this.stateOf(each) !== 'another');
    const isBase = ({ version, arch }: FoundBundle): boolean =>
      expected.some((each) => each.base === version && each.arch === arch);
    return found.find((each) => !expected.includes(each) && !isBase(each));
  }

  /** Returns whether a medium has the allowed bundle by all that it says: if its digest differs, it is corrupt. */
  isExpected(found: FoundBundle): boolean {
    return found.digest === this.#digest || this.facts !== undefined;
  }

  set(found: FoundBundle, state: MediumState): void {
    if (state === 'unreadable') this.#unreadable.add(found);
    else this.#states.set(keyOf(found), state);
  }
}

function keyOf({ path, identity }: FoundBundle): string {
  return `${path} ${identity}`;
}
