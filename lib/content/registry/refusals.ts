import type { IncomingHttpHeaders } from 'node:http';
import { PluginError, type ErrorCode } from '#errors';
import { fieldsOf } from '#fields';
import { shellCommand } from '#text';
import type { ReadResponse } from '../http/connections.ts';
import { formatUrl } from '../http/networkErrors.ts';
import { explainStatus, TransientError } from '../http/retry.ts';
import { parseJson } from '../oci/syntax.ts';

/** The method, the place and the content of a request, by which an error names it. */
export interface RequestSubject {
  readonly method: string;
  readonly registry: string;
  readonly repository: string;
  /** The content, for messages: `blob sha256:…`, `manifest 4.12.0`. */
  readonly what: string;
  /** The rights that the request is a part of. */
  readonly actions?: string;
}

/** A response with its URL after redirects, and the Authorization header of the request. */
export interface Reply extends ReadResponse {
  readonly url: URL;
  readonly authorization: string | undefined;
  /** Whether redirects left the origin of the registry. */
  readonly isCrossOrigin: boolean;
}

/**
 * Returns the error for a response, with the message of the registry. It is a TransientError if a retry may succeed.
 */
export function explainRegistryRefusal(subject: RequestSubject, reply: Reply): PluginError {
  const { status, url } = reply;
  const { method, registry, repository, what } = subject;
  const quoted = quoteBody(reply.body, reply.authorization);
  const code = codeOf(reply);
  const whole = `${registry}/${repository}`;
  if (reply.isCrossOrigin && status === 401 && url.pathname.startsWith('/v2/')) {
    // Quay names the host of its configuration, whichever name a client uses.
    return new PluginError(
      'denied',
      `${registry} redirects to its configured name ${url.host}, which has no login for ${what}${quoted}`,
      {
        hint: `Use the name ${url.host} for the registry.`,
      },
    );
  }
  if (reply.isCrossOrigin && [401, 403].includes(status)) {
    // Signed URLs expire, and the registry then returns a new one.
    return new TransientError(
      'denied',
      `${url.host}, where ${registry} stores ${what}, refuses to send it${quoted}`,
      {},
    );
  }
  if (code === 'unauthorized') {
    const object = `${what} of ${repository}`;
    // A token server has accepted the credentials. Quay has no other answer for an organization that is missing.
    if (reply.authorization?.startsWith('Bearer ')) {
      return new PluginError(
        code,
        `${registry} gave a token, which does not allow to ${verb(method)} ${object}${quoted}`,
        {
          hint: isReadBeforePush(subject)
            ? pullHint
            : `Use credentials for ${registry} with access to ${repository}, and check that its organization or ` +
              'project exists.',
          settings: ['pullSecret'],
        },
      );
    }
    const wants = reply.authorization ? 'rejects the given credentials' : 'requires credentials';
    const message = `${registry} ${wants} for ${object}`;
    const hint = `Use credentials for ${registry}, or log in: ${shellCommand`podman login ${registry}`}`;
    return new PluginError(code, message + quoted, { hint, settings: ['pullSecret'] });
  }
  if (verb(method) === 'write' && isFull(status, quoted)) {
    return new PluginError('disk-full', `${whole} has no space for ${what}: it answered ${status}${quoted}`, {
      hint:
        'Free space at the registry or raise its quota, and run the same command again: what was copied stays, ' +
        'and is skipped.',
    });
  }
  if (refusesUploads(method, status)) {
    return new PluginError('denied', `${whole} accepts no images: it answered ${status} to an upload${quoted}`, {
      hint:
        status === 404
          ? 'Create the repository first, or check its name.'
          : 'It may be read-only, or a cache of another registry: name one that accepts images.',
    });
  }
  if (verb(method) === 'write' && errorCodesOf(reply).includes('BLOB_UPLOAD_UNKNOWN')) {
    // Another replica of the registry answered, or it lost the upload: a new upload may succeed.
    return new TransientError(
      'server-error',
      `${whole} does not know the upload of ${what}: it answered ${status}`,
      {},
    );
  }
  if (code === 'denied') {
    return new PluginError(
      code,
      `${registry} does not allow this user to ${verb(method)} ${what} of ${repository}${quoted}`,
      {
        hint: isReadBeforePush(subject)
          ? pullHint
          : 'Ask for access to the repository, or use the credentials of a user who has it.',
        settings: ['pullSecret'],
      },
    );
  }
  if (verb(method) === 'write' && status === 413) {
    return new PluginError('too-large', `${whole} accepts no content as large as ${what}: it answered 413${quoted}`, {
      hint: 'Raise the limit of the registry, or of the proxy in front of it (nginx: client_max_body_size).',
    });
  }
  if (verb(method) === 'write' && status === 415) {
    return new PluginError('unsupported', `${whole} does not accept ${what}: it answered 415${quoted}`, {
      hint: 'Allow images of Docker and of OCI in the configuration of the registry (zot: http.compat: ["docker2s2"]).',
    });
  }
  if (code === 'not-found' && ['GET', 'HEAD'].includes(method))
    return new PluginError(code, `${whole} has no ${what}${quoted}`);
  const where = reply.isCrossOrigin ? `${formatUrl(url)} (for ${whole})` : whole;
  const message = `${where} answered ${status} to a request to ${verb(method)} ${what}${quoted}`;
  return explainStatus(reply, message, code);
}

/** Returns whether a request reads what a push may skip. Some users may push, and not pull. */
function isReadBeforePush({ method, actions }: RequestSubject): boolean {
  return verb(method) === 'read' && actions?.includes('push') === true;
}

const pullHint =
  'The user needs the rights to pull and to push there, because content that is there already is not sent again. In ' +
  'Amazon ECR, pulling is ecr:BatchGetImage, ecr:GetDownloadUrlForLayer and ecr:BatchCheckLayerAvailability.';

// Quay and Harbor answer 403 if a quota is exceeded.
function isFull(status: number, words: string): boolean {
  return status === 507 || (status === 403 && /quota/i.test(words));
}

// POST starts an upload without naming the content, so a refusal applies to all images.
function refusesUploads(method: string, status: number): boolean {
  return method === 'POST' ? [400, 404, 405, 501].includes(status) : status === 405 && verb(method) === 'write';
}

/** Throws `server-error` for a compressed response, because its bytes have another digest. */
export function refuseEncoding({ registry, repository, what }: RequestSubject, headers: IncomingHttpHeaders): void {
  const encoding = headers['content-encoding'] ?? 'identity';
  if (encoding === 'identity') return;
  const message =
    `${registry}/${repository}: ${what} was sent with the encoding ${encoding.slice(0, 50)}, which was not ` +
    'requested';
  throw new PluginError('server-error', message, { hint: 'A proxy may do that: bypass it with NO_PROXY.' });
}

function codeOf(reply: ReadResponse): ErrorCode {
  for (const code of errorCodesOf(reply)) {
    const meaning = codesByName[code];
    if (meaning && reply.status >= 400 && reply.status < 500) return meaning;
  }
  return codesByStatus[reply.status] ?? 'server-error';
}

const codesByStatus: Readonly<Record<number, ErrorCode>> = {
  401: 'unauthorized',
  403: 'denied',
  404: 'not-found',
  429: 'rate-limited',
};

const codesByName: Readonly<Record<string, ErrorCode | undefined>> = {
  MANIFEST_BLOB_UNKNOWN: 'not-found',
  MANIFEST_INVALID: 'invalid-manifest',
  DIGEST_INVALID: 'digest-mismatch',
  SIZE_INVALID: 'size-mismatch',
  DENIED: 'denied',
};

function verb(method: string): string {
  return method === 'GET' || method === 'HEAD' ? 'read' : method === 'DELETE' ? 'delete' : 'write';
}

/** Returns the error codes of a response (distribution-spec, “Error Codes”), such as `MANIFEST_UNKNOWN`. */
export function errorCodesOf(reply: Pick<ReadResponse, 'body'>): string[] {
  return errorsOf(reply.body).map(({ code }) => code);
}

/**
 * Quotes the body of a response in parentheses, as the end of a message; '' if it says nothing. See summarize. Leaves
 * out the secrets of the Authorization header of the request.
 */
export function quoteBody(body: Buffer, authorization: string | undefined): string {
  const words = summarize(body, authorization);
  return words && ` (${words})`;
}

/** Summarizes a body in one line: the errors of a registry, code and message of S3, or the title of a page. */
function summarize(body: Buffer, authorization: string | undefined): string {
  const text = body.toString();
  const marked = [...text.matchAll(/<(Code|Message|title)>([^<]*)</gi)].map(([, , content]) => content?.trim());
  const words =
    errorsOf(body)
      .map((error) => error.text)
      .join('; ') ||
    marked.join(': ') ||
    (/^\s*[<{[]/.test(text) ? '' : text);
  return secretsOf(authorization)
    .reduce((shown, secret) => shown.replaceAll(secret, '…'), words)
    .slice(0, 4096)
    .replace(/(https?:\/\/[^\s?"']*)\?[^\s"']*/g, '$1')
    .replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\s]+/g, ' ')
    .trim()
    .slice(0, 300);
}

interface RegistryError {
  readonly code: string;
  readonly text: string;
}

function errorsOf(body: Buffer): RegistryError[] {
  try {
    const { errors } = parseJson(body.toString()) as { errors?: unknown };
    if (!Array.isArray(errors)) return [];
    return (errors as unknown[]).map((entry) => {
      const { code, message, detail } = (entry ?? {}) as Record<string, unknown>;
      // Quay has its reason in `message` or `reason`, docker-registry names the content in `digest`.
      const { digest, message: cause, reason } = fieldsOf(detail);
      const texts = [code, message, digest, cause, reason, detail].filter(
        (text) => typeof text === 'string' && text !== '',
      );
      return { code: typeof code === 'string' ? code : '', text: [...new Set(texts)].join(': ') };
    });
  } catch {
    return [];
  }
}

/** Returns the secrets of an Authorization header: the token, or the password as text and as sent. */
function secretsOf(authorization: string | undefined): string[] {
  const [scheme = '', token = ''] = authorization?.split(' ') ?? [];
  const [, ...password] = scheme === 'Basic' ? Buffer.from(token, 'base64').toString().split(':') : [];
  return [token, password.join(':')].filter((secret) => secret !== '');
}
