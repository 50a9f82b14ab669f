import type { Readable } from 'node:stream';
import { isPluginError, messageOf, PluginError } from '#errors';

/** Formats a URL for a message: without its query, which may be a signature, and without a user. */
export function formatUrl(url: URL): string {
  return `${url.origin}${url.pathname}`;
}

/** The error of a run that was interrupted. */
export function interrupted(): PluginError {
  return new PluginError('interrupted', 'the run was interrupted');
}

/**
 * Returns the code of an error of the system, the TLS library or Node.js, or of its cause, such as `ECONNREFUSED`; ''
 * if it has none.
 */
export function networkCode(error: unknown): string {
  if (isPluginError(error)) return networkCode(error.cause);
  const code = (error as { code?: unknown } | undefined)?.code;
  return typeof code === 'string' ? code : '';
}

/** Returns whether a connection was lost in the middle of an exchange. */
export function isConnectionLost(error: unknown): boolean {
  return ['ECONNRESET', 'EPIPE'].includes(networkCode(error));
}

/** Returns whether another request may succeed after a response with this status. */
export function isTransientStatus(status: number): boolean {
  return [408, 429, 500, 502, 503, 504].includes(status);
}

/** Returns whether a server answered a TLS handshake with plain HTTP. */
export function speaksHttp(error: unknown): boolean {
  if (isPluginError(error)) return error.code === 'tls' && speaksHttp(error.cause);
  return /wrong[ _]version[ _]number|packet[ _]length[ _]too[ _]long|http[ _]request/i.test(
    `${networkCode(error)} ${messageOf(error)}`,
  );
}

/**
 * Explains the error of a failed exchange. Returns `tls` for certificates and handshakes, `server-error` for a response
 * that is not HTTP, `denied` for a refusal by a proxy, and `unreachable` for other network errors. Returns a
 * PluginError unchanged. `expiry` is the date on which the certificate of the server expired, if known, and `proxy` the
 * proxy that was to connect to the server.
 */
export function explainNetworkError(
  error: unknown,
  url: URL,
  { expiry, proxy }: { readonly expiry?: string; readonly proxy?: URL } = {},
): PluginError {
  if (isPluginError(error)) return error;
  const code = networkCode(error);
  if (
    /^(CERT_|UNABLE_TO_|DEPTH_|SELF_SIGNED|ERR_TLS_|ERR_SSL_|ERR_OSSL_|EPROTO|HOSTNAME_MISMATCH|INVALID_)/.test(code)
  ) {
    return explainTls(error, code, url, expiry);
  }
  if (code.startsWith('HPE_')) return explainInvalidHttp(error, url);
  const refusal = code === 'ERR_PROXY_TUNNEL' && explainProxy(error, url);
  if (refusal) return refusal;
  const reason = reasons[code] ?? messageOf(error).replace(/\s+/g, ' ').slice(0, 200);
  // Only the proxy is connected to, so it refuses.
  if (proxy && unconnected.has(code)) return unreachableProxy(proxy, url, reason, error);
  return new PluginError('unreachable', `${url.host} cannot be reached: ${reason}`, {
    hint:
      code === 'ERR_PROXY_TUNNEL'
        ? 'Check HTTPS_PROXY and the credentials in it, or name the host in NO_PROXY.'
        : 'Check the name, the network, and HTTPS_PROXY and NO_PROXY.',
    cause: error,
  });
}

/** Returns the error for a proxy that accepts no connection. */
export function unreachableProxy(proxy: URL, { host, protocol }: URL, reason: string, cause?: unknown): PluginError {
  const variable = protocol === 'https:' ? 'HTTPS_PROXY' : 'HTTP_PROXY';
  return new PluginError('unreachable', `the proxy ${proxy.host} for ${host} cannot be reached: ${reason}`, {
    hint: `Correct ${variable}, or name ${host} in NO_PROXY to connect directly.`,
    cause,
  });
}

/** The codes of connections that were never made. */
const unconnected = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'ENETUNREACH', 'EHOSTUNREACH', 'ETIMEDOUT']);

// A retry does not help, and may lock out a user with a wrong password.
function explainProxy(error: unknown, { host }: URL): PluginError | undefined {
  const [, answer = '', status] = /\bHTTP\/\d\.\d ((4\d\d)[\x20-\x7e]*)/.exec(messageOf(error)) ?? [];
  if (status === undefined || isTransientStatus(Number(status))) return undefined;
  const wantsLogin = status === '407';
  return new PluginError('denied', `the proxy refuses to connect to ${host}: it answered ${answer.slice(0, 100)}`, {
    hint: wantsLogin
      ? 'Check the user and the password in HTTPS_PROXY, or name the host in NO_PROXY.'
      : 'Ask for the host to be allowed at the proxy, or name it in NO_PROXY.',
    cause: error,
  });
}

const reasons: Readonly<Record<string, string | undefined>> = {
  ECONNREFUSED: 'connection refused; nothing listens on that port',
  ENOTFOUND: 'unknown host name',
  EAI_AGAIN: 'temporary failure in name resolution',
  ENETUNREACH: 'network is unreachable',
  EHOSTUNREACH: 'no route to host',
  ETIMEDOUT: 'connection timed out',
  ECONNRESET: 'the connection was lost',
  EPIPE: 'the connection was lost',
};

function explainInvalidHttp(error: unknown, url: URL): PluginError {
  const why = messageOf(error).replace(/^Parse Error: /, '');
  const { rawPacket } = error as { rawPacket?: Buffer };
  const [line = ''] = rawPacket?.toString('latin1', 0, 80).split(/\r?\n/) ?? [];
  // Other bytes are part of a body.
  const sent = /^[\x20-\x7e]+$/.test(line) ? ` (it sent “${line}”)` : '';
  return new PluginError('server-error', `${url.host} sent invalid HTTP: ${why}${sent}`, {
    hint: 'Check the port: another service may listen there, or one that requires https.',
    cause: error,
  });
}

function explainTls(error: unknown, code: string, url: URL, expiry: string | undefined): PluginError {
  const { host } = url;
  const trust = `Trust its certificate authority, also as /etc/containers/certs.d/${host}/ca.crt, or skip verification.`;
  if (speaksHttp(error)) {
    return new PluginError('tls', `${host} speaks http, not https`, {
      hint: 'Allow plain HTTP if you trust the network.',
      settings: ['insecure'],
      cause: error,
    });
  }
  if (code === 'CERT_HAS_EXPIRED') {
    const since = expiry === undefined ? '' : ` on ${expiry}`;
    const hint = 'Renew the certificate, check the clock of this machine, or skip verification.';
    return new PluginError('tls', `the certificate of ${host} expired${since}`, {
      hint,
      settings: ['insecure'],
      cause: error,
    });
  }
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    const hint = 'Use a name of the certificate, or skip verification.';
    return new PluginError('tls', `the certificate of ${host} is for another name${listNames(error)}`, {
      hint,
      settings: ['insecure'],
      cause: error,
    });
  }
  if (/^(CERT_|UNABLE_TO_|DEPTH_|SELF_SIGNED|INVALID_)/.test(code)) {
    const why = messageOf(error).replace(/;.*/s, '');
    return new PluginError('tls', `the certificate of ${host} is not trusted: ${why}`, {
      hint: trust,
      settings: ['certificateAuthority', 'insecure'],
      cause: error,
    });
  }
  const needsClient = code.includes('CERTIFICATE_REQUIRED');
  return new PluginError('tls', `the TLS handshake with ${host} failed: ${alertOf(error, code)}`, {
    hint: needsClient
      ? 'The server requires a client certificate: put client.cert and client.key into ' +
        `/etc/containers/certs.d/${host}/.`
      : trust,
    settings: needsClient ? [] : ['certificateAuthority', 'insecure'],
    cause: error,
  });
}

/** Returns the names of the certificate in an error of its verification, as the end of a message. */
function listNames(error: unknown): string {
  const { subjectaltname = '' } = (error as { cert?: { subjectaltname?: string } }).cert ?? {};
  const names = [...subjectaltname.matchAll(/(?:^|, )(?:DNS|IP Address):([\w.*:-]+)(?=,|$)/g)].map(([, name]) => name);
  return names.length === 0 ? '' : `: ${names.slice(0, 5).join(', ')}${names.length > 5 ? ', …' : ''}`;
}

/**
 * Returns the readable part of an OpenSSL error such as `4043…:error:0A00045C:SSL routines:ssl3_read_bytes:tlsv13 alert
 * certificate required:…`.
 */
function alertOf(error: unknown, code: string): string {
  return /:SSL routines:[^:]*:([^:]+):/.exec(messageOf(error))?.[1] ?? code;
}

/** The limit for reading a body that was not requested, in bytes. */
export const errorBodyLimit = 64 * 1024;

/** Reads a body up to `limit` bytes. Drops the rest of a longer body with its connection. */
export async function readBody({ body }: { readonly body: Readable }, limit: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    chunks.push(chunk);
    length += chunk.length;
    if (length >= limit) break;
  }
  return Buffer.concat(chunks).subarray(0, limit);
}

/** Makes a body fail with explained errors instead of system errors. */
export function explainErrors(body: Readable, explain: (error: unknown) => PluginError): void {
  const destroy = body._destroy.bind(body);
  body._destroy = (error, callback) => {
    destroy(error, (after) => {
      callback(after && explain(after));
    });
  };
}
