import { Lines, toLine, listBelow } from './text.ts';

/**
 * All error codes with their meanings. The reference is generated from this record, and docs/troubleshooting.md has a
 * section for each.
 */
export const errorCodes = {
  usage: 'The command line is invalid.',
  interrupted: 'The run was interrupted.',
  'not-found': 'A registry, directory, bundle or cluster does not have the requested content.',
  'unknown-version': 'No release of that version and architecture is published.',
  'not-recommended': 'An update has known risks that are not accepted; each is named with its text.',
  unauthorized: 'A registry or a cluster requires credentials, or refuses the given ones.',
  denied: 'A registry, cluster or proxy does not allow the operation.',
  'bad-credentials-file': 'A credentials file or helper cannot be used.',
  unreachable: 'A server cannot be reached, stopped answering, or sends too slowly.',
  tls: 'A server’s certificate is not trusted, or it does not speak TLS.',
  'rate-limited': 'A registry limits requests for longer than the run waits.',
  'server-error': 'A server answered with an error, or with an invalid response.',
  'digest-mismatch': 'The content is corrupt: its digest differs.',
  'size-mismatch': 'The content is shorter or longer than its descriptor says.',
  'too-large': 'A manifest, signature or other small file exceeds its limit.',
  'invalid-reference': 'An image reference is malformed.',
  'invalid-manifest': 'A manifest is malformed or of an unknown kind.',
  'invalid-release': 'An image is not a release image, or its metadata is malformed.',
  'invalid-bundle': 'A file or device is not an upgrade bundle, or is damaged.',
  'invalid-file': 'A given file is malformed.',
  unsigned: 'No signature of the release was found.',
  untrusted: 'The release has a signature, but none by a trusted key.',
  'disk-full': 'The disk is full.',
  'not-writable': 'A file or folder cannot be written.',
  'not-readable': 'A file or folder cannot be read.',
  busy: 'Another run is working in the same place.',
  'no-cluster': 'No cluster is configured, or the kubeconfig does not have the named context or cluster.',
  'not-served': 'The cluster does not support objects of that kind, or that operation.',
  conflict: 'An object exists already, exists twice, or was changed by another client.',
  'invalid-object': 'The cluster refuses an object as invalid.',
  'needs-registry': 'Manifests of a release need a registry; each finding is named.',
  'not-ready': 'A cluster or registry is not ready for the operation; each reason is named.',
  incomplete: 'A bundle or mirror directory has missing or corrupt content.',
  partial: 'Some of the images, objects or nodes failed; each is named.',
  'command-failed': 'A program of the host, podman or systemctl, failed or is missing.',
  'rolled-back': 'An upgrade failed and was rolled back.',
  'rollback-failed': 'An upgrade failed, and so did its rollback.',
  unsupported: 'The object is of a kind that this program does not support, or the registry lacks the operation.',
  internal: 'A defect of this program.',
} as const;

/** The code of an error. It is stable, for scripts and for the troubleshooting page. */
export type ErrorCode = keyof typeof errorCodes;

/**
 * An error for the user: what failed (message), what to do (hint), which settings of the caller help, and the cause.
 * Settings have the names of options in camel case: the command line shows the options that the command has. A message
 * that is a string is one line, because it may quote others: only Lines have several.
 */
export class PluginError extends Error {
  override readonly name = 'PluginError';
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly settings: readonly string[];
  /** The message, in lines. */
  readonly lines: Lines;

  constructor(
    code: ErrorCode,
    message: string | Lines,
    options: { hint?: string; settings?: readonly string[]; cause?: unknown } = {},
  ) {
    const lines = new Lines(message);
    super(lines.text, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.lines = lines;
    this.hint = options.hint === undefined ? undefined : toLine(options.hint);
    this.settings = options.settings ?? [];
  }
}

/** Returns whether an error is a PluginError, and has the given code if one is given. */
export function isPluginError(error: unknown, code?: ErrorCode): error is PluginError {
  return error instanceof PluginError && (code === undefined || error.code === code);
}

/**
 * Returns undefined in place of an error with one of some codes, and throws any other, for the `catch` of a promise:
 * `.catch(ignoring('not-found'))`.
 */
export function ignoring(...codes: readonly ErrorCode[]): (error: unknown) => undefined {
  return (error) => {
    if (!codes.some((code) => isPluginError(error, code))) throw error;
    return undefined;
  };
}

/** Returns an error of this program, after which the caller continues. Throws `interrupted`, and any other error. */
export function asFailure(error: unknown): PluginError {
  if (!isPluginError(error) || error.code === 'interrupted') throw error;
  return error;
}

/** Returns undefined in place of a failure, and throws any other error, as `ignoring` does. */
export function ignoreFailure(error: unknown): undefined {
  asFailure(error);
}

/** Returns the hint of any thrown value; undefined if it has none. */
export function hintOf(error: unknown): string | undefined {
  return isPluginError(error) ? error.hint : undefined;
}

/** Returns a copy of an error about `subject` with a hint. Returns any other error, and one with a hint, unchanged. */
export function withHint(error: unknown, subject: string, hint: string): unknown {
  if (!isPluginError(error) || error.hint !== undefined || !error.message.includes(subject)) return error;
  return new PluginError(error.code, error.lines, { hint, cause: error });
}

/** Returns the message of any thrown value. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

const errorsShown = 10;

/** The title and the hint for several failures. */
interface FailureSummary {
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
