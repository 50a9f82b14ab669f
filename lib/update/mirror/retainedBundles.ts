import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { splitReleases, type BundleMetadata } from '#bundle/metadata';
import { entryKindOf, openBundle } from '#bundle/open';
import type { Cluster } from '#cluster/client';
import { clusterVersionReference, listNeededReleases, readClusterVersion } from '#cluster/version';
import { isManifestText, sumSizes, type Digest, hexOf, isDigest, digestIn } from '#content/oci';
import { Overlay, type ContentSource, type LocalContent } from '#content/store';
import type { Context } from '#context';
import { asFailure, messageOf, PluginError } from '#errors';
import { openBaseBlobs } from '#node/transfer';
import { readEvidence } from '../record/bundleFacts.ts';
import { allowBundle, listRecords, type BundleRequest, type RecordChange } from '../record/bundleRecord.ts';
import { readMirrorContent, type MirrorContent } from '../record/mirrorContent.ts';
import { listMirrorStates } from '../record/nodeReport.ts';
import { activeBundle, hasEnded, phaseOf, upgradeBundleKind } from '../record/upgradeBundle.ts';
import { isServing, listWithoutMirror, readInstalledMirrors } from './mirrorSite.ts';

type RetainedSource = ContentSource & LocalContent;

/** Content of a retained bundle: its source, and its size in bytes. */
export interface HeldContent {
  readonly content: RetainedSource;
  readonly size: number;
}

/** Content of retained bundles, by digest. */
export type Holdings = ReadonlyMap<Digest, HeldContent>;

/** The manifests, blobs and tags of all retained bundles. */
export interface RetainedFiles {
  /** Whether they are those of whole bundles, or of facts. */
  readonly kept: MirrorContent;
  readonly manifests: Holdings;
  readonly blobs: Holdings;
  /** The tags with the bundle that has them. */
  readonly tags: ReadonlyMap<string, RetainedSource>;
}

/** An open bundle, or the facts of one. */
interface OpenedBundle extends Omit<RetainedFiles, 'kept'> {
  readonly path: string;
  readonly metadata: BundleMetadata;
  /** The bytes that it takes, with the base of a delta. */
  readonly bytes: number;
  close(): Promise<void>;
}

/**
 * The time in milliseconds for which a removed bundle stays open. A client that has got a manifest fetches its blobs
 * from the same mirror.
 */
const grace = 10 * 60_000;

/**
 * The verified copies of bundles in the folder of an agent, which adds and removes them meanwhile; of a mirror that
 * keeps metadata only, the facts of the bundles.
 */
export class RetainedBundles {
  readonly #folder: string;
  readonly #certificates: string | undefined;
  readonly #context: Context;
  /** The open bundles by their names, with the state of their files. Another state is another bundle. */
  readonly #opened = new Map<string, { readonly state: string; readonly bundle: OpenedBundle }>();
  readonly #closing = new Map<NodeJS.Timeout, OpenedBundle>();
  readonly #refused = new Map<string, string>();
  #kept: MirrorContent = 'all';

  /**
   * `certificates`: the folder beside whose certificate the MirrorContent stands. Without it, whole bundles are kept.
   */
  constructor(folder: string, certificates: string | undefined, context: Context) {
    this.#folder = folder;
    this.#certificates = certificates;
    this.#context = context;
  }

  /** The paths of the open bundles. */
  get paths(): string[] {
    return [...this.#opened.values()].map(({ bundle }) => bundle.path);
  }

  /** The versions of the open bundles, in the order of their names. */
  get versions(): string[] {
    const all = [...this.#opened.values()].flatMap(({ bundle: { metadata } }) => splitReleases(metadata));
    return [...new Set(all.map(({ version }) => version))].sort();
  }

  /** The bytes of each open bundle, with the base of a delta, by the version of its last release. */
  get sizes(): Readonly<Record<string, number>> {
    const all = [...this.#opened.values()].map(({ bundle: { metadata, bytes } }) => [metadata.version, bytes] as const);
    return Object.fromEntries(all);
  }

  /** Opens added bundles, and closes removed ones a few minutes later. Returns the files if they have changed. */
  async refresh(): Promise<RetainedFiles | undefined> {
    const kept = (this.#certificates === undefined ? undefined : await readMirrorContent(this.#certificates)) ?? 'all';
    let isChanged = kept !== this.#kept;
    this.#kept = kept;
    const states = await this.#list();
    for (const [name, { state, bundle }] of this.#opened) {
      if (states.get(name) === state) continue;
      this.#opened.delete(name);
      this.#context.log('info', `${name} is no longer served`);
      this.#closeLater(bundle);
      isChanged = true;
    }
    for (const [name, state] of states) {
      if (this.#opened.has(name) || this.#refused.get(name) === state) continue;
      const bundle = await this.#open(name).catch((error: unknown) => {
        this.#context.log('warn', `${name} is not served: ${asFailure(error).message}`);
        this.#refused.set(name, state);
      });
      if (!bundle) continue;
      this.#opened.set(name, { bundle, state });
      this.#context.log('info', `${name} is served: ${bundle.metadata.version}`);
      isChanged = true;
    }
    return isChanged ? this.#gather() : undefined;
  }

  async close(): Promise<void> {
    for (const timer of this.#closing.keys()) clearTimeout(timer);
    for (const bundle of this.#closing.values()) await bundle.close();
    for (const { bundle } of this.#opened.values()) await bundle.close();
    this.#closing.clear();
    this.#opened.clear();
  }

  /** Lists the bundles whose signature the agent has verified: those with facts. */
  async #list(): Promise<Map<string, string>> {
    const names = new Set(await readdir(this.#folder).catch(() => []));
    const states = new Map<string, string>();
    for (const name of names) {
      const [, stem = '', kind] = /^(bundle-[0-9a-f]{12})\.(tar|json)$/.exec(name) ?? [];
      if (kind !== (this.#kept === 'all' ? 'tar' : 'json') || !names.has(`${stem}.json`)) continue;
      const own = kind === 'tar' ? [name, `${stem}.base`] : [name];
      const fileStates = await Promise.all(own.map((each) => stateOf(join(this.#folder, each))));
      states.set(name, fileStates.join(' '));
    }
    return states;
  }

  #open(name: string): Promise<OpenedBundle> {
    const path = join(this.#folder, name);
    return this.#kept === 'all' ? openCopy(path, this.#context) : openFacts(path, this.#context);
  }

  #closeLater(bundle: OpenedBundle): void {
    const timer = setTimeout(() => {
      this.#closing.delete(timer);
      bundle.close().catch((error: unknown) => this.#context.log('warn', messageOf(error)));
    }, grace).unref();
    this.#closing.set(timer, bundle);
  }

  #gather(): RetainedFiles {
    const all = [...this.#opened.values()].map(({ bundle }) => bundle);
    return {
      kept: this.#kept,
      manifests: new Map(all.flatMap(({ manifests }) => [...manifests])),
      blobs: new Map(all.flatMap(({ blobs }) => [...blobs])),
      tags: new Map(all.flatMap(({ tags }) => [...tags])),
    };
  }
}

/** Opens the copy of a bundle, with the base blobs of a delta. Throws the errors of opening them. */
async function openCopy(path: string, context: Context): Promise<OpenedBundle> {
  const bundle = await openBundle(path, context);
  try {
    const { content, metadata, size: tarSize } = bundle;
    const baseBlobs = metadata.base?.blobs ?? [];
    const base = await openBaseBlobs(path.replace(/tar$/, 'base'), baseBlobs, context);
    const manifests = new Map<Digest, HeldContent>();
    const blobs = new Map<Digest, HeldContent>();
    const tags = new Map<string, RetainedSource>();
    if (base) for (const { digest, size } of baseBlobs) blobs.set(digest, { content: base, size });
    for (const file of bundle.files) {
      const entry = entryKindOf(file);
      if (entry.kind === 'manifest') manifests.set(entry.digest, { content, size: file.size });
      if (entry.kind === 'blob') blobs.set(entry.digest, { content, size: file.size });
      if (entry.kind === 'tag') tags.set(entry.name, content);
    }
    const close = async (): Promise<void> => {
      await base?.close();
      await bundle[Symbol.asyncDispose]();
    };
    return { path, metadata, bytes: tarSize + (base ? sumSizes(baseBlobs) : 0), manifests, blobs, tags, close };
  } catch (error) {
    await bundle[Symbol.asyncDispose]();
    throw error;
  }
}

/**
 * Opens the content by which an agent verified a bundle: what the machine config controller reads of it. Throws
 * `not-readable` for a file that an agent did not write.
 */
async function openFacts(path: string, context: Context): Promise<OpenedBundle> {
  const evidence = await readEvidence(path, context);
  if (!evidence) throw new PluginError('not-readable', `${path} does not have the facts of a bundle`);
  const content = new Overlay(path, undefined, evidence.contents);
  const held = [...evidence.contents].map(([digest, bytes]) => [digest, { content, size: bytes.length }] as const);
  const isManifest = ([digest]: (typeof held)[number]): boolean => isManifestText(evidence.contents.get(digest));
  return {
    path,
    metadata: evidence.metadata,
    tags: new Map(),
    close: () => Promise.resolve(),
    bytes: sumSizes(held.map(([, each]) => each)),
    manifests: new Map(held.filter(isManifest)),
    blobs: new Map(held.filter((each) => !isManifest(each))),
  };
}

async function stateOf(path: string): Promise<string> {
  const { ino = 0, size = 0, mtimeMs = 0 } = (await stat(path).catch(() => undefined)) ?? {};
  return `${ino}:${size}:${mtimeMs}`;
}

/** The record of the bundle of the running release, and the mirrors that do not have it yet. */
export interface Retention extends RecordChange {
  /** The version that the cluster runs. */
  readonly version: string;
  /** The control plane nodes whose mirrors do not serve the release; undefined if the cluster has no mirrors. */
  readonly lacking: readonly string[] | undefined;
}

/**
 * Lets a cluster load and keep the bundle of the release that it runs, by an UpgradeBundle as for an update. It states
 * the running release, so agents refuse another one. Changes nothing if that is done already.
 * Replaces the record of an earlier call if it failed, or if a mirror lacks the release since. Throws `conflict` for a
 * bundle of another release, `not-ready` while the cluster changes its release, and the errors of allowBundle.
 */
export async function retainBundle(cluster: Cluster, request: BundleRequest): Promise<Retention> {
  const { version, digest: releaseDigest } = await readRunning(cluster);
  requireRunning(request, { version, releaseDigest }, cluster.name);
  const lacking = await listLacking(cluster, version);
  const records = await listRecords(cluster);
  const { digest } = request;
  const active = activeBundle(records);
  // The name is not that of an update, whose record has its backups.
  const own = `retain-${request.name ?? hexOf(digest).slice(0, 12)}`;
  const name = active?.spec.bundle.digest === digest ? active.metadata.name : own;
  const former = records.find(({ metadata }) => metadata.name === name);
  if (former && hasEnded(former)) {
    const isKept = phaseOf(former) === 'Completed' && former.spec.bundle.digest === digest;
    if (isKept && (lacking ?? []).length === 0) return { bundle: former, outcome: 'unchanged', version, lacking };
    await cluster.delete({ ...upgradeBundleKind, metadata: { name } });
  }
  return { ...(await allowBundle(cluster, { ...request, name, version, releaseDigest })), version, lacking };
}

async function readRunning(cluster: Cluster): Promise<{ readonly version: string; readonly digest: Digest }> {
  const object = await cluster.read(clusterVersionReference);
  const [image = ''] = (object && listNeededReleases(object)) ?? [];
  const digest = digestIn(image);
  if (object && isDigest(digest)) return { version: readClusterVersion(object).version, digest };
  throw new PluginError('not-ready', `${cluster.name} installs a release, or does not say which one it runs`, {
    hint: 'Wait until the update is completed: oc adm upgrade.',
  });
}

/** Throws `conflict` if a bundle has another release than the running one. */
function requireRunning(
  { version, releaseDigest }: BundleRequest,
  running: Required<Pick<BundleRequest, 'version' | 'releaseDigest'>>,
  name: string,
): void {
  const hint = 'To update the cluster with this bundle: oc adm-upgrade-bundle apply.';
  if (version !== undefined && version !== running.version)
    throw new PluginError('conflict', `${name} runs ${running.version}, and the bundle is of ${version}`, { hint });
  if (releaseDigest === undefined || releaseDigest === running.releaseDigest) return;
  const message = `${name} runs ${running.version} as ${running.releaseDigest}, and the bundle has it as ${releaseDigest}`;
  throw new PluginError('conflict', message, {
    hint: 'Create the bundle of that release image, such as the one of the same architecture.',
  });
}

/**
 * Lists the control plane nodes whose mirrors do not serve a version, or cannot read all they retain; undefined if the
 * cluster has no mirrors.
 */
async function listLacking(cluster: Cluster, version: string): Promise<readonly string[] | undefined> {
  const installed = await readInstalledMirrors(cluster);
  if (!installed) return undefined;
  return listWithoutMirror(
    cluster,
    await listMirrorStates(cluster),
    (mirror) => isServing(mirror, version, installed.content) && !mirror.lacking.some(isDigest),
  );
}
