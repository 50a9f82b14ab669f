import { spawn, type ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.ts';
import type { Host } from '../machine/host.ts';
import { commandOnHost, findProgram } from '../machine/programs.ts';

/** The pause in which further events follow an event, from the partitions and from udev, in milliseconds. */
const quiet = 300;
/** The number of such pauses after which a search starts even if events continue. */
const most = 5;

/**
 * Listens for block devices that appear, change and disappear. Includes events of the kernel, because events of udev do
 * not reach each container. The caller then searches the devices.
 */
export class DeviceEvents {
  readonly #child: ChildProcess | undefined;
  #pending = false;
  #wake: () => void = () => undefined;

  private constructor(child: ChildProcess | undefined) {
    this.#child = child;
    child?.stdout?.on('data', (chunk: Buffer) => {
      if (!/^(?:KERNEL|UDEV)\s*\[/m.test(chunk.toString())) return;
      this.#pending = true;
      this.#wake();
    });
  }

  /** Starts to listen. Without udevadm there are no events, only periodic searches. */
  static async open(host: Host, context: Context): Promise<DeviceEvents> {
    const program = await findProgram(host, 'udevadm');
    if (program === undefined) {
      context.log('debug', 'udevadm is missing: devices are checked periodically');
      return new DeviceEvents(undefined);
    }
    const args = ['monitor', '--kernel', '--udev', '--subsystem-match=block'];
    const [command, ...rest] = commandOnHost(host, program, args);
    const child = spawn(command, rest, { stdio: ['ignore', 'pipe', 'ignore'], env: { ...host.environment } });
    child.once('error', (error) => {
      context.log('debug', `udevadm cannot be run: ${error.message}`);
    });
    child.once('exit', () => {
      context.log('debug', 'udevadm has ended: devices are checked periodically');
    });
    return new DeviceEvents(child);
  }

  /**
   * Waits for an event, for at most a number of milliseconds, and then until no event follows for a short time. Ends
   * early if the signal is aborted.
   */
  async next(timeout: number, signal: AbortSignal): Promise<void> {
    if (!this.#pending) await this.#wait(timeout, signal);
    for (let round = 0; this.#pending && round < most && !signal.aborted; round += 1) {
      this.#pending = false;
      await sleep(quiet, undefined, { signal }).catch(() => undefined);
    }
  }

  close(): void {
    this.#child?.removeAllListeners('exit').kill();
  }

  async #wait(timeout: number, signal: AbortSignal): Promise<void> {
    const done = new AbortController();
    this.#wake = () => {
      done.abort();
    };
    await sleep(timeout, undefined, { signal: AbortSignal.any([signal, done.signal]) }).catch(() => undefined);
    this.#wake = () => undefined;
  }
}
