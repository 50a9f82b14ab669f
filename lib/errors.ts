/** Every error code, with what it means. The reference is generated from this record; docs/troubleshooting.md has a section for each. */
export const errorCodes = {
  usage: 'The command line is not one the command understands.',
  interrupted: 'The run was interrupted.',
  'not-found': 'A registry, directory or bundle does not have what was asked for.',
  'unknown-version': 'No release of that version and architecture is published.',
  unauthorized: 'A registry wants credentials, or refuses those it was given.',
  denied: 'A registry does not allow the operation, to this user or to anybody.',
  'bad-credentials-file': 'A credentials file or helper cannot be used.',
  unreachable: 'A server cannot be reached, stopped answering, or answers so slowly that it would never end.',
  tls: 'A server’s certificate is not trusted, or it does not speak TLS.',
  'rate-limited': 'A registry asked for fewer requests, for longer than the run would wait.',
  'server-error': 'A server answered with an error, or with something that is not the protocol.',
  'digest-mismatch': 'Content is not what its digest says.',
  'size-mismatch': 'Content is shorter or longer than its descriptor says.',
  'too-large': 'Something that should be small is not.',
  'invalid-reference': 'An image reference is malformed.',
  'invalid-manifest': 'A manifest is malformed or of an unknown kind.',
  'invalid-release': 'An image is not a release payload, or its metadata is malformed.',
  'invalid-bundle': 'A file or device is not an upgrade bundle, or is damaged.',
  'invalid-file': 'A file that was given is malformed.',
  unsigned: 'No signature of the release could be found.',
  untrusted: 'A signature was found, and no trusted key vouches for it.',
  'disk-full': 'The disk is full.',
  'not-writable': 'A file or folder cannot be written.',
  'not-readable': 'A file or folder cannot be read.',
  busy: 'Another run is working in the same place.',
  'no-cluster': 'No cluster is configured, or the kubeconfig does not have the one that was named.',
  'not-served': 'The cluster does not know objects of that kind, or not that operation.',
  conflict: 'Something exists already, exists twice, or was changed by somebody else meanwhile.',
  'invalid-object': 'The cluster refuses an object as invalid.',
  'not-ready': 'A cluster or registry is not ready for what is planned; each reason is named.',
  incomplete: 'A bundle or mirror directory lacks something, or holds something altered.',
  partial: 'Some of the images, objects or nodes failed; each is named.',
  'command-failed': 'A program of the host, podman or systemctl, failed or is missing.',
  'rolled-back': 'An upgrade failed, and everything was put back as it was.',
  'rollback-failed': 'An upgrade failed, and not everything could be put back.',
  unsupported: 'Something is of a kind that this program does not handle.',
  internal: 'A defect of this program.',
} as const;

/** The code of an error: stable, for scripts and for the troubleshooting page. */
export type ErrorCode = keyof typeof errorCodes;

/** An error that a person can act on: what happened (message), what to do next (hint), and what was underneath (cause). */
export class PluginError extends Error {
  override readonly name = 'PluginError';
  readonly code: ErrorCode;
  readonly hint: string | undefined;

  constructor(code: ErrorCode, message: string, options: { hint?: string | undefined; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.hint = options.hint;
  }
}

/** Tells whether an error is a PluginError, of the given code where one is given. */
export function isPluginError(error: unknown, code?: ErrorCode): error is PluginError {
  return error instanceof PluginError && (code === undefined || error.code === code);
}

/** The words of any thrown value, for a sentence of our own. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
