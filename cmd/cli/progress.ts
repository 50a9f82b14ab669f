import type { TransferEvent } from '../../lib/context.ts';
import { formatBar, formatBytes, formatDuration } from './format.ts';

/** Over how long the rate is taken, in milliseconds. */
const rateWindow = 15_000;

/** What is known about one transfer: fed with events, asked now and then for a line of words. */
export class Progress {
  readonly #label: string;
  readonly #samples: { time: number; bytes: number }[];
  #images = 0;
  #imagesTotal: number | undefined;
  #total: number | undefined;
  #present = 0;
  #moved = 0;

  /** `label` begins the line (`Downloading`); `now` is the time in milliseconds. */
  constructor(label: string, now: number) {
    this.#label = label;
    this.#samples = [{ time: now, bytes: 0 }];
  }

  /** Counts what happened. */
  add(event: TransferEvent): void {
    switch (event.kind) {
      case 'plan':
        this.#imagesTotal = event.images;
        this.#total = event.bytes;
        this.#present = event.present;
        break;
      case 'bytes':
        this.#moved += event.bytes;
        break;
      case 'image':
        this.#images += 1;
        break;
      case 'stored':
      case 'mounted':
      case 'skipped':
        break;
    }
  }

  /** Tells whether there is anything to show yet. */
  get started(): boolean {
    return this.#total !== undefined || this.#moved > 0;
  }

  /** How much of the plan is done, from 0 to 1; undefined without a plan. A blob that is fetched again may make it wait, never exceed 1. */
  get fraction(): number | undefined {
    if (this.#total === undefined) {
      return undefined;
    }
    return this.#total === 0 ? 1 : Math.min(1, (this.#present + this.#moved) / this.#total);
  }

  /**
   * The state in words at time `now`, e.g. `Downloading 35% 1.2 GiB of 3.4 GiB, 110 MiB/s, 20s left, 12 of 190 images`; `bar` is its
   * width in characters. What does not fit into the width of the line is left out, the last first.
   */
  line(now: number, { bar = 0, width = Infinity } = {}): string {
    const rate = this.#rate(now);
    const done = this.#present + this.#moved;
    const parts: string[] = [];
    let line = this.#label;
    if (this.#total === undefined) {
      parts.push(` ${formatBytes(done)}`);
    } else {
      const fraction = this.fraction ?? 0;
      const percent = `${String(Math.floor(fraction * 100)).padStart(3)}%`;
      const drawn = bar > 0 ? ` ${formatBar(fraction, bar)}` : '';
      line += `${drawn} ${percent}`;
      parts.push(`  ${formatBytes(Math.min(done, this.#total))} of ${formatBytes(this.#total)}`);
    }
    if (rate > 0) {
      parts.push(`, ${formatBytes(rate)}/s`);
      if (this.#total !== undefined && done < this.#total) {
        parts.push(`, ${formatDuration((this.#total - done) / rate)} left`);
      }
    }
    if (this.#imagesTotal !== undefined && this.#imagesTotal > 0) {
      parts.push(`, ${this.#images} of ${this.#imagesTotal} images`);
    }
    for (const part of parts) {
      if (line.length + part.length > width) break;
      line += part;
    }
    return line;
  }

  /** Bytes a second over the last moments. */
  #rate(now: number): number {
    this.#samples.push({ time: now, bytes: this.#moved });
    while (this.#samples.length > 2 && (this.#samples[1]?.time ?? now) <= now - rateWindow) {
      this.#samples.shift();
    }
    const oldest = this.#samples[0];
    return oldest === undefined || now <= oldest.time ? 0 : ((this.#moved - oldest.bytes) * 1000) / (now - oldest.time);
  }
}
