import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { isAbsolute, join } from 'node:path';
import { expect } from 'chai';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { startRegistry, type RegistryOptions, type TestRegistry } from '../../fakes/registry/registry.ts';
import { startSignatureServer, type SignatureServer } from '../../fakes/registry/signatureServer.ts';
import { userEnvironment } from '../environment.ts';
import { compileCache, executableOf } from '../program/executables.ts';
import { executeProgram, type Execution } from '../program/execution.ts';
import { makeFolder, removeFolder } from '../release/mirrorDirectory.ts';
import { buildRelease, type ReleaseOptions, type TestRelease } from '../release/release.ts';
import { makeSigningKey, signatureStore, signDigest, type SigningKey } from '../release/signing.ts';

/** The result of running the program. */
export interface Outcome {
  /** The exit code; null if it was killed. */
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** The peak memory in bytes; 0 if the system does not report it. */
  readonly peakMemory: number;
}

/** A running program. */
export interface Running {
  readonly child: ChildProcess;
  readonly outcome: Promise<Outcome>;
}

/** Options by their names: a list for a repeated one, true for a flag, undefined for none. */
export type ProgramOptions = Readonly<Record<string, string | true | readonly string[] | undefined>>;

/** Starts `oc adm-upgrade-bundle`, with `home` as its home folder and only the credentials in it. */
export function startProgram(
  home: string,
  verb: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Running {
  return startExecutable('oc-adm_upgrade_bundle', home, [verb, ...args], env);
}

/** Starts one of the executables of this project, or a built one by its path, in the same way. */
export function startExecutable(
  name: string,
  home: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
): Running {
  const child = spawn(process.execPath, [isAbsolute(name) ? name : executableOf(name), ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    cwd: home,
    env: { ...environmentAt(home), NODE_COMPILE_CACHE: compileCache, ...env },
  });
  return { child, outcome: watch(child) };
}

/** Runs `oc adm-upgrade-bundle` to its end in this process, with `home` as in startProgram. A signal interrupts it. */
export function runProgram(
  home: string,
  verb: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  signal?: AbortSignal,
): Promise<Execution> {
  return runExecutable('oc-adm_upgrade_bundle', home, [verb, ...args], env, signal);
}

/** Runs one of the programs of this project to its end in the same way. A signal interrupts it. */
export function runExecutable(
  name: string,
  home: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = {},
  signal?: AbortSignal,
): Promise<Execution> {
  return executeProgram(name, args, { cwd: home, env: { ...environmentAt(home), ...env }, ...(signal && { signal }) });
}

/** `oc adm-upgrade-bundle serve` in this process. */
export interface Serving {
  /** What it printed: its address. Empty if it ended without. */
  readonly address: string;
  /** Interrupts it, and returns its result. */
  readonly end: () => Promise<Execution>;
}

/** Starts `oc adm-upgrade-bundle serve`, with `home` as in startProgram, until it prints its address or ends. */
export async function startServing(home: string, args: readonly string[]): Promise<Serving> {
  const interruption = new AbortController();
  const printed = Promise.withResolvers<string>();
  const running = executeProgram('oc-adm_upgrade_bundle', ['serve', ...args], {
    cwd: home,
    env: environmentAt(home),
    signal: interruption.signal,
    onOutput: printed.resolve,
  });
  const address = await Promise.race([printed.promise, running.then(({ stdout }) => stdout)]);
  const end = (): Promise<Execution> => {
    interruption.abort();
    return running;
  };
  return { address: address.trim(), end };
}

function environmentAt(home: string): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], ...userEnvironment, HOME: home };
}

async function watch(child: ChildProcess): Promise<Outcome> {
  let [stdout, stderr, peakMemory] = ['', '', 0];
  child.stdout?.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr?.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const look = async (): Promise<void> => {
    const status = await readFile(`/proc/${String(child.pid)}/status`, 'utf8').catch(() => '');
    peakMemory = Math.max(peakMemory, Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) * 1024);
  };
  const timer = setInterval(() => void look(), 50);
  const code = await new Promise<number | null>((resolve) => child.once('close', resolve));
  clearInterval(timer);
  return { code, stdout, stderr, peakMemory };
}

/** Options of a workshop. By default it has its own registry for the release, unless `release` names another. */
export interface WorkshopOptions extends RegistryOptions {
  readonly release?: ReleaseOptions;
  /** Whether the release is signed; default true. */
  readonly signed?: boolean;
}

let sharedKey: Promise<SigningKey> | undefined;

/**
 * A registry in this process with a signed release, a signature store that the payload names, and a folder: everything
 * that `create` needs.
 */
export class Workshop {
  readonly folder: string;
  readonly registry: TestRegistry;
  readonly signatures: SignatureServer;
  readonly release: TestRelease;
  readonly key: SigningKey;
  readonly #running = new Set<ChildProcess>();

  constructor(parts: Pick<Workshop, 'folder' | 'registry' | 'signatures' | 'release' | 'key'>) {
    this.folder = parts.folder;
    this.registry = parts.registry;
    this.signatures = parts.signatures;
    this.release = parts.release;
    this.key = parts.key;
  }

  /** The folder of bundles if `output` is not given. */
  get output(): string {
    return join(this.folder, 'output');
  }

  /** The path of the release’s bundle in that folder. */
  get bundle(): string {
    return join(this.output, `upgrade-${this.release.tag}.tar`);
  }

  /** Returns the options that create the bundle, with some changes. */
  options(changes: ProgramOptions = {}): string[] {
    const { version, arch, registry, releaseRepository } = this.release;
    const options: ProgramOptions = {
      version,
      arch,
      'release-repository': `${registry}/${releaseRepository}`,
      'trust-fingerprint': this.key.fingerprint,
      insecure: true,
      output: this.output,
      ...changes,
    };
    return Object.entries(options).flatMap(([name, value = []]) =>
      value === true ? [`--${name}`] : [value].flat().map((each) => `--${name}=${each}`),
    );
  }

  /** Starts `create`. */
  start(changes: ProgramOptions = {}, env: NodeJS.ProcessEnv = {}): Running {
    const running = startProgram(this.folder, 'create', this.options(changes), env);
    this.#running.add(running.child.once('exit', () => this.#running.delete(running.child)));
    return running;
  }

  /** Runs `create` to its end, in this process. A signal interrupts it. */
  create(changes: ProgramOptions = {}, env: NodeJS.ProcessEnv = {}, signal?: AbortSignal): Promise<Execution> {
    return runProgram(this.folder, 'create', this.options(changes), env, signal);
  }

  /** Runs `create`, which must succeed, and returns the path of the bundle. */
  async make(changes: ProgramOptions = {}): Promise<string> {
    const outcome = await this.create({ ...changes, format: 'json' });
    expect(outcome.code, outcome.stderr).to.equal(0);
    return (JSON.parse(outcome.stdout) as { path: string }).path;
  }

  /** Writes a file into the folder, and returns its path. */
  async write(name: string, content: string): Promise<string> {
    await writeFile(join(this.folder, name), content);
    return join(this.folder, name);
  }

  /** Writes a credentials file for the registry, or for several hosts. */
  writePullSecret(username: string, password: string, ...hosts: string[]): Promise<string> {
    const auth = Buffer.from(`${username}:${password}`).toString('base64');
    const auths = [this.registry.host, ...hosts].map((host) => [host, { auth }]);
    return this.write('pull-secret.json', JSON.stringify({ auths: Object.fromEntries(auths) as object }));
  }

  /** Kills programs that a failed test left running. */
  killAll(): void {
    for (const child of this.#running) child.kill('SIGKILL');
  }

  async close(): Promise<void> {
    this.killAll();
    await Promise.all([this.registry.stop(), this.signatures.stop()]);
    await removeFolder(this.folder);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}

/** Opens a workshop, by default with four small components. */
export async function openWorkshop(options: WorkshopOptions = {}): Promise<Workshop> {
  const { release: releaseOptions, signed = true, ...registryOptions } = options;
  const parts = {
    key: await (sharedKey ??= makeSigningKey()),
    registry: await startRegistry(registryOptions),
    signatures: await startSignatureServer(new Map()),
  };
  const release = await addRelease(parts, releaseOptions, signed);
  return new Workshop({ folder: await makeFolder(), ...parts, release });
}

/** Adds a release to a workshop’s registry, by default with four small components, and signs it. */
export async function addRelease(
  workshop: Pick<Workshop, 'registry' | 'signatures' | 'key'>,
  options: ReleaseOptions = {},
  signed = true,
): Promise<TestRelease> {
  const { registry, signatures, key } = workshop;
  const release = buildRelease({
    components: 4,
    layers: 1,
    baseLayers: 1,
    registry: registry.host,
    verification: { publicKey: key.publicKey, stores: [signatures.url] },
    ...options,
  });
  release.addTo(registry.content);
  if (signed) await sign(workshop, [release.digest, ...release.children]);
  return release;
}

/** Adds signatures of some digests to a workshop’s store, by its key or another one. */
export async function sign(
  workshop: Pick<Workshop, 'signatures' | 'key'>,
  digests: readonly Digest[],
  key: SigningKey = workshop.key,
): Promise<void> {
  for (const digest of digests) {
    const files = signatureStore(new Map([[digest, [await signDigest(key, digest)]]]), '/');
    for (const [path, bytes] of files) (workshop.signatures.files as Map<string, Buffer>).set(path, bytes);
  }
}

/**
 * Checks that a run failed properly: exit code 1 (or the given one), and an error message with or without a hint. There
 * must be no stack trace, no secret, and no bundle under its final name in `folder`.
 */
export async function expectFailure(
  { code, stdout, stderr }: Omit<Outcome, 'peakMemory'>,
  folder: string,
  messages: RegExp | readonly RegExp[],
  { exit = 1, secrets = [] }: { exit?: number; secrets?: readonly string[] } = {},
): Promise<void> {
  if (process.env['SHOW_MESSAGES']) process.stdout.write(`\n${stderr}`);
  expect(code, stderr).to.equal(exit);
  if (exit === 1) expect(stderr).to.match(/^error \([a-z-]+\): /m);
  for (const message of [messages].flat()) expect(stderr).to.match(message);
  expect(stderr).not.to.match(/^\s+at /m);
  expect(stderr).not.to.match(/defect of this program|undefined|\[object|node:internal/);
  for (const secret of secrets) expect(stdout + stderr).not.to.include(secret);
  expect(await listBundles(folder)).to.deep.equal([]);
}

/** Returns the files in a folder with the names of finished bundles; empty if the folder does not exist. */
export async function listBundles(folder: string): Promise<string[]> {
  return (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.tar'));
}

/** The digest of a file. */
export async function digestOfFile(path: string): Promise<Digest> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return `sha256:${hash.digest('hex')}`;
}

/** Returns the bytes of blobs that a registry has sent since request `from`, except some digests. */
export function blobBytes(registry: TestRegistry, from = 0, without: readonly string[] = []): number {
  return registry.requests
    .slice(from)
    .filter(({ method, path }) => method === 'GET' && path.includes('/blobs/'))
    .filter(({ path }) => !without.some((digest) => path.endsWith(digest)))
    .reduce((sum, { bytesSent }) => sum + bytesSent, 0);
}

/**
 * Returns the blobs of a release’s payload that are read first: its configuration, and the layer with its manifests.
 */
export function payloadBlobs({ content, releaseRepository, digest }: TestRelease): string[] {
  const bytes = content.repositories.get(releaseRepository)?.manifests.get(digest)?.bytes;
  const { config, layers } = JSON.parse(String(bytes)) as { config: { digest: string }; layers: { digest: string }[] };
  return [config.digest, layers.at(-1)?.digest ?? ''];
}
