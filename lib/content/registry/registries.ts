import type { Context } from '#context';
import { PluginError } from '#errors';
import type { Connections } from '../http/connections.ts';
import { fetchFile, type FetchFile } from '../http/fetchFile.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import { formatReference, type Reference } from '../oci/reference.ts';
import type { ContentPlace, ContentSource } from '../store/store.ts';
import type { Credentials } from './auth/credentials.ts';
import { Tokens } from './auth/tokens.ts';
import { FallbackSource } from './fallbackSource.ts';
import type { MirrorSets } from './mirrors.ts';
import type { Registry } from './registry.ts';
import { openSession, type RegistrySession, type RegistrySettings } from './session.ts';
import { DownloadThreads } from './threads.ts';

/** Settings, credentials and mirrors for registries. Mirrors are tried before the original repositories. */
export interface RegistryAccess {
  readonly settings: RegistrySettings;
  readonly credentials: Credentials;
  readonly mirrors: MirrorSets;
}

/** The registries of a run, with one login for reading and writing. */
export class Registries {
  readonly #access: RegistryAccess;
  readonly #context: Context;
  readonly #tokens = Promise.withResolvers<Tokens>();
  readonly #session: RegistrySession;
  readonly #warned = new Set<string>();
  #threads: Promise<DownloadThreads> | undefined;

  constructor(access: RegistryAccess, context: Context) {
    const { settings, credentials } = access;
    this.#access = access;
    this.#context = context;
    this.#session = openSession(
      settings,
      (connections) => {
        const tokens = new Tokens(credentials, connections, context, settings);
        this.#tokens.resolve(tokens);
        return tokens;
      },
      context,
    );
  }

  /** Connections for files that are not in a registry. */
  get connections(): Connections {
    return this.#session.connections;
  }

  /** Gets a file that is not in a registry, with the errors of `fetchFile`. */
  readonly fetchFile: FetchFile = (url, limit) => fetchFile(this.connections, url, limit, this.#context);

  /**
   * Returns the repository of an image for reading, with its mirrors first. Throws `not-found` if it must not be
   * contacted and has no mirror.
   */
  sourceOf(reference: Reference): ContentSource {
    const [first, ...others] = this.#locationsOf(reference).map((location) => this.repository(location));
    if (first) {
      const warn = (reason: PluginError): void => {
        this.#warnOfAbsence(reference, reason);
      };
      return others.length === 0 ? first : new FallbackSource([first, ...others], warn);
    }
    const message = `${formatReference(reference)} must not be pulled from its own registry, and has no mirror`;
    const hint = 'The mirror sets have NeverContactSource for it: add a mirror there.';
    throw new PluginError('not-found', message, { hint });
  }

  /**
   * Returns the original name of an image that is named by a mirror; the image itself if it is in no mirror. Of several
   * originals, returns the preferred repository (REGISTRY/REPOSITORY) or the first.
   */
  originalOf(reference: Reference, preferred?: string): Reference {
    const originals = this.#access.mirrors.originalsOf(reference);
    return originals.find((each) => `${each.registry}/${each.repository}` === preferred) ?? originals[0] ?? reference;
  }

  /** Returns a repository without its mirrors, for reading and writing. */
  repository(reference: Pick<Reference, 'registry' | 'repository'>): Registry {
    return this.#session.repository(reference);
  }

  /** Lists the repositories of a registry. Throws `not-found` and `denied` if the registry does not list them. */
  repositories(registry: string): Promise<string[]> {
    return this.#session.repositories(registry);
  }

  /**
   * Downloads content into its place in a file, or copies it into a repository, in another thread. Its sources are the
   * repositories of references by digest, or their mirrors. `onProgress` gets the number of written bytes. Throws
   * DestinationError for errors of the destination.
   */
  async download(
    descriptor: Descriptor,
    references: readonly Reference[],
    place: ContentPlace | Pick<Reference, 'registry' | 'repository'>,
    onProgress: (present: number) => void,
  ): Promise<void> {
    const locations = references.flatMap((reference) => this.#locationsOf(reference));
    const transfer = { descriptor, repositories: distinct(locations) };
    const target = 'pieces' in place ? { place } : { destination: place };
    const { settings } = this.#access;
    this.#threads ??= this.#tokens.promise.then((tokens) => new DownloadThreads(settings, tokens, this.#context));
    await (await this.#threads).download({ ...transfer, ...target }, onProgress);
  }

  /** Ends the threads and closes every connection. */
  async [Symbol.asyncDispose](): Promise<void> {
    await (await this.#threads)?.close();
    this.#session.close();
  }

  /** Warns once for each repository that content counts as missing because only the mirrors could be read. */
  #warnOfAbsence({ registry, repository }: Reference, { message }: PluginError): void {
    const name = formatReference({ registry, repository });
    if (this.#warned.has(name)) return;
    this.#warned.add(name);
    const what = `sigstore signatures and other content that the mirrors of ${name} lack`;
    this.#context.log('warn', `${what} are treated as missing, because it cannot be reached: ${message}`);
  }

  // Digest and signature are checked after a tag is resolved, so mirrors for digests may be used for tags too. An image
  // that was resolved from a tag is where the tag was.
  #locationsOf({ registry, repository, tag, digest }: Reference): Reference[] {
    const { mirrors } = this.#access;
    const byDigest = mirrors.locationsOf({ registry, repository, digest: digest ?? `sha256:${'0'.repeat(64)}` });
    if (digest !== undefined && tag === undefined) return byDigest;
    const byTag = mirrors.locationsOf({ registry, repository });
    const isMirror = (location: Reference): boolean =>
      location.registry !== registry || location.repository !== repository;
    return distinct([...byTag.filter(isMirror), ...byDigest]);
  }
}

/** Returns each repository once, at its first position. */
function distinct(locations: readonly Reference[]): Reference[] {
  return [...new Map(locations.map((each) => [`${each.registry}/${each.repository}`, each])).values()];
}
