import { readFile } from 'node:fs/promises';
import { delimiter, dirname, join, resolve, isAbsolute } from 'node:path';
import { largeLimits, readObjects } from '#config/manifest';
import { decodeText } from '#content/files';
import type { Environment } from '#content/http';
import { isPluginError, messageOf, PluginError } from '#errors';
import { type Fields, withoutAbsent, isFields } from '#fields';

/** The connection flags, by the names of kubectl. Empty values count as absent. */
export interface KubeconfigOptions {
  readonly kubeconfig?: string | undefined;
  readonly context?: string | undefined;
  readonly cluster?: string | undefined;
  readonly user?: string | undefined;
  readonly server?: string | undefined;
  readonly token?: string | undefined;
  /** The user for basic authentication. */
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  readonly namespace?: string | undefined;
  /** The path of a PEM file. */
  readonly certificateAuthority?: string | undefined;
  readonly insecureSkipTlsVerify?: boolean | undefined;
  /** The path of a PEM file, as is `clientKey`. */
  readonly clientCertificate?: string | undefined;
  readonly clientKey?: string | undefined;
  readonly tlsServerName?: string | undefined;
  /** The user to impersonate, its groups, its UID and its extra fields (`KEY=VALUE`). */
  readonly as?: string | undefined;
  readonly asGroup?: readonly string[] | undefined;
  readonly asUid?: string | undefined;
  readonly asUserExtra?: readonly string[] | undefined;
  /** The environment: KUBECONFIG, HOME and the variables of a pod. */
  readonly environment: Environment;
}

/** One cluster and one user of the kubeconfig files, with the flags applied. Paths are absolute. */
export interface KubeTarget {
  /** The name of the context, or the server if there is none. */
  readonly name: string;
  /** The names of the files, for messages. */
  readonly source: string;
  /** The URL of the server without a trailing slash. */
  readonly server: string;
  readonly namespace: string;
  readonly clusterName: string;
  readonly userName: string;
  /** The kubeconfig fields of the cluster and of the user. */
  readonly cluster: Fields;
  readonly user: Fields;
}

const serviceAccount = '/var/run/secrets/kubernetes.io/serviceaccount';

/**
 * Finds the cluster by the rules of client-go: `--kubeconfig`, else the files of KUBECONFIG merged, else
 * `~/.kube/config`, else the service account of this pod. Throws `no-cluster`, `not-readable`, `invalid-file`, and
 * `usage` for contradicting options.
 */
export async function findTarget(options: KubeconfigOptions): Promise<KubeTarget> {
  const { config, files, places } = await loadKubeconfig(options);
  const source = files.join(', ') || 'the command line';
  if (files.length === 0 && !options.server) {
    const pod = podTarget(options);
    if (pod) return pod;
    throw new PluginError('no-cluster', `no cluster is configured: there is no kubeconfig at ${places.join(' or ')}`, {
      hint: 'Log in with “oc login”, name the file, or set KUBECONFIG.',
      settings: ['kubeconfig'],
    });
  }
  const contextName = options.context || config['current-context'] || '';
  const context = contextName === '' ? {} : entryOf(config.contexts, 'context', contextName, source);
  const clusterName = options.cluster || text(context['cluster']);
  const userName = options.user || text(context['user']);
  const cluster = overrideCluster(
    clusterName === '' ? {} : entryOf(config.clusters, 'cluster', clusterName, source),
    options,
  );
  const server = text(cluster['server']).replace(/(?<!\/)\/+$/, '');
  if (server === '') {
    const names = Object.keys(config.contexts);
    throw new PluginError('no-cluster', `no cluster is chosen: ${source} has no current context with a server`, {
      hint:
        names.length > 0
          ? `Choose one of the contexts ${names.join(', ')}.`
          : 'Log in with “oc login”, or name a server.',
      settings: [names.length > 0 ? 'context' : 'server'],
    });
  }
  if (!['http:', 'https:'].includes(URL.parse(server)?.protocol ?? '')) {
    throw new PluginError('invalid-file', `the server of ${source} is not an http or https URL`);
  }
  const user = overrideUser(userName === '' ? {} : entryOf(config.users, 'user', userName, source), options);
  const namespace = options.namespace || text(context['namespace']) || 'default';
  return { name: contextName || server, source, server, namespace, clusterName, userName, cluster, user };
}

/**
 * Reads and merges the kubeconfig files as client-go does. Returns the result, the files that exist, and all searched
 * places. Throws `not-readable` and `invalid-file`.
 */
export async function loadKubeconfig({
  kubeconfig,
  environment,
}: Pick<KubeconfigOptions, 'kubeconfig' | 'environment'>): Promise<{
  config: MergedKubeconfig;
  files: string[];
  places: string[];
}> {
  const home = environment['HOME'] || environment['USERPROFILE'];
  const listed = (environment['KUBECONFIG'] ?? '').split(delimiter).filter((name) => name !== '');
  const places = kubeconfig ? [kubeconfig] : listed.length > 0 ? listed : home ? [join(home, '.kube', 'config')] : [];
  const kubeconfigs: { file: string; config: Kubeconfig }[] = [];
  for (const file of places) {
    // As in kubectl, files of KUBECONFIG may be missing, but a file that the user named must exist.
    const config = await readKubeconfig(file, kubeconfig !== undefined && kubeconfig !== '');
    if (config) kubeconfigs.push({ file, config });
  }
  return {
    config: mergeKubeconfigs(kubeconfigs.map(({ config }) => config)),
    files: kubeconfigs.map(({ file }) => file),
    places: places.length > 0 ? places : ['~/.kube/config (and HOME is not set)'],
  };
}

async function readKubeconfig(file: string, required: boolean): Promise<Kubeconfig | undefined> {
  let content: string;
  try {
    content = decodeText(await readFile(file));
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT' && !required) return undefined;
    throw new PluginError('not-readable', `the kubeconfig ${file} cannot be read: ${reasonOf(cause)}`, {
      cause,
      hint: 'Name a kubeconfig that exists and that you may read.',
      settings: ['kubeconfig'],
    });
  }
  try {
    return { ...readObjects(content, `the kubeconfig ${file}`, largeLimits)[0], folder: dirname(resolve(file)) };
  } catch (error) {
    // The message of the parser quotes the line, which may have a token.
    throw isPluginError(error) ? new PluginError(error.code, error.lines) : error;
  }
}

function entryOf(entries: Readonly<Record<string, Fields>>, kind: string, name: string, source: string): Fields {
  const entry = entries[name];
  if (entry) return entry;
  const names = Object.keys(entries);
  throw new PluginError('no-cluster', `${source} has no ${kind} “${name}”`, {
    hint: names.length > 0 ? `It has ${names.join(', ')}.` : `It has no ${kind} at all.`,
  });
}

function overrideCluster(cluster: Fields, options: KubeconfigOptions): Fields {
  // A given CA always enables verification.
  const usual = cluster['insecure-skip-tls-verify'] === true && !options.certificateAuthority;
  const insecure = options.insecureSkipTlsVerify ?? usual;
  return withoutAbsent({
    ...cluster,
    ...(options.server && { server: options.server }),
    ...(options.certificateAuthority && {
      'certificate-authority': options.certificateAuthority,
      'certificate-authority-data': undefined,
    }),
    ...(options.tlsServerName && { 'tls-server-name': options.tlsServerName }),
    'insecure-skip-tls-verify': insecure || undefined,
  });
}

function overrideUser(user: Fields, options: KubeconfigOptions): Fields {
  const { token, username, password, clientCertificate, clientKey, as, asUid } = options;
  const { asGroup = [], asUserExtra = [] } = options;
  if (token && username) throw new PluginError('usage', 'a token and a user name are two ways to log in: give one');
  const merged: Fields = withoutAbsent({
    // Given credentials replace the credentials of the file. Certificates stay.
    ...(token || username ? { ...user, ...noLogin } : user),
    ...(token && { token }),
    ...(username && { username }),
    ...(password && { password }),
    ...(clientCertificate && { 'client-certificate': clientCertificate, 'client-certificate-data': undefined }),
    ...(clientKey && { 'client-key': clientKey, 'client-key-data': undefined }),
    ...(as && { as, 'as-groups': undefined, 'as-uid': undefined, 'as-user-extra': undefined }),
    ...(asGroup.length > 0 && { 'as-groups': asGroup }),
    ...(asUid && { 'as-uid': asUid }),
    ...(asUserExtra.length > 0 && { 'as-user-extra': readExtra(asUserExtra) }),
  });
  const has = (name: string): boolean => text(merged[name]) !== '' || text(merged[`${name}-data`]) !== '';
  if ((clientCertificate || clientKey) && has('client-certificate') !== has('client-key')) {
    throw new PluginError('usage', 'a client certificate needs its key, and a key its certificate');
  }
  if (password && text(merged['username']) === '') {
    throw new PluginError('usage', 'a password needs a user name, and the kubeconfig has none');
  }
  if (text(merged['as']) === '' && (asUid || asGroup.length + asUserExtra.length > 0)) {
    throw new PluginError('usage', 'a group, UID or extra field to impersonate needs a user to impersonate');
  }
  return merged;
}

/** Reads extra fields of a user, each with all of its values. */
function readExtra(fields: readonly string[]): Fields {
  const pairs = fields.map((field) => {
    const [, key = '', value = ''] = /^([^=]+)=(.*)$/s.exec(field) ?? [];
    if (key === '')
      throw new PluginError('usage', `“${field}” is not an extra field of a user`, { hint: 'Give KEY=VALUE.' });
    return { key, value };
  });
  return Object.fromEntries(
    [...Map.groupBy(pairs, ({ key }) => key)].map(([key, own]) => [key, own.map(({ value }) => value)]),
  );
}

const noLogin = {
  token: undefined,
  tokenFile: undefined,
  exec: undefined,
  'auth-provider': undefined,
  username: undefined,
  password: undefined,
};

function reasonOf(cause: unknown): string {
  const { code } = cause as NodeJS.ErrnoException;
  return { ENOENT: 'it does not exist', EISDIR: 'it is a folder' }[code ?? ''] ?? messageOf(cause);
}

function podTarget({ environment, namespace }: KubeconfigOptions): KubeTarget | undefined {
  const host = environment['KUBERNETES_SERVICE_HOST'];
  if (!host) return undefined;
  const server = `https://${host.includes(':') ? `[${host}]` : host}:${environment['KUBERNETES_SERVICE_PORT'] || '443'}`;
  return {
    name: 'in-cluster',
    source: 'the service account of this pod',
    server,
    namespace: namespace || 'default',
    clusterName: 'in-cluster',
    userName: 'service account',
    cluster: { server, 'certificate-authority': `${serviceAccount}/ca.crt` },
    user: { tokenFile: `${serviceAccount}/token` },
  };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/** The content of a kubeconfig file, and its folder. */
interface Kubeconfig {
  readonly folder: string;
  readonly clusters?: unknown;
  readonly users?: unknown;
  readonly contexts?: unknown;
  readonly 'current-context'?: unknown;
}

/** The merged content of several kubeconfig files. */
interface MergedKubeconfig {
  readonly clusters: Readonly<Record<string, Fields>>;
  readonly users: Readonly<Record<string, Fields>>;
  readonly contexts: Readonly<Record<string, Fields>>;
  readonly 'current-context': string;
}

const paths = ['certificate-authority', 'client-certificate', 'client-key', 'tokenFile'];

/**
 * Merges kubeconfig files as client-go does: the first file with an entry wins, also for the current context. Relative
 * paths become absolute. The loader of @kubernetes/client-node differs: it takes the last context, and refuses
 * duplicate and incomplete entries.
 */
function mergeKubeconfigs(configs: readonly Kubeconfig[]): MergedKubeconfig {
  const merge = (list: 'clusters' | 'users' | 'contexts', field: string): Record<string, Fields> => {
    const entries = configs.flatMap((config) => entriesOf(config[list], field, config.folder));
    return Object.fromEntries(entries.reverse());
  };
  const current = configs.map((config) => config['current-context']).find((name) => typeof name === 'string' && name);
  return {
    clusters: merge('clusters', 'cluster'),
    users: merge('users', 'user'),
    contexts: merge('contexts', 'context'),
    'current-context': typeof current === 'string' ? current : '',
  };
}

function entriesOf(list: unknown, field: string, folder: string): [name: string, fields: Fields][] {
  if (!Array.isArray(list)) return [];
  return list.filter(isFields).flatMap((entry) => {
    const { name, [field]: fields } = entry;
    return typeof name === 'string' ? [[name, resolvePaths(isFields(fields) ? fields : {}, folder)]] : [];
  });
}

function resolvePaths(fields: Fields, folder: string): Fields {
  const resolved = paths.flatMap((key) => {
    const path = fields[key];
    return typeof path === 'string' && path !== '' ? [[key, absolute(path, folder)] as const] : [];
  });
  const { exec } = fields;
  const command = isFields(exec) ? exec['command'] : undefined;
  return {
    ...fields,
    ...Object.fromEntries(resolved),
    // A bare name is looked up in PATH; one with a slash is relative to the file.
    ...(isFields(exec) &&
      typeof command === 'string' &&
      /[/\\]/.test(command) && { exec: { ...exec, command: absolute(command, folder) } }),
  };
}

function absolute(path: string, folder: string): string {
  return isAbsolute(path) ? path : join(folder, path);
}
