import { type Program } from '../command.ts';
import { findCandidates, type Completion } from './candidates.ts';
import { suggestionsFrom } from './suggestions.ts';

/**
 * The directives of cobra’s completion scripts: only these candidates, file names, folders; and no space after the only
 * candidate.
 */
const directives = { nothing: 4, files: 0, folders: 16 };
const noSpace = 2;

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
  const unfinished = candidates.length === 1 && candidates[0]?.word.endsWith('=');
  const lines = candidates.map(({ word, describe }) => [word, describe].filter((text) => text !== '').join('\t'));
  return [...lines, `:${directives[otherwise] + (unfinished ? noSpace : 0)}`, ''].join('\n');
}
