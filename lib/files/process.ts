import { readFileSync, readlinkSync } from 'node:fs';

/** Returns whether a process of this machine and process namespace is running. */
export function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Returns the start time of a process, in the units of the kernel, because process IDs are reused; '' if unknown. */
export function startTimeOf(pid: number): string {
  const fields = readOrEmpty(() => readFileSync(`/proc/${pid}/stat`, 'utf8')).replace(/^.*\) /s, '');
  return fields.split(' ')[19] ?? '';
}

/**
 * Identifies the process namespace; '' if unknown. Process IDs are unique in one namespace only, and containers may
 * share a host name.
 */
export function processNamespace(): string {
  return readOrEmpty(() => readlinkSync('/proc/self/ns/pid'));
}

/** Identifies the machine across restarts; '' if unknown. */
export function machineId(): string {
  return readOrEmpty(() => readFileSync('/etc/machine-id', 'utf8'));
}

/** Identifies the current boot of the machine; '' if unknown. */
export function bootId(): string {
  return readOrEmpty(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'));
}

function readOrEmpty(read: () => string): string {
  try {
    return read().trim();
  } catch {
    return '';
  }
}
