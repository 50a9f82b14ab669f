import { type Program } from '../command.ts';
import { findCandidates, type Completion } from './candidates.ts';
import { suggestionsFrom } from './suggestions.ts';

/** What cobra’s shells understand: no more than these candidates, file names, folders; and no space after the only one. */
const directives = { nothing: 4, files: 0, folders: 16 };
const noSpace = 2;

/**
 * The answer to `__complete WORD… TYPED`, in the lines that kubectl reads from a `kubectl_complete-…` program: candidates, each with a tab
 * and what it means, then a colon and a number for the shell. Throws nothing: where nothing can be told, nothing is offered.
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
