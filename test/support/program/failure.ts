import { isPluginError, type ErrorCode, type PluginError } from '../../../lib/errors.ts';

/** Returns the PluginError of a failed action. The error must have the given code, if one is given. */
export async function failureOf(action: Promise<unknown>, code?: ErrorCode): Promise<PluginError> {
  const wanted = code ?? 'a PluginError';
  let result: unknown;
  try {
    result = await action;
  } catch (error) {
    if (isPluginError(error, code)) return error;
    throw new Error(`expected ${wanted}`, { cause: error });
  }
  throw new Error(`expected ${wanted}, and it succeeded with ${String(JSON.stringify(result)).slice(0, 200)}`);
}
