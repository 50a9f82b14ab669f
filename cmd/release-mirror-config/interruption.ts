import { isPluginError, PluginError } from '../../lib/errors.ts';

/** Does something, and tells whoever interrupts it that what is done by then stays. */
export async function tellOfResuming<R>(work: () => Promise<R>): Promise<R> {
  try {
    return await work();
  } catch (error) {
    if (!isPluginError(error, 'interrupted') || error.hint !== undefined) throw error;
    const hint = 'Run the same command again: what is done stays, and is skipped.';
    throw new PluginError('interrupted', error.message, { hint, cause: error.cause });
  }
}
