import type { IncomingMessage } from 'node:http';
import { interrupted, RetryBudget, TransientError, type RetryOptions } from '#content/http';
import { parseJson } from '#content/oci';
import { checkInterrupted, type Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { textOf, type Fields } from '#fields';
import { ApiError } from './apply/apiErrors.ts';
import type { StoredObject } from './objects/storedObject.ts';

/** The requests that list and watch the objects of one kind. */
export interface WatchedKind {
  readonly apiVersion: string;
  readonly kind: string;
  /** Lists all objects, and returns their resourceVersion. */
  list(): Promise<{ readonly items: readonly StoredObject[]; readonly resourceVersion: string }>;
  /** Opens the stream of changes since a resourceVersion, with one JSON object in each line. */
  open(resourceVersion: string, signal: AbortSignal): Promise<IncomingMessage>;
}

/**
 * The time without data after which a connection is dead, in milliseconds. API servers send a bookmark about once a
 * minute.
 */
const silenceLimit = 150_000;

/** The longest line of a watch, in characters. API servers accept objects of at most 3 MiB. */
const longestLine = 8 * 1024 * 1024;

/** Yields all objects of a kind, and again after each change: see Cluster.watch. */
export async function* watchObjects(
  watched: WatchedKind,
  options: RetryOptions,
  context: Context,
): AsyncGenerator<readonly StoredObject[]> {
  const objectsByKey = new Map<string, StoredObject>();
  const { apiVersion, kind } = watched;
  // A watch retries without a limit, so only the pauses of the options apply.
  const endless = { ...options, attempts: Infinity, longestWait: Infinity };
  let budget = new RetryBudget(endless, context);
  let version: string | undefined;
  for (;;) {
    checkInterrupted(context.signal);
    try {
      if (version === undefined) {
        const { items, resourceVersion } = await watched.list();
        objectsByKey.clear();
        for (const item of items) objectsByKey.set(keyOf(item), { ...item, apiVersion, kind });
        version = resourceVersion;
        yield [...objectsByKey.values()];
      }
      for await (const changes of readChanges(watched, version, context)) {
        budget = new RetryBudget(endless, context);
        for (const { type, object } of changes) {
          if (type === 'ERROR') throw explainError(object, kind);
          version = textOf(object.metadata.resourceVersion) ?? version;
          if (type === 'DELETED') objectsByKey.delete(keyOf(object));
          else if (type !== 'BOOKMARK') objectsByKey.set(keyOf(object), object);
        }
        if (changes.some(({ type }) => type !== 'BOOKMARK')) yield [...objectsByKey.values()];
      }
      // Servers end each watch after a while.
      throw new TransientError('server-error', `the watch of ${kind} has ended`, {});
    } catch (error) {
      if (isGone(error)) version = undefined;
      await budget.waitAfter(isGone(error) ? new TransientError('server-error', error.message, {}) : error);
    }
  }
}

/** Waits for the first change since a resourceVersion, or until the server ends the watch. See Cluster.awaitChange. */
export async function awaitChange(
  watched: Pick<WatchedKind, 'kind' | 'open'>,
  version: string,
  context: Context,
): Promise<void> {
  for await (const changes of readChanges(watched, version, context))
    if (changes.some(({ type }) => type !== 'BOOKMARK')) return;
}

interface ObjectChange {
  readonly type: string;
  readonly object: StoredObject;
}

/**
 * Reads the changes of one watch, in groups that arrive together. Throws `unreachable` if the server is silent, and
 * `too-large` for a line without an end.
 */
async function* readChanges(
  watched: Pick<WatchedKind, 'kind' | 'open'>,
  version: string,
  context: Context,
): AsyncGenerator<ObjectChange[]> {
  const stalled = new AbortController();
  const timer = setTimeout(() => {
    stalled.abort();
  }, silenceLimit);
  try {
    const response = await watched.open(version, AbortSignal.any([context.signal, stalled.signal]));
    let rest = '';
    for await (const piece of response.setEncoding('utf8') as AsyncIterable<string>) {
      timer.refresh();
      const lines = (rest + piece).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > longestLine)
        throw new PluginError('too-large', `the watch of ${watched.kind} sent a line without an end`);
      if (lines.length > 0) yield lines.map((line) => parseJson(line) as ObjectChange);
    }
  } catch (error) {
    if (context.signal.aborted) throw interrupted();
    if (isPluginError(error)) throw error;
    throw new PluginError('unreachable', `the watch of ${watched.kind} was cut`, { cause: error });
  } finally {
    clearTimeout(timer);
    // Also closes the connection if the caller stops reading.
    stalled.abort();
  }
}

function explainError(status: Fields, kind: string): Error {
  const { code, message } = status;
  const words = `the watch of ${kind} failed: ${textOf(message) ?? 'for no reason that the server gives'}`;
  return typeof code === 'number' && code === 410
    ? new ApiError('conflict', words, { status: code, body: status })
    : new TransientError('server-error', words, {});
}

/** Returns whether a resourceVersion has expired. */
function isGone(error: unknown): error is ApiError {
  return error instanceof ApiError && error.status === 410;
}

function keyOf({ metadata: { name, namespace = '' } }: StoredObject): string {
  return `${namespace}/${name}`;
}
