import { PluginError } from '../../../errors.ts';
import { readBody } from '../../http/responseBody.ts';
import type { Connections, ReadResponse } from '../../http/connections.ts';
import { followRedirects, keepsEncryption } from '../../http/redirect.ts';
import type { Credential } from './credentialHelper.ts';
import { formatUrl } from '../../http/networkErrors.ts';
import { parseJson } from '../../oci/syntax.ts';
import { explainStatus } from '../../http/retry.ts';
import { errorCodesOf, quoteBody } from './errorBody.ts';

/** A request to a token server. */
export interface TokenRequest {
  readonly registry: string;
  readonly repository: string;
  readonly realm: URL;
  readonly service: string;
  /** Scopes separated by spaces, such as `repository:a/b:pull`. */
  readonly scope: string;
  /** The scope that the registry states, for token servers that refuse the other one; '' for none. */
  readonly stated: string;
  /** The credential; undefined for an anonymous token. */
  readonly credential: Credential | undefined;
}

/** A token as an Authorization header. `renewAt` is the time to request a new one, in milliseconds since the epoch. */
export interface Token {
  readonly header: string;
  readonly renewAt: number;
}

type Exchange = Pick<Connections, 'exchange'>;

/** The largest response of a token server, in bytes. A larger one is cut, and is not JSON. */
const sizeLimit = 1024 * 1024;

const redirectLimit = 5;

/**
 * Requests a token. Uses GET (distribution, “Token Authentication Specification”) for a password or anonymously. Uses
 * the OAuth2 POST for an identity token, or for a password if the server supports only OAuth2. A GET follows redirects,
 * without the password to another origin. Does not retry. Throws `unauthorized`, `denied`, a TransientError or
 * `server-error`, and the errors of Connections.
 */
export async function requestToken(request: TokenRequest, connections: Exchange, signal: AbortSignal): Promise<Token> {
  const { username, password, identityToken } = request.credential ?? {};
  const since = Date.now();
  let response: ReadResponse;
  if (identityToken !== undefined) {
    response = await post(request, { grant_type: 'refresh_token', refresh_token: identityToken }, connections, signal);
  } else {
    response = await get(request, connections, signal);
    if (username !== undefined && password !== undefined && wantsOAuth(response)) {
      response = await post(request, { grant_type: 'password', username, password }, connections, signal);
    }
  }
  // Quay refuses the action `delete`, and catalogs.
  if (response.status === 400 && request.scope !== request.stated)
    return requestToken({ ...request, scope: request.stated }, connections, signal);
  if (response.status !== 200) throw explainFailure(request, response);
  return readToken(request, response, since);
}

/** Returns the Authorization header of a user name and a password; undefined if the credential has none. */
export function basicHeader(credential: Credential | undefined): string | undefined {
  const { username, password } = credential ?? {};
  if (username === undefined || password === undefined) return undefined;
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

async function get(request: TokenRequest, connections: Exchange, signal: AbortSignal): Promise<ReadResponse> {
  const url = new URL(request.realm);
  if (request.service !== '') url.searchParams.set('service', request.service);
  for (const scope of request.scope.split(' ').filter(Boolean)) url.searchParams.append('scope', scope);
  const authorization = basicHeader(request.credential);
  const send = async (target: URL, sameOrigin: boolean): Promise<ReadResponse> => {
    const headers = {
      Accept: 'application/json',
      ...(sameOrigin && authorization && { Authorization: authorization }),
    };
    return await read(await connections.exchange({ method: 'GET', url: target, headers, signal }));
  };
  const first = { url, sameOrigin: true, response: await send(url, true) };
  const allow = (from: URL, to: URL, hops: number): boolean => hops < redirectLimit && keepsEncryption(from, to);
  return (await followRedirects('GET', first, send, allow)).response;
}

async function post(
  { realm, service, scope }: TokenRequest,
  grant: Record<string, string>,
  connections: Exchange,
  signal: AbortSignal,
): Promise<ReadResponse> {
  const form = new URLSearchParams({
    ...grant,
    client_id: 'oc-disconnected',
    ...(service && { service }),
    ...(scope && { scope }),
  });
  const body = Buffer.from(form.toString());
  const headers = {
    Accept: 'application/json',
    'Content-Type': 'application/x-www-form-urlencoded',
    'Content-Length': String(body.length),
  };
  return await read(await connections.exchange({ method: 'POST', url: realm, headers, body, signal }));
}

async function read(response: Awaited<ReturnType<Connections['exchange']>>): Promise<ReadResponse> {
  const { status, headers } = response;
  return { status, headers, body: await readBody(response, sizeLimit) };
}

/** Returns whether a response to GET means that the server supports only OAuth2. */
function wantsOAuth({ status, body }: ReadResponse): boolean {
  // Quay explains a refusal of the repository with 405.
  if (errorCodesOf({ body }).length > 0) return false;
  return status === 404 || status === 405 || (status === 401 && typeof fieldsOf(body)['error'] === 'string');
}

function readToken({ registry, realm }: TokenRequest, { headers, body }: ReadResponse, since: number): Token {
  const fields = fieldsOf(body);
  const token = fields['token'] || fields['access_token'];
  // Other characters are not allowed in a header.
  if (typeof token !== 'string' || !/^[\x21-\x7e]+$/.test(token)) {
    throw new PluginError('server-error', `${formatUrl(realm)} answered without a token for ${registry}`);
  }
  const stated = Number(fields['expires_in']);
  const lifetime = (stated > 0 ? stated : 60) * 1000;
  // Both times are from the server, so a wrong clock on either side does no harm.
  const age = Date.parse(headers.date ?? '') - Date.parse(String(fields['issued_at']));
  const remaining = age > 0 && age < lifetime ? lifetime - age : lifetime;
  return { header: `Bearer ${token}`, renewAt: since + remaining - Math.min(10_000, remaining / 10) };
}

function fieldsOf(body: Buffer): Partial<Record<string, unknown>> {
  try {
    const value: unknown = parseJson(body.toString('utf8'));
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

function explainFailure(request: TokenRequest, response: ReadResponse): PluginError {
  const { status, body } = response;
  const { registry, repository, realm, credential } = request;
  const { identityToken } = credential ?? {};
  const quoted = quoteBody(body, identityToken === undefined ? basicHeader(credential) : `Bearer ${identityToken}`);
  const invalidGrant = status === 400 && fieldsOf(body)['error'] === 'invalid_grant';
  if (status === 401 || invalidGrant) return new PluginError('unauthorized', `${registry} refuses to log in`);
  if (status === 403) {
    return new PluginError('denied', `${registry} does not allow this user to access ${repository}${quoted}`, {
      hint: 'Ask for access to the repository, or use the credentials of a user who has it.',
      settings: ['pullSecret'],
    });
  }
  const message = `the token server ${formatUrl(realm)} of ${registry} answered ${status}${quoted}`;
  // Quay refuses the first write to a repository here, while it is read-only or if this user may not create it.
  if (status === 405 && errorCodesOf(response).some((code) => code === 'DENIED' || code === 'UNSUPPORTED')) {
    const hint = `It may be read-only, or this user may not create ${repository}.`;
    return new PluginError('denied', message, { hint });
  }
  return explainStatus(response, message);
}
