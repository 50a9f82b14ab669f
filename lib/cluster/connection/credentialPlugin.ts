import { spawn } from 'node:child_process';
import { interrupted, networkCode, type Environment } from '#content/http';
import type { Context } from '#context';
import { messageOf, PluginError } from '#errors';
import { isFields, type Fields } from '#fields';

/** The credentials from a plugin: a token, or a client certificate with its key (PEM), or both. */
export interface PluginCredential {
  readonly token?: string;
  readonly certificate?: string;
  readonly key?: string;
  /** The time when they expire, in milliseconds since 1970; undefined if the plugin does not state it. */
  readonly expires?: number;
}

/** The environment of a credential plugin, its input, and its time limit. */
export interface PluginOptions {
  readonly environment: Environment;
  /** Whether the user is at a terminal. The plugin may then ask on the standard input of this process. */
  readonly hasTerminal?: boolean | undefined;
  /** The time limit in milliseconds; default 5 minutes, which is enough for a login in a browser. */
  readonly timeout?: number | undefined;
}

const versions = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1'];

/** The largest output of a plugin, in bytes. A token and a certificate chain have some kilobytes. */
const largestOutput = 1024 * 1024;

/** The wait until a message is logged, in milliseconds. */
const noticeDelay = 5000;

/**
 * Runs the credential plugin of a kubeconfig user (`exec`, client.authentication.k8s.io). Unlike
 * @kubernetes/client-node, it passes KUBERNETES_EXEC_INFO, closes the standard input, can be interrupted, and shows the
 * messages of the plugin. Throws `bad-credentials-file`.
 */
export async function runCredentialPlugin(
  exec: Fields,
  cluster: Fields,
  options: PluginOptions,
  context: Context,
): Promise<PluginCredential> {
  const { command, apiVersion, args, env, interactiveMode, provideClusterInfo } = exec;
  if (typeof command !== 'string' || command === '') throw failure('the kubeconfig names no command for it');
  if (!versions.includes(String(apiVersion))) {
    const has = typeof apiVersion === 'string' ? `the apiVersion ${apiVersion}` : 'no apiVersion';
    const hint = `Write ${versions.join(' or ')} into the kubeconfig, if the plugin supports it.`;
    throw failure(`${command} has ${has} in the kubeconfig, which is not supported`, hint);
  }
  if (interactiveMode === 'Always' && !options.hasTerminal) {
    throw failure(`${command} needs a terminal for its prompt`, 'Run this at a terminal, or log in first: oc login');
  }
  const interactive = options.hasTerminal === true && interactiveMode !== 'Never';
  const info = {
    kind: 'ExecCredential',
    apiVersion,
    spec: { interactive, ...(provideClusterInfo === true && { cluster: clusterInfo(cluster) }) },
  };
  const extra = (Array.isArray(env) ? env : [])
    .filter(isFields)
    .map(({ name, value = '' }) => [String(name), String(value)] as const);
  const output = await runCommand(
    {
      command,
      args: Array.isArray(args) ? args.map(String) : [],
      env: {
        ...options.environment,
        ...Object.fromEntries<string>(extra),
        KUBERNETES_EXEC_INFO: JSON.stringify(info),
      },
      interactive,
      installHint: exec['installHint'],
      timeout: options.timeout ?? 5 * 60_000,
    },
    context,
  );
  return readCredential(output, command, apiVersion);
}

interface Call {
  readonly command: string;
  readonly args: readonly string[];
  readonly env: Environment;
  readonly interactive: boolean;
  readonly installHint: unknown;
  readonly timeout: number;
}

function runCommand(call: Call, context: Context): Promise<string> {
  const { command, args, env, interactive, installHint, timeout } = call;
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, {
      env,
      stdio: [interactive ? 'inherit' : 'ignore', 'pipe', 'pipe'],
      signal: context.signal,
    });
    const output: Buffer[] = [];
    let size = 0;
    let complaint = '';
    const fail = (what: string): void => {
      settle();
      child.kill('SIGKILL');
      // Child processes of the plugin may keep the pipes open.
      child.stdout.destroy();
      child.stderr.destroy();
      reject(failure(`${command} ${what}`));
    };
    const notice = setTimeout(() => {
      context.log('info', `waiting for the credential plugin ${command} of the kubeconfig`);
    }, noticeDelay);
    const limit = setTimeout(() => {
      fail(`did not end within ${timeout / 1000} s`);
    }, timeout);
    const settle = (): void => {
      clearTimeout(notice);
      clearTimeout(limit);
    };
    child.stdout.on('data', (chunk: Buffer) => {
      size += chunk.length;
      if (size > largestOutput) fail(`printed more than ${largestOutput} bytes`);
      else output.push(chunk);
    });
    child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
      complaint = (complaint + chunk).slice(-2000);
      // The plugin may print the URL and the code for a login.
      for (const line of chunk.split('\n').filter((part) => part.trim() !== '')) context.log('info', line);
    });
    child.once('error', (cause) => {
      settle();
      if (context.signal.aborted) return reject(interrupted());
      const code = networkCode(cause);
      // EACCES: a folder of the PATH cannot be searched, and no other has the command.
      const denied = code === 'EACCES' ? 'there is no such command, or it may not be executed' : messageOf(cause);
      const reason = code === 'ENOENT' ? 'there is no such command' : denied;
      reject(failure(`${command}: ${reason}`, typeof installHint === 'string' ? installHint.trim() : undefined));
    });
    child.once('close', (code, signal) => {
      settle();
      if (code === 0) return resolve(Buffer.concat(output).toString());
      const last = complaint.trim().split('\n').at(-1) ?? '';
      const ending = `${command} ended with ${code === null ? String(signal) : String(code)}`;
      reject(failure(last === '' ? ending : `${ending}: ${last}`));
    });
  });
}

function readCredential(output: string, command: string, apiVersion: unknown): PluginCredential {
  let credential: unknown;
  try {
    credential = JSON.parse(output);
  } catch {
    // The output may have a token.
    throw failure(`${command} printed something that is not JSON`);
  }
  const answered = isFields(credential) ? credential : {};
  if (answered['kind'] !== 'ExecCredential') throw failure(`${command} printed no ExecCredential`);
  if (answered['apiVersion'] !== apiVersion) {
    const [theirs, ours] = [String(answered['apiVersion']), String(apiVersion)];
    throw failure(`${command} answered as ${theirs}, and the kubeconfig expects ${ours}`);
  }
  const status = isFields(answered['status']) ? answered['status'] : {};
  const [token, certificate, key] = ['token', 'clientCertificateData', 'clientKeyData'].map((name) => status[name]);
  const expires = Date.parse(String(status['expirationTimestamp']));
  const credentials = {
    ...(typeof token === 'string' && token !== '' && { token: token.trim() }),
    ...(typeof certificate === 'string' && typeof key === 'string' && { certificate, key }),
  };
  if (Object.keys(credentials).length === 0)
    throw failure(`${command} returned neither a token nor a certificate with its key`);
  return { ...credentials, ...(!Number.isNaN(expires) && { expires }) };
}

function clusterInfo(cluster: Fields): Fields {
  const names = ['server', 'tls-server-name', 'insecure-skip-tls-verify', 'certificate-authority-data', 'proxy-url'];
  const entries = names.filter((name) => cluster[name] !== undefined).map((name) => [name, cluster[name]]);
  return { ...Object.fromEntries(entries), ...extensionOf(cluster) } as Fields;
}

function extensionOf(cluster: Fields): Fields {
  const { extensions } = cluster;
  const extension = (Array.isArray(extensions) ? extensions : [])
    .filter(isFields)
    .find(({ name }) => name === 'client.authentication.k8s.io/exec');
  return extension ? { config: extension['extension'] } : {};
}

function failure(
  what: string,
  hint = 'Run it by hand to see its output, or log in again with “oc login”.',
): PluginError {
  return new PluginError('bad-credentials-file', `the credential plugin of the kubeconfig failed: ${what}`, { hint });
}
