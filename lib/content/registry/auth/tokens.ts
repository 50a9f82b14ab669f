import { Parse_WWW_Authenticate } from 'oci-registry-client/build/www-authenticate.js';
import type { Context } from '#context';
import { isPluginError, PluginError } from '#errors';
import { shellCommand } from '#text';
import type { Connections, ReadResponse } from '../../http/connections.ts';
import { followRedirects, keepsEncryption } from '../../http/fetchFile.ts';
import { formatUrl, readBody } from '../../http/networkErrors.ts';
import { isLoopback } from '../../http/proxy.ts';
import { explainStatus } from '../../http/retry.ts';
import { parseJson } from '../../oci/syntax.ts';
import { errorCodesOf, quoteBody } from '../refusals.ts';
import type { Credential, Credentials } from './credentials.ts';

/** A request for an Authorization header, as plain data for use between threads. */
export interface AuthorizationRequest {
  /** The host, with its port if one is given. */
  readonly registry: string;
  /** The repository whose credential is used. */
  readonly repository: string;
  /** The scopes of the token, such as `repository:a/b:pull`, separated by spaces; '' for the scope of the challenge. */
  readonly scope: string;
  /** The WWW-Authenticate header of a response with status 401. */
  readonly challenge?: string;
  /** The Authorization header that was rejected with that response. */
  readonly rejected?: string;
}

/** Logs in at registries. A run has one authorizer, for all its stores and threads. */
export interface Authorizer {
  /**
   * Returns the Authorization header to send; undefined for none. Without a challenge, returns the known header. With a
   * challenge, logs in, and replaces a rejected header unless another request has already done that. Throws
   * `unauthorized`, `denied`, and the errors of requesting a token.
   */
  authorize(request: AuthorizationRequest): Promise<string | undefined>;
}

/** Options of Tokens, all off by default. */
export interface TokensOptions {
  /** Also send passwords to token servers over plain http. */
  readonly insecure?: boolean;
}

/**
 * Logs in at registries by Basic or Bearer tokens. Caches the kind of login of each registry, and tokens until shortly
 * before they expire. Only one request for the token of a scope runs at a time.
 */
export class Tokens implements Authorizer {
  readonly #credentials: Credentials;
  readonly #connections: Pick<Connections, 'exchange'>;
  readonly #context: Context;
  readonly #insecure: boolean;
  readonly #challenges = new Map<string, Challenge>();
  readonly #tokens = new Map<string, Promise<Token>>();
  readonly #warned = new Set<string>();

  constructor(
    credentials: Credentials,
    connections: Pick<Connections, 'exchange'>,
    context: Context,
    { insecure = false }: TokensOptions = {},
  ) {
    this.#credentials = credentials;
    this.#connections = connections;
    this.#context = context;
    this.#insecure = insecure;
  }

  async authorize(request: AuthorizationRequest): Promise<string | undefined> {
    const { registry, repository, challenge, rejected } = request;
    if (challenge !== undefined) this.#challenges.set(registry, parseChallenge(challenge, registry));
    const challenged = this.#challenges.get(registry);
    if (!challenged) return undefined;
    const credential = await this.#credentials.find(registry, repository);
    this.#warn(this.#credentials.warnings);
    const header =
      challenged.scheme === 'basic' ? basicHeader(credential) : await this.#bearer(request, challenged, credential);
    // Quay gives the same token twice within a second, and refuses it to a user without access.
    const isLoggedIn = challenged.scheme === 'bearer' && credential && credential.registryToken === undefined;
    if (challenge !== undefined && (header === undefined || (header === rejected && !isLoggedIn))) {
      throw this.#unauthorized(request, credential);
    }
    return header;
  }

  async #bearer(
    { registry, repository, scope: requested, rejected }: AuthorizationRequest,
    challenge: Challenge & { scheme: 'bearer' },
    credential: Credential | undefined,
  ): Promise<string> {
    if (credential?.registryToken !== undefined) return `Bearer ${credential.registryToken}`;
    const scope = requested || challenge.scope;
    const key = JSON.stringify([registry, repository, scope]);
    const cachedToken = this.#tokens.get(key);
    if (cachedToken) {
      const { header, renewAt } = await cachedToken;
      if (header !== rejected && Date.now() < renewAt) return header;
      // Another caller may have replaced it meanwhile.
      if (this.#tokens.get(key) === cachedToken) this.#tokens.delete(key);
    }
    const token = this.#tokens.get(key) ?? this.#request({ registry, repository, scope }, challenge, credential);
    this.#tokens.set(key, token);
    try {
      return (await token).header;
    } catch (error) {
      // The transport may retry.
      if (this.#tokens.get(key) === token) this.#tokens.delete(key);
      throw error;
    }
  }

  async #request(
    request: AuthorizationRequest,
    { realm, service, scope: stated }: Challenge & { scheme: 'bearer' },
    credential: Credential | undefined,
  ): Promise<Token> {
    const { registry, repository, scope } = request;
    if (credential && realm.protocol === 'http:' && !this.#insecure && !isLoopback(realm.hostname)) {
      const message = `${registry} requests the credentials at ${formatUrl(realm)}, which is not encrypted`;
      const hint = 'Allow plain HTTP if you trust the network.';
      throw new PluginError('tls', message, { hint, settings: ['insecure'] });
    }
    this.#context.log('debug', `requesting a token from ${formatUrl(realm)} for ${scope || 'no scope'}`);
    try {
      const tokenRequest = { registry, repository, realm, service, scope, stated, credential };
      return await requestToken(tokenRequest, this.#connections, this.#context.signal);
    } catch (error) {
      throw isPluginError(error, 'unauthorized') ? this.#unauthorized(request, credential) : error;
    }
  }

  /** Logs each warning once. */
  #warn(warnings: readonly string[]): void {
    for (const warning of warnings.filter((each) => !this.#warned.has(each))) {
      this.#warned.add(warning);
      this.#context.log('warn', warning);
    }
  }

  #unauthorized({ registry, repository }: AuthorizationRequest, credential: Credential | undefined): PluginError {
    if (credential) {
      const from = credential.from === undefined ? '' : ` from ${credential.from}`;
      return new PluginError('unauthorized', `${registry} refuses the credentials for ${repository}${from}`, {
        hint: shellCommand`They may have expired. Use current credentials, or log in: podman login ${registry}`,
        settings: ['pullSecret'],
      });
    }
    const files = this.#credentials.files.join(', ');
    const [other] = this.#credentials.findOtherPorts(registry);
    const near =
      other === undefined ? '' : `, but ${other.path} has some for ${other.name}: name the port as the registry has it`;
    const reason = files ? `there are none for it in ${files}${near}` : 'no credentials file was found';
    return new PluginError('unauthorized', `${registry} requires credentials for ${repository}, and ${reason}`, {
      hint: shellCommand`Use a pull secret, or log in: podman login ${registry}`,
      settings: ['pullSecret'],
    });
  }
}

/** The login that a registry requires. */
type Challenge =
  | { readonly scheme: 'basic' }
  | {
      readonly scheme: 'bearer';
      /** The URL of the token server. */
      readonly realm: URL;
      /** The name of the registry at the token server; '' if it has none. */
      readonly service: string;
      /** The scope that the request needs, as the registry states it; '' if it states none. */
      readonly scope: string;
    };

/** The largest length of a header to parse. */
const lengthLimit = 8 * 1024;

/**
 * Parses a WWW-Authenticate header (RFC 9110, 11.6.1) with one or more challenges, and prefers Bearer to Basic. Throws
 * `server-error` with the registry if it offers neither, or if the token server has no http or https URL.
 */
export function parseChallenge(header: string, registry: string): Challenge {
  const challenges = splitChallenges(header.slice(0, lengthLimit));
  const offered = (scheme: string) => challenges.find((challenge) => schemeOf(challenge) === scheme);
  const bearer = offered('bearer');
  const fields = bearer === undefined ? {} : fieldsOf(bearer);
  const realm = URL.parse(fields['realm'] ?? '');
  if (realm && ['http:', 'https:'].includes(realm.protocol)) {
    return { scheme: 'bearer', realm, service: fields['service'] ?? '', scope: fields['scope'] ?? '' };
  }
  if (offered('basic') !== undefined) return { scheme: 'basic' };
  const offers = challenges.map(schemeOf).join(', ') || 'nothing';
  const why = bearer === undefined ? `offers ${offers}` : 'names no token server';
  throw new PluginError('server-error', `${registry} requires a login that is neither Basic nor Bearer: it ${why}`);
}

/** Splits a header into its challenges. Commas separate challenges and also their fields. */
function splitChallenges(header: string): string[] {
  const challenges: string[][] = [];
  for (const [piece] of header.matchAll(/(?:"(?:\\.|[^"\\])*"|[^",])+/g)) {
    const part = piece.trim().replace(/\s*=\s*/, '=');
    if (part === '') continue;
    const begins = /^[\w!#$%&'*+.^`|~-]+(?:\s|$)/.test(part);
    if (begins) challenges.push([part]);
    else challenges.at(-1)?.push(part);
  }
  return challenges.map((parts) => parts.join(','));
}

function schemeOf(challenge: string): string {
  return /^\S+/.exec(challenge)?.[0].toLowerCase() ?? '';
}

/** Returns the fields of a challenge by their names in lower case; none if it is malformed. */
function fieldsOf(challenge: string): Partial<Record<string, string>> {
  if (!/\s/.test(challenge)) return {};
  const { parms } = new Parse_WWW_Authenticate(challenge);
  return Object.fromEntries(Object.entries(parms).map(([name, value]) => [name.toLowerCase(), value]));
}

/** A request to a token server. */
interface TokenRequest {
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
interface Token {
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
function basicHeader(credential: Credential | undefined): string | undefined {
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
  return status === 404 || status === 405 || (status === 401 && typeof replyFields(body)['error'] === 'string');
}

function readToken({ registry, realm }: TokenRequest, { headers, body }: ReadResponse, since: number): Token {
  const fields = replyFields(body);
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

function replyFields(body: Buffer): Partial<Record<string, unknown>> {
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
  const invalidGrant = status === 400 && replyFields(body)['error'] === 'invalid_grant';
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
