import { ignoredFlags, logLevels } from '../../cli/kubectlFlags.ts';
import { clusterOptions } from '../../cli/options.ts';

/** The words that a hook knows. */
export interface HookWords {
  /** The options that make “oc adm release mirror” a command of the plugin. */
  readonly mirrorOptions: readonly string[];
  /** Flags that oc has everywhere: with a value in the next word, and without one. */
  readonly valued: readonly string[];
  readonly plain: readonly string[];
}

/** Returns the line after the help of “oc adm release mirror”, which knows nothing of the plugin. */
export function helpNote(mirrorOptions: readonly string[]): string {
  return `With ${mirrorOptions.join(' or ')}, oc adm-release-mirror-config runs instead. See its --help.`;
}

/** Returns the flags that may come before the verb of a command line of oc, with a value (`valued`) and without one. */
export function globalFlags(): Pick<HookWords, 'valued' | 'plain'> {
  const own = Object.entries(clusterOptions).flatMap(([name, option]) =>
    [name, ...('alias' in option ? [option.alias] : [])].map((each) => ({ name: each, type: option.type })),
  );
  const dashed = (names: readonly string[]): string[] =>
    names.map((name) => (name.length === 1 ? `-${name}` : `--${name}`));
  const namesOf = (isBoolean: boolean): string[] =>
    own.filter(({ type }) => (type === 'boolean') === isBoolean).map(({ name }) => name);
  return {
    valued: [...dashed([...namesOf(false), 'certificate-authority', ...ignoredFlags.valued, ...logLevels]), '--v'],
    plain: dashed([...namesOf(true), ...ignoredFlags.plain]),
  };
}
