import { ignoredFlags, logLevels } from '../../cli/kubectlFlags.ts';
import { clusterOptions } from '../../cli/options.ts';

/** Returns the flags that may come before the verb of a command line of oc, with a value (`valued`) and without one. */
export function globalFlags(): { readonly valued: readonly string[]; readonly plain: readonly string[] } {
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
