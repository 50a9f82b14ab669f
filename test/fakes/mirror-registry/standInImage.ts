import { createHash } from 'node:crypto';
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { tmpdir } from 'node:os';
import { gunzipSync } from 'node:zlib';
import { makeBlob, type TestLayer } from '../../support/content/layers.ts';
import { runSuccessfully } from '../../support/peers.ts';

// A stand-in for Quay: serves the requests of our program and of clients, with the mounted
// certificate, and changes the database when it starts. As a stand-in for Redis and for the pod’s
// own container it only waits.
const program = `
const { createServer } = require('node:https');
const { existsSync, readFileSync } = require('node:fs');
process.on('SIGTERM', () => process.exit(0));
setInterval(() => {}, 1e9);
const [, , version, command] = process.argv;
if (command === 'registry') {
  const { DatabaseSync } = require('node:sqlite');
  const database = new DatabaseSync('/sqlite/quay_sqlite.db');
  database.exec('CREATE TABLE IF NOT EXISTS migration (image TEXT)');
  database.prepare('INSERT INTO migration VALUES (?)').run(version);
  database.close();
  const stack = '/quay-registry/conf/stack/';
  const tls = { cert: readFileSync(stack + 'ssl.cert'), key: readFileSync(stack + 'ssl.key') };
  const services = { auth: true, database: true, registry_gunicorn: true };
  createServer(tls, (request, response) => {
    const isIll = existsSync(stack + 'ill-' + version);
    response.writeHead(request.url === '/health/instance' && isIll ? 503 : 200);
    response.end(request.url === '/v2/' ? '{}' : JSON.stringify({ data: { services } }));
  }).listen(8443);
}
`;

/**
 * Creates the only layer of an image that stands in for all images of a mirror registry: this Node.js, its libraries,
 * and a program.
 */
export async function makeStandInLayer(): Promise<TestLayer> {
  const folder = await mkdtemp(join(tmpdir(), 'stand-in-'));
  try {
    const libraries = await runSuccessfully('ldd', [process.execPath]);
    const files = [...libraries.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => [path, path] as const);
    for (const [from, to] of [...files, [process.execPath, '/bin/node'] as const]) {
      await mkdir(dirname(join(folder, 'root', to)), { recursive: true });
      await copyFile(from, join(folder, 'root', to));
      await chmod(join(folder, 'root', to), 0o755);
    }
    await writeFile(join(folder, 'root/main.js'), program);
    const tar = join(folder, 'layer.tar');
    await runSuccessfully('tar', ['-C', join(folder, 'root'), '--owner=0', '--group=0', '-cf', tar, '.']);
    await runSuccessfully('gzip', ['-1', tar]);
    const bytes = await readFile(`${tar}.gz`);
    const diffId = `sha256:${createHash('sha256').update(gunzipSync(bytes)).digest('hex')}` as const;
    return { ...makeBlob(bytes), diffId };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Returns the entry point of its containers. Quay is not healthy if `ill-<version>` exists beside its configuration.
 */
export function standInEntrypoint(version: string): string[] {
  return ['/bin/node', '/main.js', version];
}
