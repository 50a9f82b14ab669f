import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Bundle } from '../../bundle/bundle.ts';
import { entryKindOf } from '../../bundle/entryKind.ts';
import { splitReleases } from '../../bundle/metadata.ts';
import { openBundle } from '../../bundle/open.ts';
import type { Context } from '../../context.ts';
import { asFailure, messageOf } from '../../errors.ts';
import { openBaseBlobs, type BaseBlobs } from '../../node/baseBlobs.ts';
import { sumSizes } from '../../content/oci/descriptor.ts';
import type { Digest } from '../../content/oci/digest.ts';

/** Content of a retained bundle: its source, and its size in bytes. */
export interface HeldContent {
  readonly content: Bundle['content'];
  readonly size: number;
}

/** Content of retained bundles, by digest. */
export type Holdings = ReadonlyMap<Digest, HeldContent>;

/** The manifests, blobs and tags of all retained bundles. */
export interface RetainedFiles {
  readonly manifests: Holdings;
  readonly blobs: Holdings;
  /** The tags with the bundle that has them. */
  readonly tags: ReadonlyMap<string, Bundle['content']>;
}

interface Opened {
  /** The names and states of its files. Another state is another bundle. */
  readonly state: string;
  readonly bundle: Bundle;
  readonly base: BaseBlobs | undefined;
}

/**
 * The time in milliseconds for which a removed bundle stays open. A client that has got a manifest fetches its blobs
 * from the same mirror.
 */
const grace = 10 * 60_000;

/** The verified copies of bundles in the folder of an agent, which adds and removes them meanwhile. */
export class RetainedBundles {
  readonly #folder: string;
  readonly #context: Context;
  readonly #opened = new Map<string, Opened>();
  readonly #closing = new Map<NodeJS.Timeout, Omit<Opened, 'state'>>();
  readonly #refused = new Map<string, string>();

  constructor(folder: string, context: Context) {
    this.#folder = folder;
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
    const all = [...this.#opened.values()].map(({ bundle: { size, metadata }, base }) => {
      return [metadata.version, size + (base ? sumSizes(metadata.base?.blobs ?? []) : 0)] as const;
    });
    return Object.fromEntries(all);
  }

  /** Opens added bundles, and closes removed ones a few minutes later. Returns the files if they have changed. */
  async refresh(): Promise<RetainedFiles | undefined> {
    const states = await this.#list();
    let isChanged = false;
    for (const [name, { state, ...opened }] of this.#opened) {
      if (states.get(name) === state) continue;
      this.#opened.delete(name);
      this.#context.log('info', `${name} is no longer served`);
      this.#closeLater(opened);
      isChanged = true;
    }
    for (const [name, state] of states) {
      if (this.#opened.has(name) || this.#refused.get(name) === state) continue;
      const opened = await this.#open(name).catch((error: unknown) => {
        this.#context.log('warn', `${name} is not served: ${asFailure(error).message}`);
        this.#refused.set(name, state);
      });
      if (!opened) continue;
      this.#opened.set(name, { ...opened, state });
      this.#context.log('info', `${name} is served: ${opened.bundle.metadata.version}`);
      isChanged = true;
    }
    return isChanged ? this.#gather() : undefined;
  }

  async close(): Promise<void> {
    for (const timer of this.#closing.keys()) clearTimeout(timer);
    for (const opened of [...this.#closing.values(), ...this.#opened.values()]) await closeBundle(opened);
    this.#closing.clear();
    this.#opened.clear();
  }

  /** Lists the bundles whose signature the agent has verified: those with facts beside them. */
  async #list(): Promise<Map<string, string>> {
    const names = new Set(await readdir(this.#folder).catch(() => []));
    const states = new Map<string, string>();
    for (const name of names) {
      const stem = /^(bundle-[0-9a-f]{12})\.tar$/.exec(name)?.[1];
      if (stem === undefined || !names.has(`${stem}.json`)) continue;
      const found = await Promise.all([name, `${stem}.base`].map((each) => stateOf(join(this.#folder, each))));
      states.set(name, found.join(' '));
    }
    return states;
  }

  async #open(name: string): Promise<Omit<Opened, 'state'>> {
    const path = join(this.#folder, name);
    const bundle = await openBundle(path, this.#context);
    try {
      const blobs = bundle.metadata.base?.blobs;
      const base = blobs && (await openBaseBlobs(path.replace(/tar$/, 'base'), blobs, this.#context));
      return { bundle, base };
    } catch (error) {
      await bundle[Symbol.asyncDispose]();
      throw error;
    }
  }

  #closeLater(opened: Omit<Opened, 'state'>): void {
    const timer = setTimeout(() => {
      this.#closing.delete(timer);
      closeBundle(opened).catch((error: unknown) => this.#context.log('warn', messageOf(error)));
    }, grace).unref();
    this.#closing.set(timer, opened);
  }

  #gather(): RetainedFiles {
    const manifests = new Map<Digest, HeldContent>();
    const blobs = new Map<Digest, HeldContent>();
    const tags = new Map<string, Bundle['content']>();
    for (const { bundle, base } of this.#opened.values()) {
      const { content } = bundle;
      for (const { digest, size } of base ? (bundle.metadata.base?.blobs ?? []) : [])
        blobs.set(digest, { content: base ?? content, size });
      for (const file of bundle.files) {
        const entry = entryKindOf(file);
        if (entry.kind === 'manifest') manifests.set(entry.digest, { content, size: file.size });
        if (entry.kind === 'blob') blobs.set(entry.digest, { content, size: file.size });
        if (entry.kind === 'tag') tags.set(entry.name, content);
      }
    }
    return { manifests, blobs, tags };
  }
}

async function stateOf(path: string): Promise<string> {
  const { ino = 0, size = 0, mtimeMs = 0 } = (await stat(path).catch(() => undefined)) ?? {};
  return `${ino}:${size}:${mtimeMs}`;
}

async function closeBundle({ bundle, base }: Omit<Opened, 'state'>): Promise<void> {
  await base?.close();
  await bundle[Symbol.asyncDispose]();
}
