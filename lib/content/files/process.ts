import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { digestOf, hexOf } from '../oci/digest.ts';

/** A process, in a form that other processes and machines can read. */
export interface ProcessIdentity {
  /** The machine or container. Another one may have the same host name. */
  readonly host: string;
  /** The current boot and the process namespace; '' if unknown. */
  readonly kernel: string;
  readonly pid: number;
  readonly started: string;
}

/** Identifies this process. */
export function identifyProcess(): ProcessIdentity {
  const space = processNamespace();
  const boot = readBoot();
  const machine = readOrEmpty(() => readFileSync('/etc/machine-id', 'utf8'));
  return {
    host: [hostname(), machine, space].filter((part) => part !== '').join(' '),
    kernel: boot === '' || space === '' ? '' : `${boot} ${space}`,
    pid: process.pid,
    started: startTimeOf(process.pid),
  };
}

/** Identifies the current boot of the machine, by the kernel; '' if unknown. */
export function readBoot(): string {
  return readOrEmpty(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8'));
}

/** Replaces what identifies a machine by digests, for other machines: its ID is confidential (machine-id(5)). */
export function hideMachine(identity: ProcessIdentity): ProcessIdentity {
  const hide = (text: string): string => (text === '' ? '' : hexOf(digestOf(text)).slice(0, 32));
  return { ...identity, host: hide(identity.host), kernel: hide(identity.kernel) };
}

/** Returns whether a process is running; `unknown` for one of another machine or container, whose processes are invisible. */
export function processState(
  { host, kernel, pid, started }: ProcessIdentity,
  own = identifyProcess(),
): 'running' | 'ended' | 'unknown' {
  // Containers that see all processes of a machine see those of each other, even if their host
  // names change, as in pods.
  if (host !== own.host && (kernel === '' || kernel !== own.kernel)) return 'unknown';
  return started === startTimeOf(pid) && isRunning(pid) ? 'running' : 'ended';
}

/**
 * Returns whether a process of this machine and process namespace is running. One that has ended stays in the table of
 * processes until its parent reads its end, which the first process of some containers never does.
 */
export function isRunning(pid: number): boolean {
  if (['Z', 'X'].includes(readStat(pid)[0] ?? '')) return false;
  try {
    // oxlint-disable-next-line no-restricted-properties -- signal 0 ends nothing
    return process.kill(pid, 0);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Returns the start time of a process, in the units of the kernel, because process IDs are reused; '' if unknown. */
function startTimeOf(pid: number): string {
  return readStat(pid)[19] ?? '';
}

/** Reads what the kernel says about a process, from its state on (proc_pid_stat(5)); [''] if unknown. */
function readStat(pid: number): string[] {
  return readOrEmpty(() => readFileSync(`/proc/${pid}/stat`, 'utf8'))
    .replace(/^.*\) /s, '')
    .split(' ');
}

/**
 * Identifies the process namespace; '' if unknown. Process IDs are unique in one namespace only, and containers may
 * share a host name.
 */
export function processNamespace(): string {
  return readOrEmpty(() => readlinkSync('/proc/self/ns/pid'));
}

function readOrEmpty(read: () => string): string {
  try {
    return read().trim();
  } catch {
    return '';
  }
}
