import { PluginError } from '../../../lib/errors.ts';

/** The `-f` of `kubectl apply`, in place of the argument. */
export const filenameOption = {
  filename: { type: 'string', alias: 'f', describe: 'Same as the argument', suggest: 'paths' },
} as const;

/** Returns the argument or the value of `--filename`; undefined without both. Throws `usage` for both. */
export function fileOf(argument: string | undefined, filename: string | undefined): string | undefined {
  if (argument === undefined || filename === undefined) return argument ?? filename;
  throw new PluginError('usage', 'give only one of the argument and --filename');
}
