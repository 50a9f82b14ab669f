import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { userInfo } from 'node:os';
import { delimiter, join } from 'node:path';
import Mocha, { type Context, type Suite } from 'mocha';

/** A program of another project that tests compare ours with. */
export type Peer =
  | 'skopeo'
  | 'docker-registry'
  | 'podman'
  | 'newuidmap'
  | 'slirp4netns'
  | 'systemd-analyze'
  | 'patch'
  | 'buildah'
  | 'openssl'
  | 'gpg'
  | 'curl'
  | 'tar'
  | 'bsdtar'
  | 'oc'
  | 'kubectl'
  | 'bash'
  | 'dh_bash-completion'
  | 'zsh'
  | 'fish'
  | 'tmux'
  | 'readelf'
  | 'qemu-aarch64'
  | 'python3'
  | 'pg_ctlcluster'
  | 'script'
  | 'stty'
  | 'unshare'
  | 'agetty'
  | 'udevadm'
  | 'chromium'
  | 'git'
  | 'kubectl-krew'
  | 'groff'
  | 'rpmbuild';

/** The result of a command. `code` is -1 if it was killed or did not start. */
export interface RunResult {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** The environment of a command. `input` is its standard input. */
export interface RunOptions {
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly input?: string | Buffer;
}

/** The suites that were skipped because of a missing peer: suite titles by peer. */
export const skippedSuites = new Map<Peer, string[]>();

/** Returns whether a program is on the PATH. */
export function hasPeer(peer: Peer): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => {
    try {
      accessSync(join(folder, peer), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

/**
 * Skips a suite with all its hooks, or one test, with a line on standard error, if a peer is not installed:
 * `describe('…', function () { requirePeer(this, 'skopeo'); … })`.
 */
export function requirePeer(subject: Suite | Context, ...peers: Peer[]): void {
  const absent = peers.filter((peer) => !hasPeer(peer));
  if (absent.length === 0) return;
  const isSuite = subject instanceof Mocha.Suite;
  const title = (isSuite ? subject : subject.test?.parent)?.fullTitle() ?? 'a suite';
  for (const peer of absent) skippedSuites.set(peer, [...(skippedSuites.get(peer) ?? []), title]);
  const count = new Set([...skippedSuites.values()].flat()).size;
  console.error(`SKIPPED “${title}”: ${absent.join(' and ')} not installed (${count} suites skipped so far)`);
  // Mocha adds no hooks to a suite that is pending.
  if (isSuite) subject.pending = true;
  else subject.skip();
}

/** Skips a test if the user has no entry in /etc/passwd. Some programs do not run for such a user. */
export function requireAccount(context: Context): void {
  try {
    userInfo();
  } catch {
    console.error(`SKIPPED “${context.test?.fullTitle() ?? 'a test'}”: the user has no entry in /etc/passwd`);
    context.skip();
  }
}

/** Runs a command to its end. Returns any exit code, and the output. */
export function run(command: string, args: readonly string[], options: RunOptions = {}): Promise<RunResult> {
  const { input, cwd, env } = options;
  return new Promise((resolve) => {
    const settings = { maxBuffer: 64 * 1024 * 1024, ...(cwd !== undefined && { cwd }), ...(env && { env }) };
    const child = execFile(command, args, settings, (error, stdout, stderr) => {
      const code = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
      resolve({ code, stdout, stderr: code === -1 ? `${stderr}${error?.message ?? ''}` : stderr });
    });
    // A command that ends before it has read everything breaks the pipe. Its exit code shows the result.
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(input);
  });
}

/** Does the same as `run`, for a command that must succeed. Returns its standard output, or throws its error output. */
export async function runSuccessfully(
  command: string,
  args: readonly string[],
  options: RunOptions = {},
): Promise<string> {
  const { code, stdout, stderr } = await run(command, args, options);
  if (code !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${code}: ${stderr}${stdout}`);
  return stdout;
}
