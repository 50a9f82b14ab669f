import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { FindValues } from './candidates.ts';

/** How long a file may take to be read, in milliseconds: a person is waiting for the answer to a key. */
const patience = 2000;

/** Finds the values that options may have in what lies on this machine; no network is used. Throws what reading throws. */
export function suggestionsFrom(environment: NodeJS.ProcessEnv): FindValues {
  // As it was typed: no shell has put the home folder into it yet.
  const pathOf = (typed: readonly string[] | undefined): string | undefined =>
    typed?.at(-1)?.replace(/^~(?=\/)/, environment['HOME'] ?? '~');
  return async (kind, values) => {
    switch (kind) {
      case 'contexts':
      case 'clusters':
      case 'users': {
        const { loadKubeconfig } = await import('../../lib/cluster/kubeconfig.ts');
        const kubeconfig = pathOf(values['kubeconfig']);
        return Object.keys((await loadKubeconfig({ kubeconfig, environment })).config[kind]).sort();
      }
      case 'registry-versions':
        return (await import('../../lib/host/versions.ts')).knownVersions();
      case 'versions':
        return findVersions(pathOf(values['from-dir']), pathOf(values['output']) ?? '.');
      case 'components':
        return findComponents(pathOf(values['bundle']));
    }
  };
}

/** Versions in the names of bundles that are made or being made, or in the tags of a mirror directory. */
async function findVersions(source: string | undefined, output: string): Promise<string[]> {
  if (source === undefined)
    return versionsIn(await namesIn(output), /^upgrade-(\d.*?)-[a-z\d_]+(?:-from-.*)?\.tar(?:$|\.)/);
  const { releaseRepository } = await import('../../lib/store/directory.ts');
  const tags = await namesIn(join(source, 'v2', releaseRepository, 'manifests'));
  if (tags.length === 0) return [(await readMetadata(source)).version];
  const { isReleaseTag } = await import('../../lib/release/version.ts');
  return versionsIn(tags.filter(isReleaseTag), /^(.*)-[a-z\d_]+$/);
}

function versionsIn(names: readonly string[], pattern: RegExp): string[] {
  return [...new Set(names.flatMap((name) => pattern.exec(name)?.[1] ?? []))];
}

async function namesIn(folder: string): Promise<string[]> {
  return readdir(folder).catch(() => []);
}

async function findComponents(bundle: string | undefined): Promise<string[]> {
  return bundle === undefined ? [] : ['release', ...Object.keys((await readMetadata(bundle)).components)];
}

async function readMetadata(path: string) {
  const { openBundle } = await import('../../lib/bundle/open.ts');
  const context = { signal: AbortSignal.timeout(patience), log: () => undefined, onEvent: () => undefined };
  const bundle = await openBundle(path, context);
  await bundle.close();
  return bundle.metadata;
}
