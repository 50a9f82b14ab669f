import { isFields, type Fields } from '../../fields.ts';
import { isAbsolute, join } from 'node:path';

/** The content of a kubeconfig file, and its folder. */
export interface Kubeconfig {
  readonly folder: string;
  readonly clusters?: unknown;
  readonly users?: unknown;
  readonly contexts?: unknown;
  readonly 'current-context'?: unknown;
}

/** The merged content of several kubeconfig files. */
export interface MergedKubeconfig {
  readonly clusters: Readonly<Record<string, Fields>>;
  readonly users: Readonly<Record<string, Fields>>;
  readonly contexts: Readonly<Record<string, Fields>>;
  readonly 'current-context': string;
}

const paths = ['certificate-authority', 'client-certificate', 'client-key', 'tokenFile'];

/**
 * Merges kubeconfig files as client-go does: the first file with an entry wins, also for the current context. Relative
 * paths become absolute. The loader of @kubernetes/client-node differs: it takes the last context, and refuses
 * duplicate and incomplete entries.
 */
export function mergeKubeconfigs(configs: readonly Kubeconfig[]): MergedKubeconfig {
  const merge = (list: 'clusters' | 'users' | 'contexts', field: string): Record<string, Fields> => {
    const entries = configs.flatMap((config) => entriesOf(config[list], field, config.folder));
    return Object.fromEntries(entries.reverse());
  };
  const current = configs.map((config) => config['current-context']).find((name) => typeof name === 'string' && name);
  return {
    clusters: merge('clusters', 'cluster'),
    users: merge('users', 'user'),
    contexts: merge('contexts', 'context'),
    'current-context': typeof current === 'string' ? current : '',
  };
}

function entriesOf(list: unknown, field: string, folder: string): [name: string, fields: Fields][] {
  if (!Array.isArray(list)) return [];
  return list.filter(isFields).flatMap((entry) => {
    const { name, [field]: fields } = entry;
    return typeof name === 'string' ? [[name, resolvePaths(isFields(fields) ? fields : {}, folder)]] : [];
  });
}

function resolvePaths(fields: Fields, folder: string): Fields {
  const resolved = paths.flatMap((key) => {
    const path = fields[key];
    return typeof path === 'string' && path !== '' ? [[key, absolute(path, folder)] as const] : [];
  });
  const { exec } = fields;
  const command = isFields(exec) ? exec['command'] : undefined;
  return {
    ...fields,
    ...Object.fromEntries(resolved),
    // A bare name is looked up in PATH; one with a slash is relative to the file.
    ...(isFields(exec) &&
      typeof command === 'string' &&
      /[/\\]/.test(command) && { exec: { ...exec, command: absolute(command, folder) } }),
  };
}

function absolute(path: string, folder: string): string {
  return isAbsolute(path) ? path : join(folder, path);
}
