/** The arguments of `npm run package`: a folder, and the platforms to build. */
import { platforms, type Platform } from './krew.ts';

/** The folder and the platforms of a build. */
export interface PackageArguments {
  /** The folder for the archives; undefined for the usual one. */
  readonly folder: string | undefined;
  readonly wanted: readonly Platform[];
  readonly isFast: boolean;
}

/** Returns the names of a platform: `linux-amd64` as in its archive, and `linux-x64` as in Node.js. */
export function namesOf({ os, cpu, krew }: Platform): string[] {
  return [...new Set([`${krew.os}-${krew.arch}`, `${os}-${cpu}`])];
}

/** Reads the arguments, in any order. Throws an Error with the right ones for a word that is no platform and no folder. */
export function readPackageArguments(given: readonly string[]): PackageArguments {
  const words = given.filter((word) => word !== '--fast');
  const isPlatform = (word: string): boolean => platforms.some((platform) => namesOf(platform).includes(word));
  const known = words.filter(isPlatform);
  // A mistyped platform must not become a folder.
  const isMistyped = (word: string): boolean => /^(?:-|[a-z\d]+[-_](?:x|amd|arm|aarch|i?\d86)[\w-]*$)/i.test(word);
  const unknown = words.filter((word) => !isPlatform(word));
  const [folder, ...others] = unknown.filter((word) => !isMistyped(word));
  const wrong = [...unknown.filter(isMistyped), ...others];
  if (wrong.length > 0) {
    const names = platforms.map((platform) => namesOf(platform)[0]).join(', ');
    throw new Error(
      `unknown platform: ${wrong.join(', ')}\ntry: npm run package -- [FOLDER] [PLATFORM...], with platforms of ${names}`,
    );
  }
  const wanted = platforms.filter((each) => known.length === 0 || namesOf(each).some((name) => known.includes(name)));
  return { folder, wanted, isFast: given.includes('--fast') };
}
