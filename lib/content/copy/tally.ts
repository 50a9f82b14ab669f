import type { Context, TransferEvent } from '#context';
import type { Digest } from '../oci/reference.ts';
import { blobsOf, walkManifests, type StoredManifests } from '../store/imageGraph.ts';
import type { Image } from './copy.ts';

/** The numbers of copied, mounted and skipped blobs, and the bytes that were moved. */
export interface CopyCounts {
  readonly blobs: { readonly copied: number; readonly mounted: number; readonly skipped: number };
  readonly bytes: number;
}

/** The blobs for one destination, with their sizes in bytes. */
interface Account {
  readonly manifests: StoredManifests;
  readonly blobs: ReadonlyMap<Digest, number>;
  readonly settled: Set<string>;
  readonly moving: Set<string>;
  /** The blobs that were copied or mounted. A registry without HEAD gets some of them twice. */
  readonly arrived: Set<string>;
}

/** Counts the blobs of some copies, and forwards their events. Corrects the plan by content that already exists. */
export class CopyTally {
  readonly #accounts: readonly Account[];
  readonly #onEvent: Context['onEvent'];
  readonly #images: number;
  readonly #number: number;
  readonly #total: number;
  #present = 0;
  #copied = 0;
  #mounted = 0;
  #bytes = 0;

  /** Emits the plan. Each copy is the list of images for one destination. */
  constructor(copies: readonly (readonly Image[])[], onEvent: Context['onEvent']) {
    this.#accounts = copies.map(openAccount);
    this.#onEvent = onEvent;
    this.#images = copies.flat().filter(({ isAttachment }) => isAttachment !== true).length;
    const sizes = this.#accounts.flatMap(({ blobs }) => [...blobs.values()]);
    this.#number = sizes.length;
    this.#total = sizes.reduce((sum, size) => sum + size, 0);
    this.#plan();
  }

  listenTo(copy: number): Context['onEvent'] {
    const account = this.#accounts[copy];
    return (event) => {
      if (account) this.#count(event, account);
      this.#onEvent(event);
    };
  }

  /** Returns the counts so far. Blobs that were neither copied nor mounted count as skipped. */
  counts(): CopyCounts {
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
        break;
      case 'stored':
      case 'mounted':
        if (!account.blobs.has(event.digest as Digest) || account.arrived.has(event.digest)) break;
        account.arrived.add(event.digest);
        if (event.kind === 'stored') this.#copied += 1;
        else this.#mounted += 1;
        this.#settle(event.digest as Digest, account);
        if (event.kind === 'mounted') this.#plan();
        break;
      case 'image':
      case 'manifests':
      case 'plan':
        break;
    }
  }

  /** Counts a manifest and all content below it as present. */
  #skip(digest: Digest, account: Account): void {
    for (const { digest: each, children } of walkManifests(digest, (name) => account.manifests.get(name)?.manifest)) {
      for (const below of [each, ...children.map((child) => child.digest)]) this.#settle(below, account);
    }
    this.#plan();
  }

  /** Counts a blob as present, unless its bytes were counted as they moved. */
  #settle(digest: Digest, { blobs, settled, moving }: Account): void {
    if (settled.has(digest)) return;
    settled.add(digest);
    if (!moving.has(digest)) this.#present += blobs.get(digest) ?? 0;
  }

  #plan(): void {
    const plan = { images: this.#images, blobs: this.#number, bytes: this.#total };
    this.#onEvent({ kind: 'plan', ...plan, present: this.#present });
  }
}

function openAccount(images: readonly Image[]): Account {
  const manifests = new Map([...new Set(images.map((image) => image.manifests))].flatMap((each) => [...each]));
  const blobs = new Map(blobsOf(manifests.values()).map(({ digest, size }) => [digest, size]));
  return { manifests, blobs, settled: new Set(), moving: new Set(), arrived: new Set() };
}
