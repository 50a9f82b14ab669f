import { shellCommand, shellWord } from '#text';
import { mirrorOptions } from '../../release-mirror-config/options.ts';
import type { MirrorArguments } from '../../release-mirror-config/request.ts';
import { camelCase } from '../arguments.ts';
import type { OptionRecord } from '../command.ts';
import { clusterOptions, registryOptions, trustOptions } from '../options.ts';

/** The arguments of a run by camel-case name. */
type RunArguments = Readonly<Record<string, unknown>>;

/**
 * The options that a printed command must not repeat: credentials, and the store, whose signatures are in the
 * configuration by now.
 */
const omitted = new Set(['token', 'password', 'signature-store']);

/** Returns the options of a run that say whom to trust, for a printed command that checks the same release. */
export function trustWords(args: RunArguments): string {
  return formatOptions(args, trustOptions);
}

/** Returns the options of a run that choose the cluster, for a printed command for the same cluster. */
export function clusterWords(args: RunArguments): string {
  return formatOptions(args, clusterOptions);
}

/** Returns the options of a run that describe the access to registries, for a printed command for the same registry. */
export function registryWords(args: RunArguments): string {
  return formatOptions(args, registryOptions);
}

/** Returns the release and all options of a mirroring run, for a printed command that repeats it. */
export function runWords(args: MirrorArguments): string {
  const release = args.release === undefined ? '' : ` ${shellWord(args.release)}`;
  return `${release}${formatOptions(args, mirrorOptions)}`;
}

/** Returns the command that updates a cluster to a release image, which may be in a private registry. */
export function upgradeCommand(image: string): string {
  // Such an image is not among the recommended updates, so the update must be explicit.
  return shellCommand`oc adm upgrade --allow-explicit-upgrade --to-image=${image}`;
}

/** Returns the options that differ from their defaults, with a space before each; empty if there are none. */
function formatOptions(args: RunArguments, options: OptionRecord): string {
  const given = Object.entries(options).flatMap(([name, option]) => {
    const value = args[camelCase(name)];
    if (omitted.has(name) || value === option.default) return [];
    if (typeof value === 'boolean') return value ? [`--${name}`] : [];
    const isWord = (each: unknown) => typeof each === 'string' || typeof each === 'number';
    return [value]
      .flat()
      .filter(isWord)
      .map((each) => `--${name}=${shellWord(String(each))}`);
  });
  return given.map((word) => ` ${word}`).join('');
}
