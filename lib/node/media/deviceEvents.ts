import { spawn, type ChildProcess } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '../../context.ts';
import type { Host } from '../../machine/host.ts';
import { commandOnHost, findProgram } from '../../machine/programs.ts';

/** After an event the next ones are near: those of the partitions, and those that udev adds to the kernel’s. Milliseconds. */
const quiet = 300;
/** Where it never is quiet, a look is due after so many of these. */
const most = 5;

/**
 * Hears of block devices that come, change and go. The kernel’s own events count too: those of udev do not reach every container.
 * What exactly happened is for a look at the devices to find out.
 */
export class DeviceEvents {
  readonly #child: ChildProcess | undefined;
  #heard = false;
  #wake: () => void = () => undefined;

  private constructor(child: ChildProcess | undefined) {
    this.#child = child;
    child?.stdout?.on('data', (chunk: Buffer) => {
      if (!/^(?:KERNEL|UDEV)\s*\[/m.test(chunk.toString())) return;
      this.#heard = true;
      this.#wake();
    });
  }

  /** Begins to listen. Where there is no udevadm, or it ends, nothing is heard, and there are only the looks now and then. */
  static async open(host: Host, context: Context): Promise<DeviceEvents> {
    const program = await findProgram(host, 'udevadm');
    if (program === undefined) {
      context.log('debug', 'there is no udevadm: devices are looked at now and then');
      return new DeviceEvents(undefined);
    }
    const args = ['monitor', '--kernel', '--udev', '--subsystem-match=block'];
    const [command, ...rest] = commandOnHost(host, program, args);
    const child = spawn(command, rest, { stdio: ['ignore', 'pipe', 'ignore'], env: { ...host.environment } });
    child.once('error', (error) => {
      context.log('debug', `udevadm cannot be run: ${error.message}`);
    });
    child.once('exit', () => {
      context.log('debug', 'udevadm has ended: devices are looked at now and then');
    });
    return new DeviceEvents(child);
  }

  /** Waits for an event, so many milliseconds at most, and then until it is quiet, or a second or two have gone by. Ends early with the signal. */
  async next(patience: number, signal: AbortSignal): Promise<void> {
    if (!this.#heard) await this.#wait(patience, signal);
    for (let round = 0; this.#heard && round < most && !signal.aborted; round += 1) {
      this.#heard = false;
      await sleep(quiet, undefined, { signal }).catch(() => undefined);
    }
  }

  close(): void {
    this.#child?.removeAllListeners('exit').kill();
  }

  async #wait(patience: number, signal: AbortSignal): Promise<void> {
    const done = new AbortController();
    this.#wake = () => {
      done.abort();
    };
    await sleep(patience, undefined, { signal: AbortSignal.any([signal, done.signal]) }).catch(() => undefined);
    this.#wake = () => undefined;
  }
}
