import { createPrivateKey, randomUUID, sign, X509Certificate } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { makeAuthority } from './certificates.ts';

/** A server of bearer tokens that Debian's docker-registry trusts. */
export interface DockerTokens {
  /** The realm in the registry’s challenges. */
  readonly url: string;
  readonly service: string;
  readonly issuer: string;
  /** The certificate with which the registry checks tokens. */
  readonly certificateFile: string;
  /** Every request so far: method, scopes and user (undefined for an anonymous one). */
  readonly requests: { method: string; scopes: string[]; user: string | undefined }[];
  /** Returns an Authorization header without a request to the server. */
  readonly authorization: (scope: string) => string;
  stop(): Promise<void>;
}

/** The users, and the lifetime of their tokens. */
export interface DockerTokensOptions {
  /** Passwords by user. If undefined, anonymous requests may pull. */
  readonly users?: Readonly<Record<string, string>>;
  /** The lifetime of a token in seconds (default 300). The registry allows a minute more. */
  readonly lifetime?: number;
}

/**
 * Starts a token server on loopback: GET with Basic credentials, and OAuth2 POST with a password or a refresh token
 * (`refresh-<user>`).
 */
export async function startDockerTokens(options: DockerTokensOptions = {}): Promise<DockerTokens> {
  const { users, lifetime = 300 } = options;
  const authority = await makeAuthority('Test tokens');
  const service = 'test-registry';
  const issuer = 'test-issuer';
  const requests: DockerTokens['requests'] = [];
  const issue = (scopes: string[], user: string): string =>
    makeToken(authority, { iss: issuer, aud: service, sub: user, access: scopes.map(accessOf) }, lifetime);

  const server = createServer((request, response) => {
    void readBody(request).then((body) => {
      const url = new URL(request.url ?? '/', 'http://localhost');
      const form = request.method === 'POST' ? new URLSearchParams(body) : url.searchParams;
      const scopes = form.getAll('scope').flatMap((scope) => scope.split(' '));
      const claim = request.method === 'POST' ? formUser(form) : basicUser(request.headers.authorization);
      const known = claim && users?.[claim.name] !== undefined ? claim.name : undefined;
      const proven = known !== undefined && (claim?.refresh ?? users?.[known] === claim?.password);
      requests.push({ method: request.method ?? '', scopes, user: claim?.name });
      if (users && !proven) {
        response.writeHead(401, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ errors: [{ code: 'UNAUTHORIZED', message: 'no such user or password' }] }));
        return;
      }
      const token = issue(scopes, known ?? '');
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(
        JSON.stringify(
          request.method === 'POST'
            ? {
                access_token: token,
                scope: scopes.join(' '),
                expires_in: lifetime,
                refresh_token: `refresh-${known ?? ''}`,
              }
            : { token, expires_in: lifetime, issued_at: new Date().toISOString() },
        ),
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/token`,
    service,
    issuer,
    certificateFile: authority.certificateFile,
    requests,
    authorization: (scope) => `Bearer ${issue(scope.split(' '), 'test')}`,
    stop: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await authority.remove();
    },
  };
}

// The x5c header has the certificate, which the registry finds in its root bundle (distribution,
// registry/auth/token).
function makeToken(authority: { certificate: string; key: string }, claims: object, lifetime: number): string {
  const now = Math.floor(Date.now() / 1000);
  const x5c = [new X509Certificate(authority.certificate).raw.toString('base64')];
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  const payload = { ...claims, iat: now, nbf: now - 10, exp: now + lifetime, jti: randomUUID() };
  const signed = `${part({ typ: 'JWT', alg: 'ES256', x5c })}.${part(payload)}`;
  const key = createPrivateKey(authority.key);
  return `${signed}.${sign('sha256', Buffer.from(signed), { key, dsaEncoding: 'ieee-p1363' }).toString('base64url')}`;
}

function accessOf(scope: string): object {
  const [type = '', ...rest] = scope.split(':');
  const actions = (rest.pop() ?? '').split(',');
  return { type, name: rest.join(':'), actions };
}

interface Claim {
  name: string;
  password?: string;
  refresh?: boolean;
}

function formUser(form: URLSearchParams): Claim | undefined {
  const refresh = form.get('refresh_token');
  if (refresh !== null) return { name: refresh.replace(/^refresh-/, ''), refresh: refresh.startsWith('refresh-') };
  const name = form.get('username');
  return name === null ? undefined : { name, password: form.get('password') ?? '' };
}

function basicUser(header: string | undefined): Claim | undefined {
  if (header?.startsWith('Basic ') !== true) return undefined;
  const text = Buffer.from(header.slice('Basic '.length), 'base64').toString();
  const colon = text.indexOf(':');
  return { name: text.slice(0, colon), password: text.slice(colon + 1) };
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}
