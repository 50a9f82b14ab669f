import type { Context } from '../../context.ts';
import type { ServedResponse } from '../../content/server/server.ts';
import { mostReported, type MirrorState } from '../nodeReport.ts';
import type { RetainedBundles } from './retainedBundles.ts';
import type { RetainedContent } from './retainedContent.ts';

/** The largest number of requested images to remember. */
const mostMissing = 1000;

/** The requests to a mirror. Logs each image once that was requested and is not retained. */
export class MirrorRequests {
  readonly #context: Context;
  readonly #missing = new Set<string>();
  #answered = 0;

  constructor(context: Context) {
    this.#context = context;
  }

  /** Counts a response. Requests of controllers do not count: they ask in advance. */
  readonly count = ({ method, status, path, client }: ServedResponse): void => {
    const [, repository = '', reference] = /^\/v2\/(.+)\/manifests\/([^/?]+)/.exec(path) ?? [];
    if (reference === undefined || reference.endsWith('.sig') || client.startsWith('oc-disconnected')) return;
    if (status === 200 && method === 'GET') this.#answered += 1;
    const image = `${repository}${reference.includes(':') ? '@' : ':'}${reference}`;
    if (status !== 404 || this.#missing.has(image) || this.#missing.size >= mostMissing) return;
    this.#missing.add(image);
    this.#context.log('warn', `not retained: ${image}, requested by ${client}`);
  };

  /** Returns the state of the mirror, which also lacks withdrawn images. Forgets images that are retained now. */
  describe(
    { versions, sizes }: Pick<RetainedBundles, 'versions' | 'sizes'>,
    content: RetainedContent,
    port: number,
  ): MirrorState {
    for (const image of this.#missing)
      if (content.has(image.slice(image.indexOf('@') + 1))) this.#missing.delete(image);
    const partial = content.kept !== 'all' && { content: content.kept };
    const missing = [...this.#missing];
    const unnamed = content.withdrawn.filter((digest) => !missing.some((image) => image.endsWith(digest)));
    const lacking = [...unnamed, ...missing].slice(-mostReported);
    return { versions, port, ...partial, sizes, requests: this.#answered, lacking };
  }
}
