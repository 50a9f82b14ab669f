import { isPluginError, type ErrorCode, type PluginError } from '../../errors.ts';

/** Errors that a corrupt bundle, or a corrupt medium, may cause. */
const contentFaults: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'digest-mismatch',
  'size-mismatch',
  'incomplete',
  'invalid-bundle',
  'invalid-manifest',
  'partial',
  'not-readable',
]);

/** Returns whether a corrupt bundle, or a corrupt medium, may have caused an error. */
export function isContentFault(error: unknown): error is PluginError {
  return isPluginError(error) && contentFaults.has(error.code);
}
