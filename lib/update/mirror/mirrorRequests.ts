import type { ServedResponse } from '#content/server';
import type { Context } from '#context';
import { mostReported, type MirrorState } from '../record/nodeReport.ts';
import type { RetainedBundles } from './retainedBundles.ts';
import type { RetainedContent } from './retainedContent.ts';

/** The largest number of missing images to remember of one address, the newest, and of addresses. */
const most = { images: 50, addresses: 64 } as const;
/** The largest number of missing images that are logged for one address in an hour. */
const mostLogged = 50;
const hour = 3_600_000;

/** The missing images that an address requested, the newest last. */
interface Requester {
  readonly images: Set<string>;
  logged: number;
  since: number;
}

/**
 * The requests to a mirror. Logs images that were requested and are not retained. Each address has a share of its own,
 * so that one of them cannot hide what others miss.
 */
export class MirrorRequests {
  readonly #context: Context;
  /** By address, the one with the newest request last. */
  readonly #requesters = new Map<string, Requester>();
  #answered = 0;

  constructor(context: Context) {
    this.#context = context;
  }

  /** Counts a response. Requests of controllers do not count: they ask in advance. */
  readonly count = ({ method, status, path, client, address }: ServedResponse): void => {
    const [, repository = '', reference] = /^\/v2\/(.+)\/manifests\/([^/?]+)/.exec(path) ?? [];
    if (reference === undefined || reference.endsWith('.sig') || client.startsWith('oc-disconnected')) return;
    if (status === 200 && method === 'GET') this.#answered += 1;
    if (status === 404) this.#note(`${repository}${reference.includes(':') ? '@' : ':'}${reference}`, address, client);
  };

  #note(image: string, address: string, client: string): void {
    const isKnown = [...this.#requesters.values()].some(({ images }) => images.has(image));
    const requester = this.#requesters.get(address) ?? { images: new Set(), logged: 0, since: performance.now() };
    // The newest is last.
    this.#requesters.delete(address);
    this.#requesters.set(address, requester);
    requester.images.delete(image);
    requester.images.add(image);
    removeOldest(requester.images, most.images);
    removeOldest(this.#requesters, most.addresses);
    if (performance.now() - requester.since > hour) Object.assign(requester, { logged: 0, since: performance.now() });
    if (isKnown || requester.logged >= mostLogged) return;
    requester.logged += 1;
    this.#context.log('warn', `not retained: ${image}, requested by ${client} at ${address}`);
  }

  /** Returns the state of the mirror, which also lacks withdrawn images. Forgets images that are retained now. */
  describe(
    { versions, sizes }: Pick<RetainedBundles, 'versions' | 'sizes'>,
    content: RetainedContent,
    port: number,
  ): MirrorState {
    for (const { images } of this.#requesters.values())
      for (const image of images) if (content.has(image.slice(image.indexOf('@') + 1))) images.delete(image);
    const partial = content.kept !== 'all' && { content: content.kept };
    const missing = this.#listMissing();
    const unnamed = content.withdrawn.filter((digest) => !missing.some((image) => image.endsWith(digest)));
    const lacking = [...unnamed, ...missing].slice(-mostReported);
    return { versions, port, ...partial, sizes, requests: this.#answered, lacking };
  }

  /** Lists the missing images: the newest of each address last, before those the one before it, and so on. */
  #listMissing(): string[] {
    const newest = [...this.#requesters.values()].map(({ images }) => [...images].toReversed());
    const longest = Math.max(0, ...newest.map(({ length }) => length));
    const inTurn = Array.from({ length: longest }, (_, rank) => newest.flatMap((images) => images[rank] ?? []));
    return [...new Set(inTurn.flat())].toReversed();
  }
}

/** Removes the first keys of a set or map above a number. */
function removeOldest(entries: Set<string> | Map<string, unknown>, limit: number): void {
  const surplus = [...entries.keys()].slice(0, Math.max(0, entries.size - limit));
  for (const key of surplus) entries.delete(key);
}
