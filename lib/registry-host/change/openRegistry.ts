import type { Context } from '#context';
import type { DetectedInstallation } from '../detect/detect.ts';
import type { DetectOptions } from '../detect/scopes.ts';
import type { HostAccess } from '../installation/installation.ts';
import { takeStateLock } from '../installation/stateFolder.ts';
import { UpgradeRecords } from './upgradeRecords.ts';

/** The input of each change. */
export interface ExecutionRequest extends HostAccess {
  /** The registry before the change. `detect` finds it again. */
  readonly detected: DetectedInstallation;
  readonly detect: DetectOptions;
  readonly now: Date;
  /** Skip the restart and the health check. */
  readonly noRestart: boolean;
  /** Continue even if the registry is not healthy, or if its files were changed since. */
  readonly force: boolean;
  /** The time to wait for a healthy registry, in seconds. */
  readonly healthTimeout: number;
  readonly keepBackups: number;
}

/** A registry with its journal and its backups, and the context of the run. */
export interface OpenRegistry extends ExecutionRequest {
  readonly records: UpgradeRecords;
  readonly context: Context;
}

/** Opens a registry for reading its journal and its backups. */
export function openRegistry<T extends ExecutionRequest>(request: T, context: Context): T & OpenRegistry {
  return { ...request, context, records: new UpgradeRecords(request.files, request.detected.installation) };
}

/** Opens a registry that no other run changes until it is disposed. Throws `busy`, `disk-full`, `not-writable`. */
export async function lockRegistry<T extends ExecutionRequest>(
  request: T,
  context: Context,
): Promise<T & OpenRegistry & AsyncDisposable> {
  const lock = await takeStateLock(request.files, request.detected.installation);
  return { ...openRegistry(request, context), [Symbol.asyncDispose]: () => lock[Symbol.asyncDispose]() };
}
