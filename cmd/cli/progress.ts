import type { TransferEvent } from '#context';
import { formatBytes, formatShare } from '#text';
import { formatBar, formatDuration } from './format.ts';

/** The time over which the rate is measured, in milliseconds. A transfer without a byte in this time has stalled. */
const rateWindow = 15_000;

/** The shortest bar, in characters. */
const shortestBar = 5;

/** A part of a progress line. The part with the lowest rank is left out first if the line is too short. */
interface Part {
  readonly text: string;
  readonly rank: number;
}

/** How much of the plan of a transfer is complete. */
export interface ProgressCounts {
  readonly bytes: number;
  readonly bytesTotal: number;
  readonly images: number;
  readonly imagesTotal: number;
}

/** The state of one transfer. It counts events and formats a line. */
export class Progress {
  readonly #label: string;
  readonly #samples: { time: number; bytes: number }[];
  readonly #start: number;
  /** The time of the last byte. */
  #last: number;
  #manifests: { readonly read: number; readonly images: number } | undefined;
  #images = 0;
  #imagesTotal = 0;
  #total: number | undefined;
  #present = 0;
  #moved = 0;

  /** `label` begins the line (`Downloading`). `now` is the time in milliseconds. */
  constructor(label: string, now: number) {
    this.#label = label;
    this.#start = now;
    this.#last = now;
    this.#samples = [{ time: now, bytes: 0 }];
  }

  /** Counts an event at the time `now` in milliseconds. */
  add(event: TransferEvent, now: number): void {
    switch (event.kind) {
      case 'manifests':
        this.#manifests = event;
        break;
      case 'plan':
        this.#imagesTotal = event.images;
        this.#total = event.bytes;
        this.#present = event.present;
        break;
      case 'bytes':
        this.#moved += event.bytes;
        this.#last = now;
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

  /** Whether there is anything to show yet. */
  get started(): boolean {
    return this.#total !== undefined || this.#moved > 0 || this.#manifests !== undefined;
  }

  /**
   * The completed share of the plan, from 0 to 1; undefined without a plan. Never more than 1 if a blob is fetched
   * again.
   */
  get fraction(): number | undefined {
    if (this.#total === undefined) return undefined;
    return this.#total === 0 ? 1 : Math.min(1, this.#done / this.#total);
  }

  /** The numbers of a transfer with a plan. */
  get counts(): ProgressCounts | undefined {
    if (this.#total === undefined) return undefined;
    const bytes = Math.min(this.#done, this.#total);
    return { bytes, bytesTotal: this.#total, images: this.#images, imagesTotal: this.#imagesTotal };
  }

  /**
   * Formats the state at time `now` in milliseconds, such as `Downloading 35% 1.2/3.4 GiB, 110 MiB/s, 20s left, 12/190
   * images`. Leaves out parts that exceed `width` characters. A bar of at most `bar` characters takes the remaining
   * space.
   */
  line(now: number, { bar = 0, width = Infinity } = {}): string {
    const { label, fraction, parts } = this.#measureParts(now);
    const percent = fraction === undefined ? '' : ` ${String(Math.floor(fraction * 100)).padStart(3)}%`;
    const head = label.length + percent.length;
    const shown = chooseParts(parts, width - head);
    const length = Math.min(bar, width - head - lengthOf(shown) - 1);
    const drawn = fraction === undefined || length < shortestBar ? '' : ` ${formatBar(fraction, length)}`;
    return `${label}${drawn}${percent}${shown.map(({ text }) => text).join('')}`.slice(0, width);
  }

  #measureParts(now: number): { label: string; fraction: number | undefined; parts: Part[] } {
    const { counts, fraction } = this;
    if (!counts && this.#moved === 0 && this.#manifests) {
      const { read, images } = this.#manifests;
      const parts = [{ text: `  ${read}/${images} images`, rank: 1 }];
      return { label: 'Reading manifests', fraction: images === 0 ? 1 : read / images, parts };
    }
    const amount = counts ? `  ${formatShare(counts.bytes, counts.bytesTotal)}` : ` ${formatBytes(this.#moved)}`;
    const images =
      counts && counts.imagesTotal > 0 ? [{ text: `, ${counts.images}/${counts.imagesTotal} images`, rank: 3 }] : [];
    return { label: this.#label, fraction, parts: [{ text: amount, rank: 0 }, ...this.#describeRate(now), ...images] };
  }

  #describeRate(now: number): Part[] {
    const remainingBytes = (this.#total ?? Infinity) - this.#done;
    const stalled = now - this.#last;
    if (remainingBytes > 0 && stalled >= rateWindow)
      return [{ text: `, stalled for ${formatDuration(stalled / 1000)}`, rank: 4 }];
    const rate = this.#rate(now, remainingBytes <= 0);
    if (rate <= 0) return [];
    const estimate = `, ${formatDuration(remainingBytes / rate)} left`;
    return [
      { text: `, ${formatBytes(rate)}/s`, rank: 1 },
      ...(remainingBytes > 0 && remainingBytes < Infinity ? [{ text: estimate, rank: 2 }] : []),
    ];
  }

  get #done(): number {
    return this.#present + this.#moved;
  }

  /** Returns the bytes per second: over the last seconds, and at the end over the whole time. */
  #rate(now: number, isDone: boolean): number {
    if (isDone) return this.#moved / Math.max(1, (this.#last - this.#start) / 1000);
    this.#samples.push({ time: now, bytes: this.#moved });
    while (this.#samples.length > 2 && (this.#samples[1]?.time ?? now) <= now - rateWindow) this.#samples.shift();
    const oldest = this.#samples[0];
    return oldest === undefined || now <= oldest.time ? 0 : ((this.#moved - oldest.bytes) * 1000) / (now - oldest.time);
  }
}

function chooseParts(parts: readonly Part[], width: number): readonly Part[] {
  if (parts.length === 0 || lengthOf(parts) <= width) return parts;
  const lowest = Math.min(...parts.map(({ rank }) => rank));
  return chooseParts(
    parts.filter(({ rank }) => rank !== lowest),
    width,
  );
}

function lengthOf(parts: readonly Part[]): number {
  return parts.reduce((sum, { text }) => sum + text.length, 0);
}
