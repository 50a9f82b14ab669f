import type { Context } from '../context.ts';
import { PluginError } from '../errors.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import { formatReference, type Reference } from '../oci/reference.ts';
import type { ContentPlace } from '../store/store.ts';
import type { Connections } from '../http/connections.ts';
import type { Credentials } from './auth/credentials.ts';
import { FallbackSource } from './fallbackSource.ts';
import type { MirrorSets } from './mirrors.ts';
import type { Registry } from './registry.ts';
import { openSession, type RegistrySession, type RegistrySettings } from './session.ts';
import type { ContentSource } from '../store/store.ts';
import { DownloadThreads } from './threads.ts';
import { Tokens } from './auth/tokens.ts';

/** How registries are talked to, and with which credentials; mirrors are asked before the repositories that they mirror. */
export interface RegistryAccess {
  readonly settings: RegistrySettings;
  readonly credentials: Credentials;
  readonly mirrors: MirrorSets;
}

/** The registries of a run: logged in to once, whatever is read from them or written to them. */
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

  /** For files that are not in a registry. */
  get connections(): Connections {
    return this.#session.connections;
  }

  /** The repository of an image, for reading: its mirrors first. Throws `not-found` where it must not be asked for and has none. */
  sourceOf(reference: Reference): ContentSource {
    const [first, ...others] = this.#locationsOf(reference).map((location) => this.repository(location));
    if (first) {
      const warn = (reason: PluginError): void => {
        this.#warnOfAbsence(reference, reason);
      };
      return others.length === 0 ? first : new FallbackSource([first, ...others], warn);
    }
    throw new PluginError(
      'not-found',
      `${formatReference(reference)} must not be pulled from its own registry, and has no mirror`,
      {
        hint: 'The mirror sets have NeverContactSource for it: add a mirror there.',
      },
    );
  }

  /** A repository itself, for reading and writing. */
  repository(reference: Pick<Reference, 'registry' | 'repository'>): Registry {
    return this.#session.repository(reference);
  }

  /** Starts the threads that download, which takes a moment: while manifests are being read, say. */
  startThreads(): Promise<DownloadThreads> {
    const { settings } = this.#access;
    this.#threads ??= this.#tokens.promise.then((tokens) => new DownloadThreads(settings, tokens, this.#context));
    return this.#threads;
  }

  /**
   * Brings content into its place in a file, or into a repository, on a thread of its own, from the repositories of some references
   * by digest or their mirrors. `onProgress` is told how many of its bytes are there. Throws DestinationError for what that repository says.
   */
  async download(
    descriptor: Descriptor,
    references: readonly Reference[],
    place: ContentPlace | Pick<Reference, 'registry' | 'repository'>,
    onProgress: (present: number) => void,
  ): Promise<void> {
    const locations = references.flatMap((reference) => this.#access.mirrors.locationsOf(reference));
    const transfer = { descriptor, repositories: distinct(locations) };
    const target = 'pieces' in place ? { place } : { destination: place };
    await (await this.startThreads()).download({ ...transfer, ...target }, onProgress);
  }

  /** Ends the threads and closes every connection. */
  async close(): Promise<void> {
    await (await this.#threads)?.close();
    this.#session.close();
  }

  /** Warns, once for each repository, that what its mirrors lack is taken for absent, though it cannot be asked itself. */
  #warnOfAbsence({ registry, repository }: Reference, { message }: PluginError): void {
    const name = formatReference({ registry, repository });
    if (this.#warned.has(name)) return;
    this.#warned.add(name);
    const what = `sigstore signatures and other content that the mirrors of ${name} lack`;
    this.#context.log('warn', `${what} are treated as missing, because it cannot be reached: ${message}`);
  }

  // What a tag leads to is checked by digest and signature afterwards, so mirrors of digests may be asked for tags too.
  #locationsOf({ registry, repository, digest }: Reference): Reference[] {
    const { mirrors } = this.#access;
    const byDigest = mirrors.locationsOf({ registry, repository, digest: digest ?? `sha256:${'0'.repeat(64)}` });
    if (digest !== undefined) return byDigest;
    const byTag = mirrors.locationsOf({ registry, repository });
    const isMirror = (location: Reference): boolean =>
      location.registry !== registry || location.repository !== repository;
    return distinct([...byTag.filter(isMirror), ...byDigest]);
  }
}

/** Each repository once, where it comes first. */
function distinct(locations: readonly Reference[]): Reference[] {
  return [...new Map(locations.map((each) => [`${each.registry}/${each.repository}`, each])).values()];
}
