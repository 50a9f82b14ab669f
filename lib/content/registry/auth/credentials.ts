import { execFile } from 'node:child_process';
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { isPluginError, messageOf, PluginError } from '#errors';
import { fieldsOf, isFields, textOf } from '#fields';
import { readSmallFile } from '../../files/smallFile.ts';
import type { Environment } from '../../http/proxy.ts';

/** Where Credentials reads logins: from one file, or from the usual files and helpers of the user. */
export interface CredentialsOptions {
  /** The only file to use (`--pull-secret`, `--registry-config`). */
  readonly file?: string;
  /** The environment of helpers, which also names the default files. */
  readonly environment: Environment;
  /** The user ID, for /run/containers/<uid>/auth.json. */
  readonly uid?: number;
  /** The home directory of the user; by default HOME of the environment. */
  readonly home?: string;
}

/** One credentials file, in the format of ~/.docker/config.json. */
interface CredentialsFile {
  readonly path: string;
  readonly auths: ReadonlyMap<string, unknown>;
  readonly helpers: ReadonlyMap<string, unknown>;
  readonly store: unknown;
  readonly warnings: string[];
}

/**
 * The credentials of a run. Runs each helper once for each host. Reads the files when the first credential is needed:
 * the given file, else the file of REGISTRY_AUTH_FILE, else all existing default files in the order of `oc`. These are
 * `$XDG_RUNTIME_DIR/containers/auth.json`, `/run/containers/<uid>/auth.json`, `~/.config/containers/auth.json` (or in
 * XDG_CONFIG_HOME), `~/.docker/config.json` (or in DOCKER_CONFIG) and `~/.dockercfg`.
 */
export class Credentials {
  readonly #options: CredentialsOptions;
  readonly #credentials = new Map<string, Promise<Credential | undefined>>();
  #files: readonly CredentialsFile[] = [];
  #loading: Promise<void> | undefined;

  constructor(options: CredentialsOptions) {
    this.#options = options;
  }

  /**
   * Reads the files. Throws `bad-credentials-file` for a missing file that the user named, and for any file that cannot
   * be read or parsed.
   */
  load(): Promise<void> {
    return (this.#loading ??= this.#load());
  }

  /** The paths of the files that were read, in their order of precedence. */
  get files(): readonly string[] {
    return this.#files.map(({ path }) => path);
  }

  /**
   * Returns the credential for a repository; undefined if there is none. The first file with one wins. Within a file, a
   * helper for the registry comes first. Then come the entry with the longest path (`host/a/b`, `host/a`, `host`,
   * compared as a whole) and the credentials store of the file. Throws the errors of `load`, and `bad-credentials-file`
   * if that entry or helper is unusable.
   */
  async find(registry: string, repository: string): Promise<Credential | undefined> {
    await this.load();
    const host = canonicalHost(registry);
    for (const file of this.#files) {
      const credential =
        (await this.#runHelper(file, file.helpers.get(host), host)) ??
        findEntry(file, host, repository) ??
        (await this.#runHelper(file, file.store, host));
      if (credential) return credential;
    }
    return undefined;
  }

  /** What was strange in the files that were read, in words: each is worth a warning. */
  get warnings(): readonly string[] {
    return this.#files.flatMap(({ warnings }) => warnings);
  }

  /** Returns the names of entries for the host of a registry under another port, with their files. */
  findOtherPorts(registry: string): { readonly name: string; readonly path: string }[] {
    const host = canonicalHost(registry);
    return this.#files.flatMap(({ auths, path }) =>
      [...auths.keys()].flatMap((name) => {
        const [other = ''] = name.split('/');
        return other !== host && withoutPort(other) === withoutPort(host) ? [{ name, path }] : [];
      }),
    );
  }

  async #load(): Promise<void> {
    const { file, environment } = this.#options;
    const named = file ?? (environment['REGISTRY_AUTH_FILE'] || undefined);
    const paths = named === undefined ? defaultPaths(this.#options) : [named];
    const files = await Promise.all(paths.map((path) => readCredentialsFile(path, named === undefined)));
    this.#files = files.filter((each) => each !== undefined);
  }

  async #runHelper(file: CredentialsFile, helper: unknown, host: string): Promise<Credential | undefined> {
    if (helper === undefined || helper === '') return undefined;
    if (!isHelperName(helper)) throw unusable(file.path, `names an invalid credential helper for ${host}`);
    // Docker stores the credentials of its own registry under this address.
    const server = host === dockerHost ? 'https://index.docker.io/v1/' : host;
    const key = `${helper} ${server}`;
    const credential = this.#credentials.get(key) ?? runHelper(helper, server, this.#options.environment);
    this.#credentials.set(key, credential);
    return await credential;
  }
}

function defaultPaths({ environment, uid, home = environment['HOME'] }: CredentialsOptions): string[] {
  const under = (folder: string | undefined, ...parts: string[]) => (folder ? [join(folder, ...parts)] : []);
  const atHome = (...parts: string[]) => under(home, ...parts);
  return [
    ...under(environment['XDG_RUNTIME_DIR'], 'containers/auth.json'),
    ...(uid === undefined ? [] : [`/run/containers/${uid}/auth.json`]),
    ...under(environment['XDG_CONFIG_HOME'] || atHome('.config')[0], 'containers/auth.json'),
    ...under(environment['DOCKER_CONFIG'] || atHome('.docker')[0], 'config.json'),
    ...atHome('.dockercfg'),
  ];
}

/** The largest credentials file in bytes. A pull secret has a few kilobytes. */
const sizeLimit = 4 * 1024 * 1024;

async function readCredentialsFile(path: string, optional: boolean): Promise<CredentialsFile | undefined> {
  let text: string;
  try {
    text = (await readSmallFile(path, sizeLimit)).toString();
  } catch (cause) {
    if (optional && (isPluginError(cause, 'not-found') || (await isHidden(path)))) return undefined;
    throw unusable(path, messageOf(cause).replace(`${path} `, ''), cause);
  }
  const written = parseObject(text);
  if (!written) throw unusable(path, 'is not a JSON object');
  const secret = readSecretObject(written, path);
  const value = secret ?? written;
  const warnings = secret ? [`${path} is a Secret object of a cluster: its .dockerconfigjson is read`] : [];
  const { auths, credHelpers = {}, credsStore } = value;
  // ~/.dockercfg has only the content of `auths`.
  const bare = !('auths' in value || 'credHelpers' in value || 'credsStore' in value);
  const entries = bare ? value : (auths ?? {});
  if (!isFields(entries)) throw unusable(path, 'has “auths” that are not an object');
  if (!isFields(credHelpers)) throw unusable(path, 'has “credHelpers” that are not an object');
  return { path, auths: byHost(entries), helpers: byHost(credHelpers), store: credsStore, warnings };
}

/**
 * Returns whether a file is in a folder that the user may not search, so that it cannot be a file of that user. podman
 * of root makes such a folder of /run/containers.
 */
function isHidden(path: string): Promise<boolean> {
  return lstat(path).then(
    () => false,
    (error: unknown) => (error as NodeJS.ErrnoException).code === 'EACCES',
  );
}

/**
 * Returns the credentials in a Secret object (`oc get secret pull-secret -o json`); undefined for another object.
 * Throws `bad-credentials-file` for a Secret without any.
 */
function readSecretObject(value: Record<string, unknown>, path: string): Record<string, unknown> | undefined {
  if (value['kind'] !== 'Secret') return undefined;
  const keys = ['.dockerconfigjson', '.dockercfg'];
  const encoded = keys.map((key) => textOf(fieldsOf(value['data'])[key])).find((each) => each !== undefined);
  const plain = keys.map((key) => textOf(fieldsOf(value['stringData'])[key])).find((each) => each !== undefined);
  const text = encoded === undefined ? plain : Buffer.from(encoded, 'base64').toString();
  const content = text === undefined ? undefined : parseObject(text);
  if (content) return content;
  throw unusable(path, 'is a Secret object of a cluster without a .dockerconfigjson');
}

function withoutPort(host: string): string {
  return host.replace(/:\d+$/, '');
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text.replace(/^\uFEFF/, ''));
    return isFields(value) ? value : undefined;
  } catch {
    // The message of the parser quotes the text, which is secret.
    return undefined;
  }
}

/** Indexes the entries by host and path. A plain key takes precedence over a URL of the same host. */
function byHost(entries: Record<string, unknown>): Map<string, unknown> {
  const result = new Map<string, unknown>();
  for (const [key, value] of Object.entries(entries)) {
    const [, address] = /^https?:\/\/([^/]+)/i.exec(key) ?? [];
    const name = canonicalName(address ?? key.replace(/(?<!\/)\/+$/, ''));
    if (address === undefined || !result.has(name)) result.set(name, value);
  }
  return result;
}

const dockerHost = 'docker.io';

function canonicalHost(host: string): string {
  const name = host.toLowerCase();
  return name === 'index.docker.io' || name === 'registry-1.docker.io' ? dockerHost : name;
}

function canonicalName(name: string): string {
  const slash = name.indexOf('/');
  return slash < 0 ? canonicalHost(name) : canonicalHost(name.slice(0, slash)) + name.slice(slash);
}

function findEntry(file: CredentialsFile, host: string, repository: string): Credential | undefined {
  for (let name = `${host}/${repository}`; ; name = name.slice(0, name.lastIndexOf('/'))) {
    const entry = file.auths.get(name);
    const credential = isFields(entry) ? readEntry(entry, name, file) : undefined;
    if (credential ?? !name.includes('/')) return credential;
  }
}

/** Reads one entry of `auths`; undefined without a secret. Docker writes such entries if it uses a helper. */
function readEntry(entry: Record<string, unknown>, name: string, file: CredentialsFile): Credential | undefined {
  const { path } = file;
  const text = (key: string) => textOf(entry[key]);
  const [auth, identityToken, registryToken] = [text('auth'), text('identitytoken'), text('registrytoken')];
  let [username, password] = [text('username'), text('password')];
  if (auth !== undefined) {
    // Some versions of Docker pad the text with zero bytes.
    const padded = Buffer.from(auth, 'base64').toString('utf8');
    const decoded = padded.replace(/(?<!\0)\0+$/, '').trimEnd();
    if (/\s\0*$/.test(padded))
      file.warnings.push(`the “auth” for ${name} in ${path} ends with a line break or blank, which is left out`);
    const colon = decoded.indexOf(':');
    if (colon < 0) throw unusable(path, `has an “auth” for ${name} that is not base64 of user:password`);
    [username, password] = [decoded.slice(0, colon), decoded.slice(colon + 1)];
  }
  const pair = username !== undefined && password ? { username, password } : undefined;
  if (!pair && identityToken === undefined && registryToken === undefined) return undefined;
  return { ...pair, ...(identityToken && { identityToken }), ...(registryToken && { registryToken }), from: path };
}

function unusable(path: string, why: string, cause?: unknown): PluginError {
  return new PluginError('bad-credentials-file', `the credentials file ${path} ${why}`, {
    hint:
      'It should be a pull secret as downloaded from Red Hat, or a file that `podman login` or `docker login` ' +
      'wrote.',
    cause,
  });
}

/** The time limit of a helper, in milliseconds. Some helpers open a keyring that the user must unlock first. */
const timeout = 60_000;

/**
 * Returns whether a text is a valid name of a credential helper: the part of its file name after
 * `docker-credential-`.
 */
function isHelperName(text: unknown): text is string {
  return typeof text === 'string' && /^[\w.+-]+$/.test(text);
}

/**
 * Runs the program `docker-credential-<name>` on the PATH of `environment` for the credential of a server, by the
 * protocol of docker-credential-helpers (`get`, the server on stdin, JSON on stdout). Returns undefined if it has none.
 * Throws `bad-credentials-file` if it cannot run, fails or prints other output. Never shows its output.
 */
async function runHelper(name: string, server: string, environment: Environment): Promise<Credential | undefined> {
  const program = `docker-credential-${name}`;
  const fail = (why: string) =>
    new PluginError('bad-credentials-file', `the credential helper ${program} ${why} for ${server}`, {
      hint: 'Log in again with the tool that configured the helper, or use a file with the credentials.',
      settings: ['pullSecret'],
    });
  const { error, output } = await execHelper(program, server, environment);
  // The helpers of docker print this to stdout, others to stderr, all with exit code 1.
  if (error && /credentials not found/i.test(output)) return undefined;
  // EACCES: a folder of the PATH cannot be searched, and no other has the helper.
  if (error?.code === 'ENOENT') throw fail('was not found on the PATH');
  if (error?.code === 'EACCES') throw fail('was not found on the PATH, or may not be executed');
  if (error) throw fail(error.killed ? `did not answer within ${timeout / 1000} seconds` : 'failed');
  const { Username: username, Secret: secret } = parseOutput(output);
  if (typeof username !== 'string' || typeof secret !== 'string') throw fail('returned no credential');
  if (secret === '') return undefined;
  const from = `the credential helper ${program}`;
  return username === '<token>' ? { identityToken: secret, from } : { username, password: secret, from };
}

interface Outcome {
  readonly error?: { readonly code: unknown; readonly killed: boolean };
  readonly output: string;
}

async function execHelper(program: string, input: string, environment: Environment): Promise<Outcome> {
  return await new Promise((resolve) => {
    const options = { env: { ...environment }, timeout, maxBuffer: 1024 * 1024 };
    const child = execFile(program, ['get'], options, (error, stdout, stderr) => {
      if (!error) resolve({ output: stdout });
      else resolve({ error: { code: error.code, killed: error.killed ?? false }, output: `${stdout}\n${stderr}` });
    });
    // A helper may end without reading its input. Its exit code shows the result.
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(`${input}\n`);
  });
}

function parseOutput(output: string): Partial<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(output);
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}

/** A credential for a registry: a user name and a password, or one of two kinds of token. */
export interface Credential {
  readonly username?: string;
  readonly password?: string;
  /** An OAuth2 refresh token, which is exchanged for access tokens. */
  readonly identityToken?: string;
  /** A bearer token that is sent to the registry unchanged. */
  readonly registryToken?: string;
  /** The file or helper of the credential, for messages. */
  readonly from?: string;
}
