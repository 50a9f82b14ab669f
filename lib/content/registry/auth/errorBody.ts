import { fieldsOf } from '#fields';
import type { ReadResponse } from '../../http/connections.ts';
import { parseJson } from '../../oci/syntax.ts';

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
