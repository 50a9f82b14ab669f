import { parentPort, workerData, type MessagePort } from 'node:worker_threads';
import type { Context } from '../context.ts';
import { isPluginError, messageOf, PluginError, type ErrorCode } from '../errors.ts';
import type { Descriptor } from '../oci/descriptor.ts';
import type { Reference } from '../oci/reference.ts';
import type { ContentPlace } from '../store/store.ts';
import { downloadInto } from './download.ts';
import { TransientError } from '../http/retry.ts';
import { DestinationError, relayInto } from './relay.ts';
import { openSession, type RegistrySettings } from './session.ts';
import type { AuthorizationRequest, Authorizer } from './auth/tokens.ts';

/** A piece of content to bring somewhere from the first of the repositories that has it. */
interface Transfer {
  readonly descriptor: Descriptor;
  readonly repositories: readonly Reference[];
}

/** A piece of content to bring into its place in a file. */
export interface Download extends Transfer {
  readonly place: ContentPlace;
}

/** A piece of content to bring into another repository. */
export interface Relay extends Transfer {
  readonly destination: Pick<Reference, 'registry' | 'repository'>;
}

/** An error as it crosses from one thread to another. */
export interface PlainError {
  readonly code: ErrorCode;
  readonly message: string;
  readonly hint: string | undefined;
  /** Of an error that another attempt may well not meet. */
  readonly transient?: { readonly retryAfter: number | undefined };
  /** Of an error that the destination of a relay made. */
  readonly atDestination?: true;
}

/** What the main thread says to a download thread. */
export type ToWorker =
  | { kind: 'download'; id: number; download: Download | Relay }
  | { kind: 'authorized'; id: number; header: string | undefined }
  | { kind: 'refused'; id: number; error: PlainError };

/** What a download thread says to the main thread. */
export type FromWorker =
  | { kind: 'progress'; id: number; present: number }
  | { kind: 'finished'; id: number }
  | { kind: 'failed'; id: number; error: PlainError }
  | { kind: 'authorize'; id: number; request: AuthorizationRequest }
  | { kind: 'log'; level: Parameters<Context['log']>[0]; message: string };

/** Makes an error ready to cross to another thread. */
export function toPlainError(error: unknown): PlainError {
  if (error instanceof DestinationError) return { ...toPlainError(error.failure), atDestination: true };
  if (!isPluginError(error)) return { code: 'internal', message: messageOf(error), hint: undefined };
  const { code, message, hint } = error;
  if (!(error instanceof TransientError)) return { code, message, hint };
  return { code, message, hint, transient: { retryAfter: error.retryAfter } };
}

/** Makes an error of what crossed from another thread. */
export function fromPlainError({ atDestination, code, message, hint, transient }: PlainError): Error {
  const error = transient
    ? new TransientError(code, message, { hint, ...transient })
    : new PluginError(code, message, { hint });
  return atDestination ? new DestinationError(error) : error;
}

/** What a download thread does: downloads side by side as they are requested; credentials stay with the main thread. */
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
  // What is remembered here saves a message for every request; a registry that no longer accepts it says so.
  const headers = new Map<string, Promise<string | undefined>>();
  const authorizer: Authorizer = {
    authorize(request) {
      const key = `${request.registry} ${request.scope}`;
      const known = request.challenge === undefined ? headers.get(key) : undefined;
      const header = known ?? requestHeader(request);
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
