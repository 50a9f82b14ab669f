import { type Program } from '../command.ts';
import { findCandidates, type Completion } from './candidates.ts';
import { suggestionsFrom } from './suggestions.ts';

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
