import { readFile } from 'node:fs/promises';
import type http from 'node:http';
import { fieldsAt, fieldsOf, isFields, textOf, type Fields } from '../../fields.ts';
import type { Context } from '../../context.ts';
import { messageOf, PluginError } from '../../errors.ts';
import { isMissing } from '../../content/files/fileContent.ts';
import { askAuthProvider } from './clientPackage.ts';
import { runCredentialPlugin, type PluginOptions } from './credentialPlugin.ts';
import type { KubeTarget } from './kubeconfig.ts';

/** The credentials of a user, and the time when they expire (milliseconds since 1970). */
export interface Login {
  /** The value of the header Authorization. */
  readonly authorization?: string | undefined;
  /** The client certificate and its key in PEM, if a credential plugin returned them. */
  readonly certificate?: string | undefined;
  readonly key?: string | undefined;
  readonly expires: number;
}

/** The time after which a token file is read again, in milliseconds; the same as in client-go. */
const tokenFileLifetime = 60_000;

/**
 * Logs in as the user of a kubeconfig: runs its credential plugin, or uses its token, its token file, its password or
 * its auth-provider. `authority` is the CA of the cluster, for the plugin. Throws `bad-credentials-file` and
 * `not-readable`.
 */
export async function logIn(
  { user, cluster, source }: KubeTarget,
  authority: Buffer | undefined,
  options: PluginOptions,
  context: Context,
): Promise<Login> {
  const { exec, tokenFile, token, 'auth-provider': provider } = user;
  if (isFields(exec)) {
    const clusterWithAuthority = {
      ...cluster,
      ...(authority && { 'certificate-authority-data': authority.toString('base64') }),
    };
    const { expires = Infinity, ...plugin } = await runCredentialPlugin(exec, clusterWithAuthority, options, context);
    return { ...plugin, authorization: authorizationOf(user, plugin.token ?? token), expires };
  }
  if (typeof tokenFile === 'string') {
    // As in client-go, the token of the kubeconfig stands in for a file that cannot be read.
    const read = readCredentialFile(tokenFile, 'token file');
    const fileToken = scalar(token) === '' ? await read : await read.catch(() => scalar(token));
    return { authorization: authorizationOf(user, fileToken.toString()), expires: Date.now() + tokenFileLifetime };
  }
  const own = authorizationOf(user, token);
  if (provider === undefined) return { authorization: own, expires: Infinity };
  const isOidc = fieldsOf(provider)['name'] === 'oidc';
  const provided = isOidc ? readIdToken(provider, source) : await askAuthProvider(provider, source);
  return { authorization: own ?? provided, expires: Date.now() + tokenFileLifetime };
}

/**
 * Returns the header Authorization with the ID token of the auth-provider `oidc`; undefined if it has none. Never
 * refreshes it: an identity provider may give a new refresh token each time, which is then lost unless it is written to
 * the kubeconfig (as client-go does). @kubernetes/client-node 2.0.1 writes no file, and fails before that, because it
 * passes the issuer as a string to openid-client. Throws `bad-credentials-file` for an expired token.
 */
function readIdToken(provider: unknown, source: string): string | undefined {
  const token = textOf(fieldsAt(provider, 'config')['id-token']);
  if (token === undefined) return undefined;
  const expiry = readExpiry(token);
  if (expiry === undefined || expiry > Date.now()) return `Bearer ${token}`;
  const time = new Date(expiry).toISOString().replace(/\.\d+/, '');
  const message = `the OIDC token of ${source} expired at ${time}, and an auth-provider is not refreshed here`;
  throw new PluginError('bad-credentials-file', message, {
    hint: 'Run “oc whoami” to refresh it in the file. Or log in with an exec plugin, which is asked for each token: oc-oidc of “oc login”, or kubelogin.',
  });
}

/** Returns when a JSON Web Token expires, in milliseconds since 1970; undefined if it does not say. */
function readExpiry(token: string): number | undefined {
  try {
    const { exp } = fieldsOf(JSON.parse(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString()));
    return typeof exp === 'number' ? exp * 1000 : undefined;
  } catch {
    return undefined;
  }
}

/** Returns whether another login may give other credentials. */
export function isRenewable(user: Fields): boolean {
  return ['exec', 'tokenFile', 'auth-provider'].some((name) => user[name] !== undefined);
}

/** Returns the headers with which a user acts as another user. */
export function impersonationHeaders(user: Fields): http.OutgoingHttpHeaders {
  const { as, 'as-uid': uid, 'as-groups': groups, 'as-user-extra': extra } = user;
  const extras = Object.entries(isFields(extra) ? extra : {}).map(
    // As client-go encodes it, because names of headers have no slashes.
    ([key, values]) => [`Impersonate-Extra-${encodeURIComponent(key)}`, values as string[]] as const,
  );
  return {
    ...(typeof as === 'string' && as !== '' && { 'Impersonate-User': as }),
    ...(typeof uid === 'string' && uid !== '' && { 'Impersonate-Uid': uid }),
    ...(Array.isArray(groups) && groups.length > 0 && { 'Impersonate-Group': groups.map(String) }),
    ...Object.fromEntries(extras),
  };
}

/** Returns the header Authorization. A user name has precedence over a token. YAML may parse either as a number. */
function authorizationOf({ username, password }: Fields, token: unknown): string | undefined {
  const [name, secret, text = ''] = [username, password, token].map(scalar);
  // Files and blocks of YAML end with a newline.
  const bearer = text.trim();
  if (name) return `Basic ${Buffer.from(`${name}:${secret ?? ''}`).toString('base64')}`;
  return bearer ? `Bearer ${bearer}` : undefined;
}

function scalar(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

/**
 * Reads the CA that a kubeconfig’s cluster entry trusts, in PEM; undefined if it names none. Throws `not-readable` and
 * `invalid-file`.
 */
export async function readServerAuthority(cluster: Fields, source: string): Promise<Buffer | undefined> {
  const name = 'certificate-authority';
  const authority = await readMaterial(cluster, name);
  if (authority?.includes('-----BEGIN ') !== false) return authority;
  const file = cluster[`${name}-data`] ? '' : ` ${String(cluster[name])}`;
  throw new PluginError('invalid-file', `the ${name}${file} of ${source} has no certificate in PEM`, {
    hint: 'A certificate in PEM begins with -----BEGIN CERTIFICATE-----.',
  });
}

/**
 * Reads a certificate or key of a kubeconfig entry: its `-data` field, or else the file. Undefined if it has neither.
 * Throws `not-readable`.
 */
export async function readMaterial(fields: Fields, name: string): Promise<Buffer | undefined> {
  const { [`${name}-data`]: data, [name]: path } = fields;
  if (typeof data === 'string' && data !== '') return Buffer.from(data, 'base64');
  const file = textOf(path);
  return file === undefined ? undefined : readCredentialFile(file, name);
}

async function readCredentialFile(path: string, what: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (cause) {
    const reason = isMissing(cause) ? 'does not exist' : `cannot be read: ${messageOf(cause)}`;
    throw new PluginError('not-readable', `the ${what} ${path} ${reason}`, { cause });
  }
}
