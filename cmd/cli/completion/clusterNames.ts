import { upgradeBundleKind } from '../../../lib/update/upgradeBundle.ts';
import type { Arguments } from '../command.ts';
import type { TypedLine } from './line.ts';

/** The kinds of objects for each suggestion. */
const kinds = {
  nodes: { apiVersion: 'v1', kind: 'Node' },
  'upgrade-bundles': upgradeBundleKind,
} as const;

/** A suggestion that needs the cluster. */
export type ClusterSuggestion = keyof typeof kinds;

/**
 * Finds the names of all objects of a kind in the cluster of a command line, sorted. Never asks for a password, and
 * retries only until the signal is aborted. Throws the errors of reading.
 */
export async function findClusterNames(
  suggestion: ClusterSuggestion,
  values: TypedLine['values'],
  environment: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<string[]> {
  const [{ openCluster }, { clusterAccessOptions }, { readArguments }] = await Promise.all([
    import('../clusterAccess.ts'),
    import('../options.ts'),
    import('../arguments.ts'),
  ]);
  const given = Object.entries(clusterAccessOptions).flatMap(([name, option]) => {
    const list = values[name] ?? [];
    const last = option.type === 'boolean' ? list.at(-1) === 'true' : list.at(-1);
    return list.length === 0 ? [] : [[name, 'repeatable' in option ? list : last]];
  });
  const line = { words: [], values: Object.fromEntries(given) as Record<string, unknown>, rest: [] };
  const args = await readArguments(line, { options: clusterAccessOptions });
  const context = { signal, log: () => undefined, onEvent: () => undefined };
  using cluster = await openCluster(args as Arguments<typeof clusterAccessOptions>, environment, context);
  const { apiVersion, kind } = kinds[suggestion];
  return (await cluster.list(apiVersion, kind)).map(({ metadata }) => metadata.name).sort();
}
