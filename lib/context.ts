import { setImmediate } from 'node:timers/promises';
import { isPluginError, PluginError } from './errors.ts';

/** The progress of a transfer, as plain data. The library emits events, and a terminal, a log or a test shows them. */
export type TransferEvent =
  /** The manifests of `read` of so many images have been read. Comes before the plan. */
  | { kind: 'manifests'; read: number; images: number }
  /** The plan of this run; sizes in bytes. `present` existed before the run. */
  | { kind: 'plan'; images: number; blobs: number; bytes: number; present: number }
  /** `bytes` more bytes of one blob are received and written. */
  | { kind: 'bytes'; digest: string; bytes: number }
  /** A blob or a manifest has its final name. `size` is its complete size in bytes. */
  | { kind: 'stored'; digest: string; size: number }
  /** A blob was mounted from another repository of the destination, without a transfer. `size` is in bytes. */
  | { kind: 'mounted'; digest: string; size: number }
  /** The destination already had the content. `size` is its complete size in bytes. */
  | { kind: 'skipped'; digest: string; size: number }
  /** An image and all its content is at the destination. */
  | { kind: 'image'; name: string };

/** The level of a log line: `debug` is for `-v`, `info` for each user, `warn` for problems. */
export type LogLevel = 'debug' | 'info' | 'warn';

/**
 * The environment of an operation, from its caller. The library uses it instead of printing, exiting, or reading argv
 * or the environment.
 */
export interface Context {
  /** Aborted if the user interrupts the run. Every wait in the library then ends. */
  readonly signal: AbortSignal;
  readonly log: (level: LogLevel, message: string) => void;
  readonly onEvent: (event: TransferEvent) => void;
  /** Called with an error that says what is unfinished if this process ends now, and with undefined when nothing is. */
  readonly onUnfinished?: (unfinished: PluginError | undefined) => void;
}

/** Throws `interrupted` if a signal is aborted. Call it between two steps of a long operation. */
export function checkInterrupted(signal: AbortSignal): void {
  if (!signal.aborted) return;
  if (isPluginError(signal.reason)) throw signal.reason;
  throw new PluginError('interrupted', 'interrupted', { cause: signal.reason });
}

/** Yields to the event loop during a long computation, so that signals are processed. Throws `interrupted`. */
export async function takeTurn(signal: AbortSignal): Promise<void> {
  await setImmediate();
  checkInterrupted(signal);
}
