import { Readable } from 'node:stream';
import { ignoring, isPluginError, PluginError } from '#errors';
import { parseAttachmentTag } from '../oci/attachment.ts';
import { manifestSizeLimit, type Descriptor } from '../oci/descriptor.ts';
import type { Digest } from '../oci/reference.ts';
import { readContent, type ContentSource } from '../store/store.ts';

/**
 * Tries one source after the other until an action succeeds. Throws the messages of all with the code of the last, or
 * `not-found` if all reachable sources throw that. `interrupted` and a full or failing disk stop it immediately.
 */
export async function firstSuccess<Source extends { readonly name: string }, Result>(
  sources: readonly Source[],
  action: (source: Source) => Promise<Result>,
): Promise<Result> {
  const failures: { source: Source; error: PluginError }[] = [];
  for (const source of sources) {
    try {
      return await action(source);
    } catch (error) {
      if (!isPluginError(error) || ['interrupted', 'disk-full', 'not-writable'].includes(error.code)) throw error;
      failures.push({ source, error });
    }
  }
  const last = failures.at(-1)?.error ?? new PluginError('internal', 'there was no source to try');
  if (failures.length < 2) throw last;
  const reached = failures.filter(({ error }) => !isUnreached(error));
  const isNowhere = reached.length > 0 && reached.every(({ error }) => error.code === 'not-found');
  const messages = failures.map(({ source, error: { message } }) => {
    return message.includes(source.name) ? message : `${source.name}: ${message}`;
  });
  throw new PluginError(isNowhere ? 'not-found' : last.code, messages.join('; '), { hint: last.hint, cause: last });
}

function isUnreached({ code }: PluginError): boolean {
  return code === 'unreachable' || code === 'tls';
}

/** A repository with mirrors. Each call uses the first of them that has a result. */
export class FallbackSource implements ContentSource {
  readonly name: string;
  readonly #sources: readonly ContentSource[];
  readonly #onUnreachable: (reason: PluginError) => void;

  /**
   * `sources` are in order of precedence. The last is the repository itself, and gives the name. If the mirrors lack a
   * tag or digest and the repository cannot be reached, `onUnreachable` gets the reason.
   */
  constructor(
    sources: readonly [ContentSource, ...ContentSource[]],
    onUnreachable: (reason: PluginError) => void = () => undefined,
  ) {
    this.#sources = sources;
    this.#onUnreachable = onUnreachable;
    this.name = (sources.at(-1) ?? sources[0]).name;
  }

  async resolve(tagOrDigest: string): Promise<Descriptor> {
    try {
      return await firstSuccess(this.#sources, (source) => source.resolve(tagOrDigest));
    } catch (error) {
      const kind = parseAttachmentTag(tagOrDigest)?.kind ?? 'signature';
      // No cluster misses an SBOM.
      const last = isPluginError(error, 'not-found') && kind === 'signature' ? error.cause : undefined;
      if (isPluginError(last) && isUnreached(last)) this.#onUnreachable(last);
      throw error;
    }
  }

  /**
   * Implements ContentSource. Manifests and other small content that is corrupt in one source is read from the next.
   */
  fetch(descriptor: Descriptor, start = 0): Promise<Readable> {
    return firstSuccess(this.#sources, async (source) => {
      if (start > 0 || descriptor.size > manifestSizeLimit) return source.fetch(descriptor, start);
      return Readable.from([await readContent(source, descriptor)]);
    });
  }

  /** Returns whether a source has the content. Throws the errors of unreachable sources if no source is reachable. */
  async exists(descriptor: Descriptor): Promise<boolean> {
    return (await this.#find(async (source) => (await source.exists(descriptor)) || undefined)) ?? false;
  }

  /** Returns the tags of the first source with tags, because a mirror may lack the repository. */
  async tags(): Promise<string[]> {
    const firstTags = await this.#find(async (source) => {
      const tags = await source.tags();
      return tags.length > 0 ? tags : undefined;
    });
    return firstTags ?? [];
  }

  /** Returns the tags of all sources, because a mirror may lack what the next one has. */
  async knownTags(pages: number): Promise<ReadonlySet<string> | undefined> {
    const all = new Set<string>();
    for (const source of this.#sources) {
      const tags = await source.knownTags?.(pages);
      if (!tags) return undefined;
      for (const tag of tags) all.add(tag);
    }
    return all;
  }

  /** Lists the manifests that refer to an image in the first source that has any. */
  async referrers(subject: Digest): Promise<readonly Descriptor[] | undefined> {
    const answers: (readonly Descriptor[] | undefined)[] = [];
    const firstReferrers = await this.#find(async (source) => {
      const referrers = await source.referrers?.(subject);
      answers.push(referrers);
      return referrers?.length === 0 ? undefined : referrers;
    });
    return firstReferrers ?? (answers.includes(undefined) ? undefined : []);
  }

  async #find<Result>(action: (source: ContentSource) => Promise<Result | undefined>): Promise<Result | undefined> {
    return await firstSuccess(this.#sources, async (source) => {
      const result = await action(source);
      if (result === undefined) throw new PluginError('not-found', `${source.name} does not have it`);
      return result;
    }).catch(ignoring('not-found'));
  }
}
