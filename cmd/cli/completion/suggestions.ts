import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { upgradeBundleKind } from '#update/record';
import type { Arguments, Program } from '../command.ts';
import { type FindValues, findCandidates, type Completion, type TypedLine } from './candidates.ts';

/**
 * Returns a function that finds values of options: on this machine and, for nodes and UpgradeBundles, in the cluster of
 * the command line. Reading may take `timeout` milliseconds, because the user waits for the result of a key. The
 * function throws the errors of reading.
 */
export function suggestionsFrom(environment: NodeJS.ProcessEnv, timeout = 2000): FindValues {
  return async (kind, given, typed) => {
    const signal = AbortSignal.timeout(timeout);
    const values = expandHome(given, environment['HOME']);
    switch (kind) {
      case 'contexts':
      case 'clusters':
      case 'users': {
        const { loadKubeconfig } = await import('#cluster/kubeconfig');
        const kubeconfig = values['kubeconfig']?.at(-1);
        return Object.keys((await loadKubeconfig({ kubeconfig, environment })).config[kind]).sort();
      }
      case 'bundles':
        return findBundles(typed, environment['HOME']);
      case 'registry-versions':
        return (await import('#registry-host/installation')).knownVersions();
      case 'versions':
        return findVersions(values['from-dir']?.at(-1), values['output']?.at(-1) ?? '.', signal);
      case 'components':
        return findComponents(values['bundle']?.at(-1), signal);
      case 'topics':
        return (await import('../explanations.ts')).listTopics().map(({ name }) => name);
      case 'nodes':
      case 'upgrade-bundles':
        return findClusterNames(kind, values, environment, signal);
    }
  };
}

/** Expands `~` in values, which the shell has not expanded yet. */
function expandHome(values: TypedLine['values'], home = '~'): TypedLine['values'] {
  const expand = (list: readonly string[]): string[] => list.map((value) => value.replace(/^~(?=\/)/, () => home));
  return Object.fromEntries(Object.entries(values).map(([name, list]) => [name, expand(list)]));
}

/** Finds bundles in the folder that is typed, those in volumes by their common names. The words begin as typed. */
async function findBundles(typed: string, home = '~'): Promise<string[]> {
  const [folder = ''] = /^.*\//s.exec(typed) ?? [];
  const names = await namesIn(folder === '' ? '.' : folder.replace(/^~(?=\/)/, () => home));
  const bundles = names.flatMap((name) => /^([^.].*\.tar)(?:\.000)?$/s.exec(name)?.[1] ?? []);
  return bundles.sort().map((name) => folder + name);
}

/** Finds versions in the names of finished and unfinished bundles, or in the tags of a mirror directory. */
async function findVersions(source: string | undefined, output: string, signal: AbortSignal): Promise<string[]> {
  if (source === undefined)
    return versionsIn(await namesIn(output), /^upgrade-(\d.*?)-[a-z\d_]+(?:-from-.*)?\.tar(?:$|\.)/);
  const { releaseRepository } = await import('#content/store');
  const tags = await namesIn(join(source, 'v2', releaseRepository, 'manifests'));
  if (tags.length === 0) return [(await readMetadata(source, signal)).version];
  const { isReleaseTag } = await import('#release/version');
  return versionsIn(tags.filter(isReleaseTag), /^(.*)-[a-z\d_]+$/);
}

function versionsIn(names: readonly string[], pattern: RegExp): string[] {
  return [...new Set(names.flatMap((name) => pattern.exec(name)?.[1] ?? []))];
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch(() => []);
}

async function findComponents(bundle: string | undefined, signal: AbortSignal): Promise<string[]> {
  return bundle === undefined ? [] : ['release', ...Object.keys((await readMetadata(bundle, signal)).components)];
}

async function readMetadata(path: string, signal: AbortSignal) {
  const { openBundle } = await import('#bundle/open');
  const context = { signal, log: () => undefined, onEvent: () => undefined };
  await using bundle = await openBundle(path, context);
  return bundle.metadata;
}

/** The kinds of objects for each suggestion. */
const kinds = {
  nodes: { apiVersion: 'v1', kind: 'Node' },
  'upgrade-bundles': upgradeBundleKind,
} as const;

type ClusterSuggestion = keyof typeof kinds;

/**
 * Finds the names of all objects of a kind in the cluster of a command line. Never asks for a password, and
 * retries only until the signal is aborted. Throws the errors of reading.
 */
async function findClusterNames(
  suggestion: ClusterSuggestion,
  values: TypedLine['values'],
  environment: NodeJS.ProcessEnv,
  signal: AbortSignal,
): Promise<string[]> {
  const [{ openCluster }, { clusterAccessOptions }, { readArguments }] = await Promise.all([
    import('../access.ts'),
    import('../options.ts'),
    import('../arguments.ts'),
  ]);
  const given = Object.entries(clusterAccessOptions).map(([name, option]) => {
    const list = values[name] ?? [];
    const last = option.type === 'boolean' ? list.at(-1) === 'true' : list.at(-1);
    return [name, 'repeatable' in option ? list : last] as const;
  });
  const line = { words: [], values: Object.fromEntries(given), rest: [] };
  const args = await readArguments(line, { options: clusterAccessOptions });
  const context = { signal, log: () => undefined, onEvent: () => undefined };
  using cluster = await openCluster(args as Arguments<typeof clusterAccessOptions>, environment, context);
  const { apiVersion, kind } = kinds[suggestion];
  return (await cluster.list(apiVersion, kind)).map(({ metadata }) => metadata.name);
}

/** The directives of cobra’s completion scripts: only these candidates, file names, folders. */
const directives = { nothing: 4, files: 0, folders: 16 };

/**
 * Returns the response to `__complete WORD… TYPED`, in the format that kubectl reads from a `kubectl_complete-…`
 * program: candidates, each with a tab and a description, then a colon and a directive. Without candidates after an
 * error. Never throws.
 */
export async function answerCompletion(
  program: Program,
  words: readonly string[],
  environment: NodeJS.ProcessEnv,
): Promise<string> {
  const { candidates, otherwise } = await findCandidates(program, words, suggestionsFrom(environment)).catch(
    (): Completion => ({ candidates: [], otherwise: 'nothing' }),
  );
  const lines = candidates.map(({ word, describe }) => [word, describe].filter((text) => text !== '').join('\t'));
  return [...lines, `:${directives[otherwise]}`, ''].join('\n');
}
