import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import type { Context } from '#context';
import { isPluginError, messageOf, PluginError, type ErrorCode } from '#errors';
import { TransientError } from '../http/retry.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { Reference } from '../oci/reference.ts';
import type { ContentPlace } from '../store/store.ts';
import type { AuthorizationRequest, Authorizer } from './auth/tokens.ts';
import { downloadInto } from './download.ts';
import { DestinationError, relayInto } from './relay.ts';
import { openSession, type RegistrySettings } from './session.ts';

/** Content to transfer from the first repository that has it. */
interface Transfer {
  readonly descriptor: Descriptor;
  readonly repositories: readonly Reference[];
}

/** Content to download into its place in a file. */
export interface Download extends Transfer {
  readonly place: ContentPlace;
}

/** Content to copy into another repository. */
export interface Relay extends Transfer {
  readonly destination: Pick<Reference, 'registry' | 'repository'>;
}

/** An error as plain data for messages between threads. */
export interface PlainError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly hint: string | undefined;
  /** Set for a TransientError. */
  readonly transient?: { readonly retryAfter: number | undefined };
  /** Set for an error of the destination of a relay. */
  readonly atDestination?: true;
}

/** A message from the main thread to a download thread. */
export type ToWorker =
  | { kind: 'download'; id: number; download: Download | Relay }
  | { kind: 'authorized'; id: number; header: string | undefined }
  | { kind: 'refused'; id: number; error: PlainError };

/** A message from a download thread to the main thread. */
export type FromWorker =
  | { kind: 'progress'; id: number; present: number }
  | { kind: 'finished'; id: number }
  | { kind: 'failed'; id: number; error: PlainError }
  | { kind: 'authorize'; id: number; request: AuthorizationRequest }
  | { kind: 'log'; level: Parameters<Context['log']>[0]; message: string };

/**
 * Converts an error to data for another thread: code, message, hint, whether a retry may succeed, and whether the
 * destination failed. The code is `internal` if it is no PluginError.
 */
export function toPlainError(error: unknown): PlainError {
  if (error instanceof DestinationError) return { ...toPlainError(error.failure), atDestination: true };
  if (!isPluginError(error)) return { code: 'internal', message: messageOf(error), hint: undefined };
  const { code, message, hint } = error;
  if (!(error instanceof TransientError)) return { code, message, hint };
  return { code, message, hint, transient: { retryAfter: error.retryAfter } };
}

/** Converts plain data back to an error. */
export function fromPlainError({ atDestination, code, message, hint, transient }: PlainError): Error {
  const error = transient
    ? new TransientError(code, message, { hint, ...transient })
    : new PluginError(code, message, { hint });
  return atDestination ? new DestinationError(error) : error;
}

/** Runs downloads concurrently as they are requested. Credentials stay in the main thread. */
function serveDownloads(port: MessagePort, settings: RegistrySettings): void {
  const post = (message: FromWorker): void => {
    port.postMessage(message);
  };
  const waiting = new Map<number, PromiseWithResolvers<string | undefined>>();
  const context: Context = {
    signal: new AbortController().signal,
    log: (level, message) => {
      post({ kind: 'log', level, message });
    },
    onEvent: () => undefined,
  };
  let authorizations = 0;
  // This cache saves a message for each request. A registry that rejects a header sends a challenge.
  const headers = new Map<string, Promise<string | undefined>>();
  const authorizer: Authorizer = {
    authorize(request) {
      const key = `${request.registry} ${request.scope}`;
      const cachedHeader = request.challenge === undefined ? headers.get(key) : undefined;
      const header = cachedHeader ?? requestHeader(request);
      headers.set(key, header);
      header.catch(() => headers.delete(key));
      return header;
    },
  };
  const requestHeader = (request: AuthorizationRequest): Promise<string | undefined> => {
    const pending = Promise.withResolvers<string | undefined>();
    waiting.set((authorizations += 1), pending);
    post({ kind: 'authorize', id: authorizations, request });
    return pending.promise;
  };
  const session = openSession(settings, authorizer, context);
  port.on('message', (message: ToWorker) => {
    if (message.kind === 'download') {
      const { id, download } = message;
      const { descriptor, repositories } = download;
      const sources = repositories.map((reference) => session.repository(reference));
      const report = (present: number): void => {
        post({ kind: 'progress', id, present });
      };
      const transfer =
        'place' in download
          ? downloadInto(download.place, descriptor, sources, report)
          : relayInto(session.repository(download.destination), descriptor, sources, report);
      transfer.then(
        () => {
          post({ kind: 'finished', id });
        },
        (error: unknown) => {
          post({ kind: 'failed', id, error: toPlainError(error) });
        },
      );
      return;
    }
    const pending = waiting.get(message.id);
    waiting.delete(message.id);
    if (message.kind === 'authorized') pending?.resolve(message.header);
    else pending?.reject(fromPlainError(message.error));
  });
}

if (parentPort) serveDownloads(parentPort, workerData as RegistrySettings);
