import { hostname } from 'node:os';
import { Readable } from 'node:stream';
import { hideMachine, identifyProcess, processIdentity, processState } from '#content/files';
import {
  mediaTypes,
  parseManifest,
  type Descriptor,
  type Manifest,
  digestOf,
  isDigest,
  type Digest,
  parseJsonIfValid,
} from '#content/oci';
import { readContent, type ContentSource, type ContentStore } from '#content/store';
import { ignoring, isPluginError, PluginError } from '#errors';
import { list, matches, object, optional, text, type Static } from '#schema';

const digest = text<Digest>({ where: isDigest });

const pruneRecord = object({
  releases: list(text()),
  tags: list(text()),
  manifests: list(digest),
  blobs: list(digest),
  /** The run, so that others do not take its record over while it works. A directory has a lock instead. */
  run: optional(object({ host: text(), began: text(), process: processIdentity })),
});

/** What a run removes from one repository. */
export type PruneRecord = Static<typeof pruneRecord>;

/** A record at a target, with its tag and all its content, its manifest first. */
export interface StoredRecord extends PruneRecord {
  readonly tag: string;
  readonly content: readonly Digest[];
}

const recordLimit = 64 * 1024 * 1024;
const recordType = 'application/vnd.oc-disconnected.prune.v1+json';
// Each run has a tag of its own, so that two runs see each other.
const tagPrefix = 'prune-unfinished-';

/** Returns the host, the start and the process of this run, for the records that it writes. */
export function describeRun(): NonNullable<PruneRecord['run']> {
  return {
    host: hostname(),
    began: new Date().toISOString().slice(0, 19) + 'Z',
    process: hideMachine(identifyProcess()),
  };
}

/**
 * Writes the record of a run into a repository before the run removes anything there. After the release image is gone,
 * only the record tells which other images belonged to the release.
 */
export async function writeRecord(store: ContentStore, record: PruneRecord): Promise<StoredRecord> {
  const push = async (mediaType: string, bytes: Buffer): Promise<Descriptor> => {
    const descriptor = { mediaType, digest: digestOf(bytes), size: bytes.length };
    await store.push(descriptor, () => Promise.resolve(Readable.from([bytes])));
    return descriptor;
  };
  const layer = await push(recordType, Buffer.from(JSON.stringify(record)));
  const config = await push('application/vnd.oci.empty.v1+json', Buffer.from('{}'));
  const manifest = { schemaVersion: 2, mediaType: mediaTypes.ociManifest, config, layers: [layer] };
  const root = await push(mediaTypes.ociManifest, Buffer.from(JSON.stringify(manifest)));
  const tag = tagOf(root.digest);
  await store.tag(root, tag);
  await store.close();
  return { ...record, tag, content: [root.digest, layer.digest, config.digest] };
}

/** Returns whether a manifest belongs to a record, by the media type of its layer. */
export function isRecord({ layers }: Manifest): boolean {
  return layers[0]?.mediaType === recordType;
}

/** Reads the records of unfinished runs among some tags. Leaves out tags of other images. */
export async function readRecords(
  store: Pick<ContentSource, 'name' | 'fetch' | 'resolve'>,
  tags: ReadonlyMap<string, Digest>,
): Promise<StoredRecord[]> {
  const named = [...tags].filter(([tag, digest]) => tag === tagOf(digest));
  const records = await Promise.all(named.map(([tag, digest]) => readOne(store, tag, digest)));
  return records.filter((record) => record !== undefined);
}

/** Throws `busy` if one of some tags is that of a record whose run may still be working. */
export async function checkNoRun(store: ContentSource, tags: readonly string[]): Promise<void> {
  for (const tag of tags.filter(isRecordTag)) {
    try {
      const { digest } = await store.resolve(tag);
      const records = await readRecords(store, new Map([[tag, digest]]));
      for (const record of records) checkEnded(record, store.name, { resume: false });
    } catch (error) {
      // The run ended at this moment.
      if (!isPluginError(error, 'not-found')) throw error;
    }
  }
}

/** Returns whether a tag has the prefix of records. Another program may have written it too. */
export function isRecordTag(tag: string): boolean {
  return tag.startsWith(tagPrefix);
}

/**
 * Throws `busy` if the run of a record may still be working: on this machine, or on another one unless `resume` says
 * that it was interrupted.
 */
export function checkEnded({ run }: PruneRecord, where: string, { resume }: { readonly resume: boolean }): void {
  const state = run ? processState(run.process, hideMachine(identifyProcess())) : 'ended';
  if (!run || state === 'ended' || (state === 'unknown' && resume)) return;
  throw new PluginError('busy', `${where} is being pruned by a run on ${run.host} that began at ${run.began}`, {
    hint: 'Wait for it to end, and run the same command again. If it was interrupted, finish it first: prune again.',
    settings: state === 'unknown' ? ['resume'] : [],
  });
}

async function readOne(
  store: Pick<ContentSource, 'name' | 'fetch' | 'resolve'>,
  tag: string,
  digest: Digest,
): Promise<StoredRecord | undefined> {
  // A run that ends at this moment removes its record.
  const root = await store.resolve(digest).catch(ignoring('not-found'));
  if (!root) return undefined;
  const manifest = parseManifest(await readContent(store, root), `${tag} in ${store.name}`);
  const [layer] = manifest.layers;
  if (!layer || !isRecord(manifest)) return undefined;
  const record = parseRecord(await readContent(store, layer, recordLimit), `${tag} in ${store.name}`);
  const config = manifest.config ? [manifest.config.digest] : [];
  return { ...record, tag, content: [digest, layer.digest, ...config] };
}

function parseRecord(bytes: Buffer, where: string): PruneRecord {
  const record = parseJsonIfValid(bytes.toString());
  if (matches(pruneRecord, record)) return record;
  throw new PluginError('invalid-file', `the record of a prune run, ${where}, is malformed`, {
    hint: 'Remove that tag from the registry, and prune again.',
  });
}

function tagOf(digest: Digest): string {
  return `${tagPrefix}${digest.slice('sha256:'.length, 'sha256:'.length + 12)}`;
}
