import { isPluginError, PluginError } from '../errors.ts';

/** Runs `work`, and adds to an interruption the hint that the next run resumes. */
export async function withResumeHint<R>(work: () => Promise<R>): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (!isPluginError(error, 'interrupted') || error.hint !== undefined) throw error;
    const hint = 'Run the same command again: it skips what is done.';
    throw new PluginError('interrupted', error.lines, { hint, cause: error.cause });
  }
}
