import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stringify } from 'yaml';
import type { Certificate } from './certificates.ts';
import type { DockerTokens } from './dockerTokens.ts';

/** The only user of a registry with Basic authentication. */
export const basicUser = { username: 'admin', password: 'secret' };

// The registry accepts only bcrypt. This is basicUser's password, at the lowest cost so that tests are fast.
const basicHash = '$2b$04$14jDOeqI3/Ky896a2l7Z7eUvqqL25kUcQzxIfY/ThuoKjTylnbdSe';

const logSize = 64 * 1024;

/** The variant of the registry to start; by default plain HTTP without a login. */
export interface DockerRegistryOptions {
  /** A folder of an earlier registry whose content this one serves too. stop() then keeps it. */
  readonly storage?: string;
  readonly certificate?: Pick<Certificate, 'certificateFile' | 'keyFile'>;
  /** `basic` for basicUser, or the token server. */
  readonly authentication?: 'basic' | DockerTokens;
  /** Whether it keeps its content in memory, which takes less time than files. */
  readonly inMemory?: boolean;
  readonly readOnly?: boolean;
  /** Whether images can be removed; default true. */
  readonly deletes?: boolean;
}

/** A running docker-registry of Debian. */
export interface DockerRegistry extends AsyncDisposable {
  /** `127.0.0.1:<port>`. */
  readonly host: string;
  /** `http://…` or `https://…`, without a trailing slash. */
  readonly url: string;
  readonly storage: string;
  readonly pid: number;
  /** Returns the end of its log, at most 64 KiB. */
  log(): string;
  stop(): Promise<void>;
}

/** The registry of a suite. */
export interface SuiteRegistry extends Pick<DockerRegistry, 'host' | 'url' | 'storage'> {
  /** Adds all images and tags of a repository to another one, which costs less than mirroring them again. */
  addTo(repository: string, from: string): Promise<void>;
}

/** Starts a registry before the tests of a suite, and stops it after them. `addTo` needs one that keeps files. */
export function useDockerRegistry({ inMemory = true } = {}): SuiteRegistry {
  const site = { host: '', url: '', storage: '' };
  const folderOf = (repository: string): string => join(site.storage, 'docker/registry/v2/repositories', repository);
  const addTo = (repository: string, from: string): Promise<void> =>
    cp(folderOf(from), folderOf(repository), { recursive: true });
  let registry: DockerRegistry;
  before(async () => {
    registry = await startDockerRegistry({ inMemory });
    const { host, url, storage } = registry;
    Object.assign(site, { host, url, storage });
  });
  after(() => registry.stop());
  return Object.assign(site, { addTo });
}

/**
 * Starts `docker-registry serve` on a free loopback port, and waits until it listens. Throws with its log if it does
 * not.
 */
export async function startDockerRegistry(options: DockerRegistryOptions = {}): Promise<DockerRegistry> {
  const folder = await mkdtemp(join(tmpdir(), 'docker-registry-'));
  const storage = options.storage ?? join(folder, 'storage');
  const configuration = join(folder, 'config.yml');
  await writeFile(join(folder, 'htpasswd'), `${basicUser.username}:${basicHash}\n`);
  await writeFile(configuration, stringify(configurationOf(options, folder, storage)));

  let log = '';
  const child = spawn('docker-registry', ['serve', configuration], { stdio: ['ignore', 'pipe', 'pipe'] });
  const port = await new Promise<string>((resolve, reject) => {
    const listen = (chunk: Buffer): void => {
      log = (log + chunk.toString()).slice(-logSize);
      const found = /listening on 127\.0\.0\.1:(\d+)/.exec(log)?.[1];
      if (found !== undefined) resolve(found);
    };
    child.stdout.on('data', listen);
    child.stderr.on('data', listen);
    child.once('error', reject);
    child.once('exit', () => {
      reject(new Error(`docker-registry did not start:\n${log}`));
    });
  });
  const host = `127.0.0.1:${port}`;
  const stop = async (): Promise<void> => {
    await end(child);
    await rm(folder, { recursive: true, force: true });
  };
  return {
    host,
    url: `${options.certificate ? 'https' : 'http'}://${host}`,
    storage,
    pid: child.pid ?? 0,
    log: () => log,
    stop,
    [Symbol.asyncDispose]: stop,
  };
}

function configurationOf(options: DockerRegistryOptions, folder: string, storage: string): object {
  const { certificate, authentication, readOnly = false, deletes = true } = options;
  return {
    version: '0.1',
    log: { level: 'info', accesslog: { disabled: true } },
    storage: {
      ...(options.inMemory ? { inmemory: {} } : { filesystem: { rootdirectory: storage } }),
      cache: { blobdescriptor: 'inmemory' },
      delete: { enabled: deletes },
      maintenance: { uploadpurging: { enabled: false }, readonly: { enabled: readOnly } },
    },
    http: {
      // The registry logs its port if the port is 0.
      addr: '127.0.0.1:0',
      secret: 'test',
      ...(certificate && { tls: { certificate: certificate.certificateFile, key: certificate.keyFile } }),
    },
    ...(authentication && { auth: authenticationOf(authentication, folder) }),
  };
}

function authenticationOf(authentication: 'basic' | DockerTokens, folder: string): object {
  if (authentication === 'basic') return { htpasswd: { realm: 'test', path: join(folder, 'htpasswd') } };
  const { url, service, issuer, certificateFile } = authentication;
  return { token: { realm: url, service, issuer, rootcertbundle: certificateFile } };
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGKILL');
  await ended;
}
