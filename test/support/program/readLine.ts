import { normalizeWords, parse } from '../../../cmd/cli/program.ts';
import { programs } from '../project/docs.ts';

/** Returns the arguments that a command gets for a command line of `oc adm-NAME`. Throws its errors. */
export async function readLine(name: string, ...words: string[]): Promise<Record<string, unknown>> {
  const program = programs.find((each) => each.name === `oc adm-${name}`);
  if (!program) throw new Error(`there is no ${name}`);
  let read: Record<string, unknown> = {};
  await parse(program, normalizeWords(words), (_, args) => Promise.resolve(void (read = args)));
  return read;
}
