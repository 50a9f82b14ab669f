import { PluginError } from './errors.ts';
import { listBelow } from './lines.ts';

const errorsShown = 10;

/** The title and the hint for several failures. */
export interface FailureSummary {
  readonly title: string;
  readonly hint: string;
}

/**
 * Combines errors into one: the error itself, or `partial` for several. `partial` names the first errors. Its cause, an
 * AggregateError that `-v` shows, has all.
 */
export function collectFailures(errors: readonly PluginError[], { title, hint }: FailureSummary): PluginError {
  const [only, second] = errors;
  if (only && !second) return only;
  const lines = errors.map(({ message }) => message);
  const more = errors.length - errorsShown;
  const shown = more > 0 ? [...lines.slice(0, errorsShown), `and ${more} more, which -v shows`] : lines;
  const cause = new AggregateError(errors, lines.join('\n'));
  return new PluginError('partial', listBelow(`${title}:`, shown), { hint, cause });
}

/** Lists the first names of many, and the number of the others: `a, b, c and 3 more`. */
export function nameSome(names: readonly string[], limit = 3, separator = ', '): string {
  const more = names.length > limit ? ` and ${names.length - limit} more` : '';
  return names.slice(0, limit).join(separator) + more;
}

/** Returns the message of the first of several problems, with the number of the others; undefined for none. */
export function firstMessage(problems: readonly { readonly message: string }[]): string | undefined {
  const [first, ...others] = problems;
  if (!first) return undefined;
  return others.length > 0 ? `${first.message}, and ${others.length} more problems` : first.message;
}
