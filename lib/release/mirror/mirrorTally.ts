import type { Context, TransferEvent } from '../../context.ts';
import type { Descriptor } from '../../oci/descriptor.ts';
import type { Digest } from '../../oci/digest.ts';
import { blobsOf } from '../../store/imageTree.ts';
import type { MirrorGroup } from './mirrorGroup.ts';

/** What became of the blobs of a mirror run, and how many bytes were moved. */
export interface MirrorCounts {
  readonly blobs: { readonly copied: number; readonly mounted: number; readonly skipped: number };
  readonly bytes: number;
}

/** What is known of the blobs for one repository. */
interface Account {
  readonly blobs: ReadonlyMap<Digest, Descriptor>;
  readonly children: ReadonlyMap<Digest, readonly Descriptor[]>;
  readonly settled: Set<string>;
  readonly moving: Set<string>;
}

/** Counts what becomes of the blobs of a mirror run, and tells a listener the plan as it turns out: what is there need not be moved. */
export class MirrorTally {
  readonly #accounts: ReadonlyMap<MirrorGroup, Account>;
  readonly #onEvent: Context['onEvent'];
  readonly #images: number;
  /** How many blobs there are, and their size in bytes. */
  readonly #number: number;
  readonly #total: number;
  #present = 0;
  #copied = 0;
  #mounted = 0;
  #bytes = 0;

  /** Announces the plan at once. */
  constructor(groups: readonly MirrorGroup[], onEvent: Context['onEvent']) {
    this.#accounts = new Map(groups.map((group) => [group, openAccount(group)]));
    this.#onEvent = onEvent;
    this.#images = groups.reduce((sum, { images }) => sum + images.length, 0);
    const blobs = [...this.#accounts.values()].flatMap((account) => [...account.blobs.values()]);
    this.#number = blobs.length;
    this.#total = blobs.reduce((sum, { size }) => sum + size, 0);
    this.#plan();
  }

  /** Gives the listener for the copy of one group. */
  listenTo(group: MirrorGroup): Context['onEvent'] {
    const account = this.#accounts.get(group) ?? openAccount(group);
    const names = new Set(group.images.map(({ image }) => image.name));
    return (event) => {
      // Attachments are not counted as images.
      if (event.kind === 'image' && !names.has(event.name)) return;
      this.#count(event, account);
      this.#onEvent(event);
    };
  }

  /** The counts so far; what was neither copied nor mounted was there. */
  counts(): MirrorCounts {
    const [copied, mounted] = [this.#copied, this.#mounted];
    return { blobs: { copied, mounted, skipped: this.#number - copied - mounted }, bytes: this.#bytes };
  }

  #count(event: TransferEvent, account: Account): void {
    switch (event.kind) {
      case 'bytes':
        account.moving.add(event.digest);
        this.#bytes += event.bytes;
        break;
      case 'skipped':
        this.#skip(event.digest as Digest, account);
        this.#plan();
        break;
      case 'stored':
        this.#store(event.digest as Digest, account);
        break;
      case 'image':
      case 'plan':
        break;
    }
  }

  #store(digest: Digest, { blobs, settled, moving }: Account): void {
    const blob = blobs.get(digest);
    if (!blob || settled.has(digest)) return;
    settled.add(digest);
    // What arrived without a byte having moved was taken over from another repository.
    if (moving.has(digest) || blob.size === 0) {
      this.#copied += 1;
    } else {
      this.#mounted += 1;
      this.#present += blob.size;
      this.#plan();
    }
  }

  /** A manifest that is there has everything below it there. */
  #skip(digest: Digest, account: Account): void {
    if (account.settled.has(digest)) return;
    account.settled.add(digest);
    if (!account.moving.has(digest)) this.#present += account.blobs.get(digest)?.size ?? 0;
    for (const child of account.children.get(digest) ?? []) this.#skip(child.digest, account);
  }

  #plan(): void {
    const plan = { images: this.#images, blobs: this.#number, bytes: this.#total };
    this.#onEvent({ kind: 'plan', ...plan, present: this.#present });
  }
}

function openAccount({ images }: MirrorGroup): Account {
  return {
    blobs: new Map(images.flatMap(({ tree }) => [...blobsOf(tree)])),
    children: new Map(images.flatMap(({ tree }) => [...tree.children])),
    settled: new Set(),
    moving: new Set(),
  };
}
