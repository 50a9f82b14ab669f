import { isPluginError, type ErrorCode, type PluginError } from '../../../lib/errors.ts';

/** The PluginError that something fails with, which must have the given code. */
export async function failureOf(action: Promise<unknown>, code: ErrorCode): Promise<PluginError> {
  let result: unknown;
  try {
    result = await action;
  } catch (error) {
    if (isPluginError(error, code)) return error;
    throw new Error(`expected ${code}`, { cause: error });
  }
  throw new Error(`expected ${code}, and it succeeded with ${JSON.stringify(result)}`);
}
