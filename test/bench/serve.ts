// Compares the mirror of a control plane node with docker-registry: both serve the same blobs by TLS to one curl, in
// turns: `node test/bench/serve.ts`. Arguments: the number of runs (5), and the megabytes of the release (1500).
import { spawn } from 'node:child_process';
import { copyFile, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parseDigest } from '../../lib/content/oci/reference.ts';
import { replicaPath } from '../../lib/node/transfer/replica.ts';
import { makeAuthority, type Certificate } from '../support/certificates.ts';
import { startDockerRegistry } from '../support/dockerRegistry.ts';
import { measure, median, addRow } from './measure.ts';
import type { BenchRegistry } from './registry.ts';
import { images, printMachine, serveRelease } from './release.ts';
import { makeTar } from './tar.ts';

/** A running server. */
interface Server {
  readonly url: string;
  readonly pid: number;
}

/** The seconds of one run for each gigabyte. */
interface Cost {
  readonly wall: number;
  readonly server: number;
}

const runs = Number(process.argv[2] ?? 5);
// As many as the mirror sends to one address at a time.
const parallel = 4;

await using served = await serveRelease('oc-adm_upgrade_bundle');
const { program, folder, release } = served;
const tar = await makeTar(program, release, join(folder, 'bundle'));
await using authority = await makeAuthority();
const certificate = await authority.issue();
await using mirror = await startMirror(tar, certificate);
await using registry = await startDockerRegistry({ storage: join(folder, 'registry'), certificate });
await compare(release, { mirror, 'docker-registry': registry }, authority.certificateFile);

/** Starts the built mirror on a bundle that its folder retains. */
async function startMirror(tar: string, { certificateFile, keyFile }: Certificate): Promise<Server & AsyncDisposable> {
  const retained = join(folder, 'retained');
  await mkdir(retained);
  const [digest = ''] = (await readFile(`${tar}.sha256`, 'utf8')).split(' ');
  const copy = replicaPath(retained, parseDigest(`sha256:${digest}`));
  await rename(tar, copy);
  await writeFile(copy.replace(/tar$/, 'json'), '{}');
  await copyFile(certificateFile, join(retained, 'tls.crt'));
  await copyFile(keyFile, join(retained, 'tls.key'));
  const folders = [`--download-dir=${retained}`, `--certificate-dir=${retained}`];
  const child = spawn(process.execPath, [program, 'mirror-serve', '--listen=127.0.0.1:0', ...folders], {
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const url = await new Promise<string>((resolve, reject) => {
    let log = '';
    child.stderr.on('data', (chunk: Buffer) => {
      const [found] = /https:\/\/\S+/.exec((log += chunk.toString())) ?? [];
      if (found !== undefined) resolve(found);
    });
    child.once('exit', () => reject(new Error(`the mirror did not start:\n${log}`)));
  });
  return {
    url,
    pid: child.pid ?? 0,
    [Symbol.asyncDispose]: async () => {
      const ended = new Promise((resolve) => child.once('exit', resolve));
      child.kill();
      await ended;
    },
  };
}

async function compare(
  { urls, bytes }: BenchRegistry,
  servers: Readonly<Record<string, Server>>,
  authority: string,
): Promise<void> {
  const what = `${images} images, ${urls.length} blobs, ${(bytes / 1e6).toFixed(0)} MB`;
  printMachine(`${what}, by TLS to curl, ${parallel} at a time`);
  const list = join(folder, 'curl');
  const options = `-sSf --no-progress-meter -Z --parallel-max ${parallel}`;
  const costs = new Map<string, Cost[]>(Object.keys(servers).map((name) => [name, []]));
  for (let run = 0; run <= runs; run++) {
    for (const [name, { url, pid }] of Object.entries(servers)) {
      const lines = urls.map((blob) => `url = "${url}${new URL(blob).pathname}"\noutput = "/dev/null"\n`);
      await writeFile(list, lines.join(''));
      const before = await processorTime(pid);
      const { wall } = await measure(['curl', ...options.split(' '), '--cacert', authority, '-K', list]);
      const server = (await processorTime(pid)) - before;
      const per = (seconds: number): number => seconds / (bytes / 1e9);
      // The first run of each warms the page cache.
      if (run > 0) costs.get(name)?.push({ wall: per(wall), server: per(server) });
    }
  }
  const own = costs.get('mirror') ?? [];
  const describe = async (name: string): Promise<string> => {
    const figure = (of: (cost: Cost) => number): string => median((costs.get(name) ?? []).map(of)).toFixed(2);
    const status = await readFile(`/proc/${servers[name]?.pid ?? 0}/status`, 'utf8');
    const peak = ((Number(/VmHWM:\s+(\d+)/.exec(status)?.[1]) * 1024) / 1e6).toFixed(0);
    return `${figure(({ wall }) => wall)} s, ${figure(({ server }) => server)} CPU s for each GB, ${peak} MB`;
  };
  const peer = 'docker-registry';
  const ratio = (of: (cost: Cost) => number): string =>
    median(own.map((mine, run) => of(mine) / of(costs.get(peer)?.[run] ?? mine))).toFixed(2);
  addRow({
    job: 'serve from the mirror of a node',
    own: await describe('mirror'),
    peer: `${peer} (${await describe(peer)})`,
    wall: ratio(({ wall }) => wall),
    cpu: ratio(({ server }) => server),
  });
}

/** Returns the processor time of a process in seconds. */
async function processorTime(pid: number): Promise<number> {
  const [, fields = ''] = (await readFile(`/proc/${pid}/stat`, 'utf8')).split(') ');
  const [user, system] = fields.split(' ').slice(11, 13).map(Number);
  return ((user ?? 0) + (system ?? 0)) / 100;
}
