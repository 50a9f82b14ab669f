import type { Context } from '../../../context.ts';
import { isPluginError, PluginError } from '../../../errors.ts';
import type { Connections } from '../../http/connections.ts';
import type { Credentials } from './credentials.ts';
import type { Credential } from './credentialHelper.ts';
import { formatUrl } from '../../http/networkErrors.ts';
import { isLoopback } from '../../http/proxy.ts';
import { basicHeader, requestToken, type Token } from './tokenRequest.ts';
import { Parse_WWW_Authenticate } from 'oci-registry-client/build/www-authenticate.js';
import { shellCommand } from '../../../shellWord.ts';

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

/** Options of Tokens. */
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
