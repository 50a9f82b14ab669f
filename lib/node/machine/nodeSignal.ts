import { access, open, readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Context } from '#context';
import { messageOf } from '#errors';
import { pathOnHost, type Host } from './host.ts';

/** The ways to signal without a screen: the lights of a node, or its speaker. */
export const signalKinds = ['led', 'beep'] as const;

/** One of `signalKinds`. */
export type SignalKind = (typeof signalKinds)[number];

/** What a signal says. `busy`: leave the drive. `removable`: it may be removed. `stopped`: read the screen, or call. */
export type Signal = 'busy' | 'removable' | 'stopped' | 'quiet';

const leds = '/sys/class/leds';
/**
 * Lights that locate a machine, and those of a keyboard (Documentation/leds/leds-class.rst;
 * drivers/input/input-leds.c).
 */
const usableLeds = /identify|locate|^input\d+::(?:numlock|capslock|scrolllock)$/i;
/** Milliseconds on and off, for each signal of a light: slowly, always on, fast. */
const blinks: Readonly<Record<Exclude<Signal, 'quiet'>, number>> = { busy: 1000, removable: 0, stopped: 150 };

const speaker = '/dev/input/by-path/platform-pcspkr-event-spkr';
/** Milliseconds of the tones at the beginning of a signal. Work is silent. */
const tones: Readonly<Record<Signal, readonly number[]>> = {
  busy: [],
  removable: [1200],
  stopped: [200, 200, 200],
  quiet: [],
};
const frequency = 880;
const pauseAfterTone = 200;

/**
 * Signals to a person in front of a host that has no screen. A light repeats its signal until the next one, and a tone
 * sounds once. Does nothing on a host without such a light or speaker. Errors are logged once.
 */
export class NodeSignal {
  readonly #host: Host;
  readonly #kind: SignalKind;
  readonly #toneUnit: number;
  #last: Signal | undefined;
  #isFirst = true;
  #warned = false;

  /** `toneUnit` is the length of a millisecond of a tone, in milliseconds. */
  constructor(host: Host, kind: SignalKind, toneUnit = 1) {
    this.#host = host;
    this.#kind = kind;
    this.#toneUnit = toneUnit;
  }

  /** Gives a signal, unless it is the last one. */
  async give(signal: Signal, context: Context): Promise<void> {
    if (signal === this.#last) return;
    this.#isFirst = this.#last === undefined;
    this.#last = signal;
    try {
      if (this.#kind === 'led') await this.#light(signal);
      else await this.#sound(signal);
    } catch (error) {
      if (!this.#warned) context.log('warn', `no signal can be given: ${messageOf(error)}`);
      this.#warned = true;
    }
  }

  async #light(signal: Signal): Promise<void> {
    const folder = pathOnHost(this.#host, leds);
    const names = await readdir(folder).catch(() => []);
    for (const name of names.filter((each) => usableLeds.test(each))) await this.#blink(join(folder, name), signal);
  }

  async #blink(led: string, signal: Signal): Promise<void> {
    const write = (file: string, text: string): Promise<void> => writeFile(join(led, file), text);
    const triggers = await readFile(join(led, 'trigger'), 'utf8').catch(() => '');
    const listed = triggers.split(/[\s[\]]+/);
    if (signal === 'quiet') {
      const own = usualTrigger(led, listed);
      // It may be left by an agent that was killed.
      if (triggers.includes(`[${own}]`) && this.#isFirst) return;
      await write('brightness', '0');
      // Writing 0 removes the trigger.
      await write('trigger', own);
      return;
    }
    const delay = blinks[signal];
    if (delay === 0 || !listed.includes('timer')) {
      await write('trigger', 'none');
      await write('brightness', (await readFile(join(led, 'max_brightness'), 'utf8').catch(() => '1')).trim());
      return;
    }
    // The kernel makes the files of the delays when the trigger is set.
    await write('trigger', 'timer');
    for (const file of ['delay_on', 'delay_off']) await write(file, String(delay));
  }

  async #sound(signal: Signal): Promise<void> {
    const path = pathOnHost(this.#host, speaker);
    const hasSpeaker = await access(path).then(
      () => true,
      () => false,
    );
    if (!hasSpeaker || tones[signal].length === 0) return;
    await using device = await open(path, 'r+');
    for (const length of tones[signal]) {
      await device.write(soundEvent(frequency));
      await sleep(length * this.#toneUnit);
      await device.write(soundEvent(0));
      await sleep(pauseAfterTone * this.#toneUnit);
    }
  }
}

/** Returns the trigger of a light without a signal: that of a lock key of the keyboard, or none. */
function usualTrigger(led: string, listed: readonly string[]): string {
  const [, lock = ''] = /::(\w+lock)$/.exec(led) ?? [];
  return listed.find((trigger) => trigger === `kbd-${lock}`) ?? 'none';
}

/**
 * Returns the event that starts a tone of some hertz, or ends it with 0. It is a struct input_event of 64-bit Linux,
 * whose time the kernel sets (include/uapi/linux/input.h: EV_SND, SND_TONE).
 */
function soundEvent(hertz: number): Buffer {
  const event = Buffer.alloc(24);
  event.writeUInt16LE(0x12, 16);
  event.writeUInt16LE(2, 18);
  event.writeInt32LE(hertz, 20);
  return event;
}
