import { readFileSync, existsSync } from 'node:fs';

const folder = new URL('../../../shared/data/', import.meta.url);

/** Reads a file of the data that the OpenShift project publishes, which is not part of this repository. */
export function sharedData(path: string): Buffer {
  return readFileSync(new URL(path, folder));
}

/**
 * Does the same as `it` for a test that needs that data. Without the data, skips the test with the reason in its name.
 */
export function itWithSharedData(title: string, test: () => Promise<void> | void): void {
  if (existsSync(folder)) it(title, test);
  else it.skip(`${title} (needs ../shared/data, which is absent)`, test);
}
