import { randomBytes } from 'node:crypto';
import type { Answer } from '../http/faults.ts';
import { FaultyServer, type Exchange, type ServerTls } from '../http/faultyServer.ts';

/** Options of a token server. */
export interface TokenServerOptions {
  username: string;
  password: string;
  /** An identity (refresh) token that is accepted in addition to the password. */
  identityToken?: string;
  /** Whether requests without credentials get tokens for pulling. Otherwise they are refused. */
  anonymousPull?: boolean;
  /** The lifetime of a token in seconds; default 300. */
  expiresIn?: number;
  /** Whether responses have `expires_in`; default true. */
  announceExpiry?: boolean;
  /** The name of the token in responses; default `token`. */
  field?: 'token' | 'access_token' | 'both';
  /** The service in challenges, which requests must repeat; default `registry.test`. */
  service?: string;
  /** The scopes that it understands, as Quay does; others are refused with 400. By default it ignores others. */
  scopes?: RegExp;
  /**
   * Returns whether a user (undefined: anonymous) may do an action, in addition to the rules above; by default true.
   */
  allow?: (user: string | undefined, repository: string, action: string) => boolean;
}

interface Grant {
  /** The granted `repository action` pairs. */
  access: Set<string>;
  expires: number;
}

/**
 * A token server for registries: GET with basic authorization, and the OAuth2 POST with a password or a refresh token.
 * Like a real one, it leaves out of a token the actions that its user may not do, and refuses wrong credentials with
 * 401.
 */
export class TokenServer extends FaultyServer {
  /** May be changed while the server runs. Existing tokens keep their rights. */
  readonly options: TokenServerOptions;
  readonly #grants = new Map<string, Grant>();

  constructor(options: TokenServerOptions, tls?: ServerTls) {
    super(tls);
    this.options = options;
  }

  get service(): string {
    return this.options.service ?? 'registry.test';
  }

  /** Returns the challenge for a scope, as a WWW-Authenticate header; without a scope for the ping. */
  challenge(scope?: string, error?: string): string {
    const fields = {
      realm: `${this.url}/token`,
      service: this.service,
      ...(scope && { scope }),
      ...(error && { error }),
    };
    return `Bearer ${Object.entries(fields)
      .map(([name, value]) => `${name}="${value}"`)
      .join(',')}`;
  }

  /** Issues a token for scopes like `repository:a/b:pull,push`, reduced to the rights of the user. */
  issue(user: string | undefined, scopes: readonly string[]): string {
    const { allow = () => true, expiresIn = 300 } = this.options;
    const access = new Set<string>();
    for (const scope of scopes) {
      const [, repository, actions] = /^repository:(.+):([\w,*]*)$/.exec(scope) ?? [];
      if (repository === undefined || actions === undefined) continue;
      for (const action of actions.split(',')) {
        if ((user !== undefined || action === 'pull') && allow(user, repository, action))
          access.add(`${repository} ${action}`);
      }
    }
    const token = randomBytes(24).toString('base64url');
    this.#grants.set(token, { access, expires: Date.now() + expiresIn * 1000 });
    return token;
  }

  /** Returns whether this server issued a token, and it has not expired. */
  accepts(token: string): boolean {
    const grant = this.#grants.get(token);
    return grant !== undefined && grant.expires > Date.now();
  }

  /** Returns whether a token allows an action (`pull`, `push`) on a repository. */
  allows(token: string, repository: string, action: string): boolean {
    return this.accepts(token) && this.#grants.get(token)?.access.has(`${repository} ${action}`) === true;
  }

  /** Invalidates all tokens. */
  revokeTokens(): void {
    this.#grants.clear();
  }

  protected override async answer(exchange: Exchange): Promise<Answer> {
    if (exchange.path !== '/token') return refuse(404, 'NOT_FOUND', 'there is nothing here');
    if (exchange.method !== 'GET' && exchange.method !== 'POST') return refuse(405, 'UNSUPPORTED', 'GET or POST');
    const posted = exchange.method === 'POST';
    const fields = posted ? new URLSearchParams(await textOf(exchange)) : exchange.query;
    if (fields.get('service') !== this.service) return refuse(400, 'UNSUPPORTED', 'this is another service');
    const login = posted ? this.#loginOfForm(fields) : this.#loginOfHeader(exchange.headers.authorization);
    if (!login) return refuse(401, 'UNAUTHORIZED', 'incorrect username or password');
    const scopes = fields.getAll('scope').flatMap((scope) => scope.split(' '));
    const unknown = scopes.find((scope) => this.options.scopes?.test(scope) === false);
    if (unknown !== undefined)
      return refuse(400, 'INVALID_REQUEST', `Unable to decode repository and actions: ${unknown}`);
    const token = this.issue(login.user, scopes);
    const { field = 'token', announceExpiry = true, expiresIn = 300 } = this.options;
    const offline = fields.get('offline_token') === 'true' || fields.get('access_type') === 'offline';
    return json(200, {
      ...(field !== 'access_token' && { token }),
      ...(field !== 'token' && { access_token: token }),
      ...(announceExpiry && { expires_in: expiresIn, issued_at: new Date().toISOString() }),
      ...(offline && login.user !== undefined && { refresh_token: this.options.identityToken }),
    });
  }

  #loginOfHeader(header: string | undefined): { user: string | undefined } | undefined {
    const { username, password, anonymousPull } = this.options;
    if (header === undefined) return anonymousPull ? { user: undefined } : undefined;
    return header === basicAuthorization(username, password) ? { user: username } : undefined;
  }

  #loginOfForm(fields: URLSearchParams): { user: string } | undefined {
    const { username, password, identityToken } = this.options;
    const known =
      fields.get('grant_type') === 'refresh_token'
        ? identityToken !== undefined && fields.get('refresh_token') === identityToken
        : fields.get('username') === username && fields.get('password') === password;
    return known && fields.get('client_id') ? { user: username } : undefined;
  }
}

/** Starts a token server on its own port. */
export async function startTokenServer(options: TokenServerOptions, tls?: ServerTls): Promise<TokenServer> {
  const server = new TokenServer(options, tls);
  await server.start();
  return server;
}

/** Returns the Authorization header of a user. */
export function basicAuthorization(username: string, password: string): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString('base64')}`;
}

/** Returns a response in JSON. */
export function json(status: number, value: unknown, headers: Record<string, string> = {}): Answer {
  return { status, headers: { 'content-type': 'application/json', ...headers }, body: JSON.stringify(value) };
}

/** Returns a refusal in the form of the distribution-spec: one error with its code. */
export function refuse(status: number, code: string, message: string, headers: Record<string, string> = {}): Answer {
  return json(status, { errors: [{ code, message, detail: null }] }, headers);
}

async function textOf(exchange: Exchange): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of exchange.body()) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
