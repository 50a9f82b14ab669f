import type { Digest } from '#content/oci';
import { identityOf, type FoundBundle } from '#node/media';
import type { BundleFacts } from '../record/bundleFacts.ts';

/** The state of a medium. `unreadable`: it has the allowed bundle, but cannot be read to its end or is corrupt. */
export type MediumState = 'verified' | 'another' | 'unreadable';

/** The states of the media of one node for one allowed bundle, by path and by the identity that the media state. */
export class MediaStates {
  /** The verified facts about the allowed bundle; undefined until they are known. */
  facts: BundleFacts | undefined;
  readonly #digest: Digest;
  readonly #states = new Map<string, Exclude<MediumState, 'unreadable'>>();
  /** Why media have another bundle, with both digests. */
  readonly #reasons = new Map<string, string>();
  /** Keyed by object: a changed medium is another object, and is read again. */
  readonly #unreadable = new WeakSet<FoundBundle>();
  #present = '';

  constructor(digest: Digest) {
    this.#digest = digest;
  }

  /** Forgets removed media. Returns whether a medium was inserted or removed since the last call. */
  update(media: readonly FoundBundle[]): boolean {
    const keys = new Set(media.map(keyOf));
    for (const key of this.#states.keys()) if (!keys.has(key)) this.#states.delete(key);
    const present = [...keys].sort().join();
    const isChanged = present !== this.#present;
    this.#present = present;
    return isChanged;
  }

  /** Returns the state of a medium; undefined if the medium is not verified yet. */
  stateOf(medium: FoundBundle): MediumState | undefined {
    if (this.facts && identityOf(this.facts.metadata) !== medium.identity) return 'another';
    if (medium.digest !== undefined && medium.digest !== this.#digest) return 'another';
    return this.#unreadable.has(medium) ? 'unreadable' : this.#states.get(keyOf(medium));
  }

  /**
   * Returns a medium that is not verified yet: first one that states the allowed version, because reading takes long.
   */
  nextToVerify(media: readonly FoundBundle[], version: string | undefined): FoundBundle | undefined {
    const unverified = media.filter((each) => this.stateOf(each) === undefined);
    return unverified.find((each) => each.version === version) ?? unverified[0];
  }

  /** Forgets which media were verified, so that one of them is read again. */
  forgetVerified(): void {
    for (const [key, state] of this.#states) if (state === 'verified') this.#states.delete(key);
  }

  /** Describes a bundle that is not the allowed one, with both digests; undefined if there is none. */
  describeOther(media: readonly FoundBundle[]): string | undefined {
    const other = this.#findOther(media);
    if (!other) return undefined;
    const stated =
      other.digest === undefined
        ? `${describeFound(other)} is not the allowed bundle`
        : `${describeFound(other)} has the digest ${other.digest}, and ${this.#digest} is allowed`;
    return `${this.#reasons.get(keyOf(other)) ?? stated}: it is ignored`;
  }

  /**
   * Finds a bundle that is not the allowed one. Ignores a bundle that may be the base release of the allowed delta
   * bundle.
   */
  #findOther(media: readonly FoundBundle[]): FoundBundle | undefined {
    const expected = media.filter((each) => this.stateOf(each) !== 'another');
    const isBase = ({ version, arch }: FoundBundle): boolean =>
      expected.some((each) => each.base === version && each.arch === arch);
    return media.find((each) => !expected.includes(each) && !isBase(each));
  }

  /** Returns whether a medium states that it has the allowed bundle. If its digest differs, the medium is corrupt. */
  isExpected(medium: FoundBundle): boolean {
    return medium.digest === this.#digest || this.facts !== undefined;
  }

  /** Notes the state of a medium. `reason`: why it has another bundle. */
  set(medium: FoundBundle, state: MediumState, reason?: string): void {
    if (reason !== undefined) this.#reasons.set(keyOf(medium), reason);
    if (state === 'unreadable') this.#unreadable.add(medium);
    else this.#states.set(keyOf(medium), state);
  }
}

function keyOf({ path, identity }: FoundBundle): string {
  return `${path} ${identity}`;
}

/** Returns the name of a bundle on a medium for messages. */
export function describeFound({ version, arch, path, device }: FoundBundle): string {
  return `${version} ${arch} on ${path.startsWith('/dev/') ? path : device}`;
}
