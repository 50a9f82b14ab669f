import { setImmediate } from 'node:timers/promises';
import { isPluginError, PluginError } from './errors.ts';

/** What happens during a transfer, as plain data. The library emits events; a terminal, a log or a test shows them. */
export type TransferEvent =
  /** What this run is going to do; sizes in bytes. `present` was there before the run. */
  | { kind: 'plan'; images: number; blobs: number; bytes: number; present: number }
  /** `bytes` more bytes of one blob have arrived and been written. */
  | { kind: 'bytes'; digest: string; bytes: number }
  /** A blob or a manifest has its final name; `size` is its whole size in bytes. */
  | { kind: 'stored'; digest: string; size: number }
  /** A blob was taken over from another repository of the destination, without moving a byte; `size` is in bytes. */
  | { kind: 'mounted'; digest: string; size: number }
  /** The destination had it already; `size` is its whole size in bytes. */
  | { kind: 'skipped'; digest: string; size: number }
  /** An image and everything below it is at the destination. */
  | { kind: 'image'; name: string };

/** Level of a log line: `debug` is for `-v`, `info` for each user, `warn` for problems. */
export type LogLevel = 'debug' | 'info' | 'warn';

/**
 * What an operation gets from its caller in addition to its arguments. The library uses this instead of printing,
 * exiting, or reading argv or the environment.
 */
export interface Context {
  /** Aborted when the user interrupts; every wait in the library ends with it. */
  readonly signal: AbortSignal;
  readonly log: (level: LogLevel, message: string) => void;
  readonly onEvent: (event: TransferEvent) => void;
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
