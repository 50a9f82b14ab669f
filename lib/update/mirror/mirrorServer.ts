import { X509Certificate } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { writeAtomically } from '#content/files';
import type { ServerCertificate } from '#content/http';
import { serveContent, type ServedResponse } from '#content/server';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, messageOf, PluginError } from '#errors';
import { limitMirrorState, type MirrorState } from '../record/nodeReport.ts';
import { RetainedBundles, type RetainedFiles } from './retainedBundles.ts';
import { RetainedContent } from './retainedContent.ts';

/** Settings of the mirror of a control plane node. */
interface MirrorServerOptions {
  readonly host: string;
  readonly port: number;
  /** The folder of the agent with the copies of bundles. */
  readonly folder: string;
  /** The folder with `tls.crt` and `tls.key`, which may change meanwhile; plain HTTP without it. */
  readonly certificates: string | undefined;
  /** The pause between two checks of the folders, in milliseconds. */
  readonly interval: number;
  /** The pause between two complete readings of the bundles, in milliseconds; by default a week. */
  readonly scrubInterval?: number;
  /** The file for the state of the mirror; by default none is written. */
  readonly stateFile?: string | undefined;
  /** Called when the server listens, with its URL. */
  readonly onListening?: (url: string) => void;
}

/** Few blobs at a time: etcd writes to the same disk. */
const streams = { active: 8, waiting: 512, patience: 30_000 };
// A busy connection takes up to 0.35 MB, an idle program 91 MB, and the unit has 150 MB. Refused clients ask the next
// mirror.
const limits = { connections: 160, connectionsPerAddress: 64, idleTimeout: 30_000, minimumRate: 64 * 1024 };
/** Connections that only control plane nodes may take. */
const reservedConnections = 32;
const loopback = ['127.0.0.1', '::1'];
/** What runtimes learn, whose pods show it. Content of a mirror that keeps all is for every client. */
const noImages = 'this mirror has no images: it keeps metadata for the machine config controller';
const week = 7 * 24 * 3600 * 1000;

/**
 * Serves the retained bundles of a node to container runtimes, by TLS, until the signal is aborted. Read-only and by
 * digest: nothing is listed, and no repository is compared. Follows changes of the bundles and the certificate. Reads
 * all content once in a while, and withdraws what is corrupt or cannot be read. Throws `busy` or `not-writable` if it
 * cannot listen, and `not-readable` without a certificate.
 */
export async function runMirrorServer(options: MirrorServerOptions, context: Context): Promise<void> {
  const bundles = new RetainedBundles(options.folder, options.certificates, context);
  try {
    await serveBundles(bundles, options, context);
  } catch (error) {
    // A stop while the bundles are indexed is no failure of the unit.
    if (isPluginError(error, 'interrupted')) return;
    if (!isPluginError(error, 'busy')) throw error;
    const hint = 'Stop the program that uses the port, or install the mirrors with another port.';
    throw new PluginError('busy', error.lines, { hint, cause: error });
  } finally {
    await bundles.close();
  }
}

async function serveBundles(bundles: RetainedBundles, options: MirrorServerOptions, context: Context): Promise<void> {
  const { host, port, folder, certificates, interval, stateFile, scrubInterval = week } = options;
  let content = await RetainedContent.index((await bundles.refresh()) ?? nothing, undefined, context);
  let certificate = certificates === undefined ? undefined : await readCertificate(certificates);
  const requests = new MirrorRequests(context);
  let hasRefused = false;
  const onResponse = (response: ServedResponse): void => {
    // Runtimes get nothing of metadata, and the machine config controller asks for more than it needs.
    if (content.kept === 'all' || response.status === 200) return requests.count(response);
    if (!hasRefused && !content.isFor(response.client))
      context.log('info', `${response.client} gets no image: this mirror keeps metadata only`);
    hasRefused = true;
  };
  // Of a process before this one. An agent would report it if this one cannot listen.
  if (stateFile !== undefined) await rm(stateFile, { force: true }).catch(() => undefined);
  const reserved = {
    connections: reservedConnections,
    // The mirrors share one certificate, which names their nodes.
    isFor: (address: string) => loopback.includes(address) || parsed?.checkIP(address) !== undefined,
  };
  let parsed = certificate && new X509Certificate(certificate.cert);
  const server = await serveContent(
    (_, client) => (content.isFor(client) ? content : undefined),
    {
      host,
      port,
      ...(certificate && { certificate }),
      streams,
      limits: { ...limits, reserved },
      onResponse,
      absence: noImages,
    },
    context,
  );
  const boundPort = Number(new URL(server.url).port);
  options.onListening?.(server.url);
  context.log('info', `serving ${bundles.paths.length} bundles of ${folder} at ${server.url}`);
  const isOver = (): boolean => context.signal.aborted;
  let [written, failure] = ['', ''];
  const writeState = async (): Promise<void> => {
    const text = JSON.stringify(requests.describe(bundles, content, boundPort));
    if (stateFile === undefined || text === written) return;
    try {
      await writeAtomically(stateFile, text);
      [written, failure] = [text, ''];
    } catch (error) {
      // Nodes need their images more than a report.
      if (messageOf(error) !== failure) context.log('warn', messageOf(error));
      failure = messageOf(error);
    }
  };
  const scrubbing = scrub(() => content, scrubInterval, context);
  try {
    for (;;) {
      await writeState();
      await sleep(interval, undefined, { signal: context.signal }).catch(() => undefined);
      if (isOver()) break;
      const files = await bundles.refresh();
      if (files) content = await RetainedContent.index(files, content, context);
      if (certificates === undefined || !certificate) continue;
      const next = await readCertificate(certificates).catch((error: unknown) => warn(error, context));
      if (!next || (next.cert === certificate.cert && next.key === certificate.key)) continue;
      try {
        server.setCertificate(next);
        certificate = next;
        parsed = new X509Certificate(next.cert);
        context.log('info', 'the certificate was renewed');
      } catch (error) {
        // The files of the pair are replaced one after the other.
        context.log('debug', `the certificate cannot be used: ${messageOf(error)}`);
      }
    }
  } finally {
    await server.close();
    await scrubbing;
  }
}

const nothing: RetainedFiles = { kept: 'all', manifests: new Map(), blobs: new Map(), tags: new Map() };

async function readCertificate(folder: string): Promise<ServerCertificate> {
  try {
    const [cert, key] = await Promise.all(
      ['tls.crt', 'tls.key'].map((name) => readFile(join(folder, name), { encoding: 'utf8' })),
    );
    return { cert: cert ?? '', key: key ?? '' };
  } catch (cause) {
    throw new PluginError('not-readable', `the certificate of the mirror cannot be read: ${messageOf(cause)}`, {
      hint: 'The controller of this node writes it: check the pods in the namespace oc-upgrade-bundle.',
      cause,
    });
  }
}

/** Checks all content at intervals, slowly. */
async function scrub(content: () => RetainedContent, interval: number, context: Context): Promise<void> {
  const { signal } = context;
  try {
    for (;;) {
      await sleep(interval, undefined, { signal });
      for (const digest of content().digests) {
        const started = performance.now();
        await content()
          .check(digest)
          .catch((error: unknown) => warn(error, context));
        // A quarter of the time at most.
        await sleep(3 * (performance.now() - started), undefined, { signal });
      }
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

function warn(error: unknown, context: Context): undefined {
  checkInterrupted(context.signal);
  if (!isPluginError(error)) throw error;
  context.log('warn', messageOf(error));
}

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
    const lacking = [...unnamed, ...missing];
    return limitMirrorState({ versions, port, ...partial, sizes, requests: this.#answered, lacking });
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
