import { PluginError } from '../../errors.ts';
import { isText, listWith } from '../../fields.ts';
import { parseJson } from '../../content/oci/syntax.ts';
import { sha256Of, type FileChange } from '../fileChange.ts';
import type { StateFolder } from '../stateFolder.ts';

/** The digests of files that this program wrote. Their backups may be removed already. */
const writtenName = 'written.json';
const writtenLimit = 200;
const isWritten = listWith(isText);

/** Records the digests of the new content of files. Throws `disk-full` and `not-writable`. */
export async function noteWritten(state: StateFolder, changes: readonly FileChange[]): Promise<void> {
  const digests = changes.flatMap(({ after }) => (after ? [sha256Of(after)] : []));
  const written = [...(await readWritten(state)), ...digests];
  await state.write(writtenName, JSON.stringify(written.slice(-writtenLimit)));
}

/** Reads the recorded digests. Throws `not-readable`, and `invalid-file` for a damaged record. */
export async function readWritten(state: StateFolder): Promise<string[]> {
  const text = (await state.read(writtenName))?.toString() ?? '[]';
  let cause: unknown;
  try {
    const value: unknown = parseJson(text);
    if (isWritten(value)) return value as string[];
  } catch (error) {
    cause = error;
  }
  throw new PluginError('invalid-file', `${state.show(writtenName)} is not a list of digests`, {
    hint: 'Move it away. Files that this program wrote may then count as changed by another program.',
    cause,
  });
}
