import { join } from 'node:path';
import { fieldsWith, isText, listWith, type Test } from '../../fields.ts';
import { removeFile, replaceFile } from '../fileChange.ts';
import type { Scope } from '../../node/machine/hostCommands.ts';
import type { ConfinedPath, HostFiles } from '../../node/machine/hostFiles.ts';
import { parseJson } from '../../content/oci/syntax.ts';

/** The data of an uninstalled registry, and where its units were. Paths are paths of the host. */
export interface KeptData {
  readonly scope: Scope;
  readonly unitFolder: string;
  readonly quayRoot: string;
  readonly volumes: readonly string[];
  readonly keptImages: readonly string[];
  readonly folders: readonly string[];
}

/** The scope of the registry, and the home of its user. */
interface Place {
  readonly scope: 'auto' | Scope;
  readonly home: string;
}

const isPath: Test = (value) => isText(value) && String(value).startsWith('/');
// podman would take others as options.
const isName: Test = (value) => isText(value) && /^\w/.test(String(value));
const isKept = fieldsWith({
  scope: (value) => value === 'system' || value === 'user',
  ...{ unitFolder: isPath, quayRoot: isPath },
  ...{ volumes: listWith(isName), keptImages: listWith(isName), folders: listWith(isPath) },
});

/** Reads the record of kept data; undefined if there is none in that scope. Throws `not-readable`, `invalid-file`. */
export async function readKept(
  files: HostFiles,
  { scope, home }: Place,
): Promise<(KeptData & { readonly path: string }) | undefined> {
  for (const each of scope === 'auto' ? (['system', 'user'] as const) : [scope]) {
    const { path } = recordOf(each, home);
    const value: unknown = parseJson((await files.readText(path)) ?? 'null');
    if (isKept(value)) return { ...(value as KeptData), path };
  }
  return undefined;
}

/** Writes the record durably, for root or the user only. Throws `disk-full` and `not-writable`. */
export async function writeKept(files: HostFiles, kept: KeptData, { home }: Pick<Place, 'home'>): Promise<void> {
  await replaceFile(files, recordOf(kept.scope, home), `${JSON.stringify(kept, null, 2)}\n`, { mode: 0o600 });
}

/** Removes the record, if it exists. Throws `not-writable`. */
export async function removeKept(files: HostFiles, scope: Scope, { home }: Pick<Place, 'home'>): Promise<void> {
  await removeFile(files, recordOf(scope, home));
}

/** Returns the place of the record, which no installation has to be found for. */
function recordOf(scope: Scope, home: string): ConfinedPath {
  const within = join(scope === 'system' ? '/var/lib' : join(home, '.local/share'), 'oc-mirror-registry');
  return { path: join(within, 'uninstalled.json'), within };
}
