/** The arguments of `npm run package`: a folder, the platforms to build, and further forms. */
import { platforms, type Platform } from './krew.ts';

/** The folder and the platforms of a build. */
export interface PackageArguments {
  /** The folder for the archives; undefined for the usual one. */
  readonly folder: string | undefined;
  readonly wanted: readonly Platform[];
  /** Whether to make an rpm of each archive for Linux. */
  readonly withRpm: boolean;
  /** The base of a container image of each archive for Linux, as skopeo names it; undefined for none. */
  readonly base: string | undefined;
  readonly isFast: boolean;
}

/** Returns the names of a platform: `linux-amd64` as in its archive, and `linux-x64` as in Node.js. */
export function namesOf({ os, cpu, krew }: Platform): string[] {
  return [...new Set([`${krew.os}-${krew.arch}`, `${os}-${cpu}`])];
}

/**
 * Reads the arguments, in any order. Throws an Error with the right ones for a word that is no platform and no folder.
 */
export function readPackageArguments(given: readonly string[]): PackageArguments {
  const bases = given.flatMap((word) => (word.startsWith('--base=') ? [word.slice('--base='.length)] : []));
  const [base] = bases;
  const withImage = given.includes('image');
  if (withImage !== (base !== undefined && /^[a-z-]+:./.test(base))) {
    throw new Error(
      'an image needs a base with glibc and libstdc++\ntry: npm run package -- image --base=docker://REGISTRY/REPOSITORY@sha256:DIGEST',
    );
  }
  const withRpm = given.includes('rpm');
  const words = given.filter((word) => !['--fast', 'rpm', 'image', `--base=${base}`].includes(word));
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
      `unknown platform: ${wrong.join(', ')}\ntry: ` +
        `npm run package -- [FOLDER] [PLATFORM...] [rpm] [image --base=IMAGE], with platforms of ${names}`,
    );
  }
  const isAsked = (each: Platform): boolean =>
    known.length === 0
      ? each.os === 'linux' || !(withRpm || withImage)
      : namesOf(each).some((name) => known.includes(name));
  return { folder, wanted: platforms.filter(isAsked), withRpm, base, isFast: given.includes('--fast') };
}
