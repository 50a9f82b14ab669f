import { isPluginError, PluginError, type ErrorCode } from '../../errors.ts';

const corrupt =
  'None of it was kept. The source, or a mirror or proxy before it, has corrupt content. Repair the source or use ' +
  'another one, and run the same command again to resume.';

const advice: Partial<Record<ErrorCode, string>> = {
  'digest-mismatch': corrupt,
  'size-mismatch': corrupt,
  'not-found':
    'Check the name. If it is right, the source lacks a part of the release: mirror it there again, or use another source.',
  'not-writable': 'Choose another output folder, or make this one writable.',
  interrupted: 'Run the same command again: it resumes.',
  'too-large': 'This is not a release image. Check the name and the address of the registry.',
};

/** Adds a hint to an error of `create` if it has none. Of several failures, uses the first. */
export function withAdvice(error: unknown): unknown {
  if (!isPluginError(error)) return error;
  const failures = error.code === 'partial' && error.cause instanceof AggregateError ? error.cause.errors : [];
  const first: unknown = (failures as unknown[])[0] ?? error;
  if (!isPluginError(first)) return error;
  const hint = first.hint ?? advice[first.code] ?? error.hint;
  return new PluginError(error.code, error.message, {
    hint,
    settings: hint === corrupt ? ['idmsFile'] : error.settings,
    cause: error.cause,
  });
}
