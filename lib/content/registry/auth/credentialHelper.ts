import { execFile } from 'node:child_process';
import { PluginError } from '#errors';
import type { Environment } from '../../http/proxy.ts';

/** The time limit of a helper, in milliseconds. Some helpers open a keyring that the user must unlock first. */
const timeout = 60_000;

/**
 * Returns whether a text is a valid name of a credential helper: the part of its file name after
 * `docker-credential-`.
 */
export function isHelperName(text: unknown): text is string {
  return typeof text === 'string' && /^[\w.+-]+$/.test(text);
}

/**
 * Runs the program `docker-credential-<name>` on the PATH of `environment` for the credential of a server, by the
 * protocol of docker-credential-helpers (`get`, the server on stdin, JSON on stdout). Returns undefined if it has none.
 * Throws `bad-credentials-file` if it cannot run, fails or prints other output. Never shows its output.
 */
export async function runHelper(
  name: string,
  server: string,
  environment: Environment,
): Promise<Credential | undefined> {
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
