import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';

/** A temporary folder with kubeconfig files and the files that they name. */
export interface KubeconfigFolder extends AsyncDisposable {
  readonly folder: string;
  /** Writes a kubeconfig with one cluster (`here`), one user (`me`) and one context (`test`), and returns its path. */
  write(content: KubeconfigContent): Promise<string>;
  /** Writes any file, executable with `mode` 0o755, and returns its path. */
  file(name: string, text: string, mode?: number): Promise<string>;
  remove(): Promise<void>;
}

/** The content of a kubeconfig, by the names of its fields. */
export interface KubeconfigContent {
  readonly file?: string;
  readonly cluster: Readonly<Record<string, unknown>>;
  readonly user?: Readonly<Record<string, unknown>>;
  readonly context?: Readonly<Record<string, unknown>>;
  /** The current context; default `test`, '' for none. */
  readonly current?: string;
  /** Prefix of the names, for several files. */
  readonly prefix?: string;
}

/** Creates a folder for kubeconfig files. */
export async function makeKubeconfigFolder(): Promise<KubeconfigFolder> {
  const folder = await mkdtemp(join(tmpdir(), 'kubeconfig-'));
  const file = async (name: string, text: string, mode = 0o600): Promise<string> => {
    const path = join(folder, name);
    await writeFile(path, text, { mode });
    return path;
  };
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true });
  return {
    folder,
    file,
    write: ({ file: name = 'config', cluster, user = {}, context, current, prefix = '' }) => {
      const [here, me, test] = [`${prefix}here`, `${prefix}me`, `${prefix}test`];
      const config = {
        apiVersion: 'v1',
        kind: 'Config',
        clusters: [{ name: here, cluster }],
        users: [{ name: me, user }],
        contexts: [{ name: test, context: { cluster: here, user: me, ...context } }],
        'current-context': current ?? test,
      };
      return file(name, stringify(config));
    },
    remove,
    [Symbol.asyncDispose]: remove,
  };
}
