import { shellWord } from '../../lib/shellWord.ts';
import { kebabCase } from '../cli/arguments.ts';
import { clusterOptions, trustOptions } from '../cli/options.ts';
import type { MirrorArguments } from './request.ts';

/** The options that a printed command must not repeat: credentials, and the store, whose signatures are in the configuration by now. */
const left = new Set(['token', 'password', 'signature-store']);

/** Returns the options of a run that say whom to trust, for a printed command that checks the same release. */
export function trustWords(args: MirrorArguments): string {
  return formatOptions(args, Object.keys(trustOptions));
}

/** Returns the options of a run that choose the cluster, for a printed command for the same cluster. */
export function clusterWords(args: MirrorArguments): string {
  return formatOptions(args, Object.keys(clusterOptions));
}

/** Returns options with a space before each; empty if none is given. */
function formatOptions(args: MirrorArguments, names: readonly string[]): string {
  const given = Object.entries(args).flatMap(([key, value]) => {
    const name = kebabCase(key);
    if (!names.includes(name) || left.has(name)) return [];
    if (typeof value === 'boolean') return value ? [`--${name}`] : [];
    return [value].flat().flatMap((each) => (each === undefined ? [] : [`--${name}=${shellWord(String(each))}`]));
  });
  return given.map((word) => ` ${word}`).join('');
}
