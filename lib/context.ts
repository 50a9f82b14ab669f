import { setImmediate } from 'node:timers/promises';
import { isPluginError, PluginError } from './errors.ts';

/**
 * What happens during a transfer, as plain data. The library emits these; a
 * terminal, a log or a test turns them into whatever it shows.
 */
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

/** How much a line of the log matters: `debug` is for `-v`, `info` for everybody, `warn` for what needs attention. */
export type LogLevel = 'debug' | 'info' | 'warn';

/**
 * Everything an operation is given from outside besides its own arguments. The
 * library never prints, exits, or reads argv or the environment: it has this.
 */
export interface Context {
  /** Aborted when the user interrupts; every wait in the library ends with it. */
  readonly signal: AbortSignal;
  readonly log: (level: LogLevel, message: string) => void;
  readonly onEvent: (event: TransferEvent) => void;
}

/** Throws `interrupted` when a signal is aborted; to be called between two steps of anything that takes a while. */
export function checkInterrupted(signal: AbortSignal): void {
  if (!signal.aborted) return;
  if (isPluginError(signal.reason)) throw signal.reason;
  throw new PluginError('interrupted', 'interrupted', { cause: signal.reason });
}

/**
 * Lets go of the processor in the middle of work that waits for nothing, so that a signal to stop is heard. Throws `interrupted`.
 */
export async function takeTurn(signal: AbortSignal): Promise<void> {
  await setImmediate();
  checkInterrupted(signal);
}
