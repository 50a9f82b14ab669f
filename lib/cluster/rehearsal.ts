import { PluginError } from '../errors.ts';
import { fieldsAt, fieldsOf, isFields, listOf, textOf, type Fields } from '../fields.ts';

/** One request to an API server. `path` is below the server’s URL, and encoded. */
export interface ApiRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: unknown;
  /** The media type of the body; default `application/json`. */
  readonly contentType?: string;
  /** The media type of the response; default `application/json`. */
  readonly accept?: string;
}

/** The kinds of a dry run: the server checks each write and keeps nothing, or gets none. */
export type DryRunMode = 'client' | 'server';

/**
 * Keeps the writes of a dry run from taking effect. Later reads of the same run see what they would have done: objects by
 * their paths, and lists of one namespace or of a kind without namespaces. Other commands and watches see nothing.
 */
export class Rehearsal {
  readonly #mode: DryRunMode;
  /** The objects that were written, by their paths; undefined for a deleted one. */
  readonly #written = new Map<string, Fields | undefined>();

  constructor(mode: DryRunMode) {
    this.#mode = mode;
  }

  /** Answers a request, with what `send` returns for it if the server is asked. Throws `not-found` for a deleted object. */
  async answer(request: ApiRequest, send: (request: ApiRequest) => Promise<unknown>): Promise<unknown> {
    const { method, path } = request;
    // A SelfSubjectAccessReview and its like only ask.
    if (path.endsWith('reviews')) return await send(request);
    if (method === 'GET') return await this.#read(request, send);
    const key = method === 'POST' ? `${path}/${nameOf(request.body)}` : path;
    const isOwn = this.#written.has(key);
    const isAsked = this.#mode === 'server' && !isOwn;
    if (method === 'DELETE') {
      const before = isOwn ? this.#written.get(key) : await send({ method: 'GET', path });
      if (isAsked) await send({ ...request, body: { ...fieldsOf(request.body), dryRun: ['All'] } });
      this.#written.set(key, undefined);
      return before;
    }
    const object = isAsked
      ? await send({ ...request, query: { ...request.query, dryRun: 'All' } })
      : await this.#simulate(request, send);
    this.#written.set(key, fieldsOf(object));
    return object;
  }

  async #read(request: ApiRequest, send: (request: ApiRequest) => Promise<unknown>): Promise<unknown> {
    const { path } = request;
    if (this.#written.has(path)) {
      const object = this.#written.get(path);
      if (object) return object;
      throw new PluginError('not-found', `${path} is deleted in this dry run`);
    }
    const own = [...this.#written].filter(([key]) => key.slice(0, key.lastIndexOf('/')) === path);
    const answer = await send(request);
    if (own.length === 0 || !isFields(answer)) return answer;
    const names = new Set(own.map(([key]) => key.slice(path.length + 1)));
    const others = listOf(answer['items']).filter((item) => !names.has(nameOf(item)));
    return { ...answer, items: [...others, ...own.flatMap(([, object]) => object ?? [])] };
  }

  /** Returns the object as a write would leave it, without defaults of the server. */
  async #simulate(
    { method, path, body }: ApiRequest,
    send: (request: ApiRequest) => Promise<unknown>,
  ): Promise<unknown> {
    if (method !== 'PATCH') return body;
    return mergePatch(await this.#read({ method: 'GET', path }, send), body);
  }
}

function nameOf(object: unknown): string {
  return textOf(fieldsAt(object, 'metadata')['name']) ?? '';
}

/** Applies a merge patch (RFC 7386). */
function mergePatch(target: unknown, patch: unknown): unknown {
  if (!isFields(patch)) return patch;
  const merged = new Map(Object.entries(fieldsOf(target)));
  for (const [key, value] of Object.entries(patch)) {
    if (value === null) merged.delete(key);
    else merged.set(key, mergePatch(merged.get(key), value));
  }
  return Object.fromEntries(merged);
}
