import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import type { CopyProgram } from './copyImage.ts';
import type { CopySteps } from './copyQueue.ts';
import type { HostStorage } from './hostStorage.ts';
import type { PlannedImage } from './loadPlan.ts';
import { removalHint, removeImages } from './storeRepair.ts';

/** The store with the copied images, and the program that copied them. */
interface CheckSetting {
  readonly storage: HostStorage;
  readonly program: CopyProgram;
}

/** The number of entries of an index to read for each image. */
const entriesPerImage = 1000;

/**
 * Checks copied images in the store, several at a time in a large store: reading its index after each image would take
 * longer than copying the image. So the checks cost as much for each image in a store of any size.
 */
export class StoreChecks {
  readonly #setting: CheckSetting;
  readonly #copy: CopySteps['copy'];
  readonly #finish: (image: PlannedImage) => void;
  /** The number of entries of the index when it was read last. */
  #size: number;

  /** `size`: the number of entries of the index now. `finish` gets each image that is right. */
  constructor(setting: CheckSetting, size: number, copy: CopySteps['copy'], finish: (image: PlannedImage) => void) {
    this.#setting = setting;
    this.#size = size;
    this.#copy = copy;
    this.#finish = finish;
  }

  /** Returns whether enough copied images wait for a check. */
  isDue(copied: number): boolean {
    return copied * entriesPerImage >= this.#size;
  }

  /** Checks images, and copies broken ones again. Returns the errors of images that stay broken. */
  async check(images: readonly PlannedImage[], context: Context): Promise<Map<PlannedImage, PluginError>> {
    const { storage, program } = this.#setting;
    const failures = new Map<PlannedImage, PluginError>();
    const lacks = await this.#findLacks(images);
    // They reused a broken layer of a load that ended early, which no image had until now. The layer goes with the last
    // of them, so all are removed first.
    const removed: PlannedImage[] = [];
    for (const [image, lack] of lacks) {
      context.log('warn', `${image.label} is loaded again: ${lack}`);
      if ((await removeImages(storage, [image.name], context)) === undefined) removed.push(image);
    }
    for (const image of removed) {
      try {
        await this.#copy(image, context);
      } catch (error) {
        if (!isPluginError(error)) throw error;
        failures.set(image, error);
      }
    }
    const again = removed.length === 0 ? lacks : await this.#findLacks([...lacks.keys()]);
    for (const [image, lack] of again) {
      if (failures.has(image)) continue;
      const message = `${program} reports it as loaded, but ${lack}`;
      failures.set(image, new PluginError('incomplete', message, { hint: removalHint([image.name]) }));
    }
    for (const image of images) if (!failures.has(image)) this.#finish(image);
    return failures;
  }

  /** Reads the index, and returns what images lack in the store. */
  async #findLacks(images: readonly PlannedImage[]): Promise<Map<PlannedImage, string>> {
    const index = await this.#setting.storage.readIndex();
    this.#size = index.size;
    const lacks = new Map<PlannedImage, string>();
    for (const image of images) {
      const lack = await index.check(image);
      if (lack !== undefined) lacks.set(image, lack);
    }
    return lacks;
  }
}
