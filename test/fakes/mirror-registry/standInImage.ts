import { createHash } from 'node:crypto';
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { tmpdir } from 'node:os';
import { gunzipSync } from 'node:zlib';
import { makeBlob, type TestLayer } from '../../support/content/layers.ts';
import { runSuccessfully } from '../../support/peers.ts';

// A stand-in for Quay, as user 1001: serves the requests of our program and of clients, with the
// mounted certificate. It is healthy only with the Redis of the pod and its password. It changes the
// database when it starts, and refuses a database that a newer version has changed. As a stand-in for
// Redis it checks the password of its secret, and as a stand-in for the pod’s own container it waits.
const program = `
const { createServer } = require('node:https');
const { connect, createServer: createPlain } = require('node:net');
const { existsSync, readFileSync } = require('node:fs');
process.on('SIGTERM', () => process.exit(0));
setInterval(() => {}, 1e9);
const [, , version, command] = process.argv;
const numbers = (text) => (text.match(/\\d+/g) ?? []).map(Number);
const isNewer = (one, other) => {
  const [left, right] = [numbers(one), numbers(other)];
  const place = left.findIndex((number, index) => number !== right[index]);
  return place >= 0 && left[place] > right[place];
};
function migrate() {
  const { DatabaseSync } = require('node:sqlite');
  const database = new DatabaseSync('/sqlite/quay_sqlite.db');
  database.exec('CREATE TABLE IF NOT EXISTS migration (image TEXT)');
  const newer = database.prepare('SELECT image FROM migration').all().find(({ image }) => isNewer(image, version));
  if (newer) throw new Error("Can't locate revision identified by '" + newer.image + "'");
  database.prepare('INSERT INTO migration VALUES (?)').run(version);
  database.close();
}
function askRedis(password) {
  return new Promise((resolve) => {
    const socket = connect(6379, 'localhost', () => socket.write('AUTH ' + password + '\\r\\n'));
    socket.on('data', (answer) => (socket.destroy(), resolve(String(answer).startsWith('+OK'))));
    socket.on('error', () => resolve(false));
  });
}
if (process.env.REDIS_PASSWORD !== undefined) {
  createPlain((socket) => {
    socket.on('error', () => socket.destroy());
    socket.on('data', (asked) => {
      const isGood = String(asked) === 'AUTH ' + process.env.REDIS_PASSWORD + '\\r\\n';
      socket.end(isGood ? '+OK\\r\\n' : '-WRONGPASS invalid password\\r\\n');
    });
  }).listen(6379);
}
if (command === 'registry') {
  if (process.getuid() !== 1001) throw new Error('not the user of Quay');
  migrate();
  const stack = '/quay-registry/conf/stack/';
  const password = /BUILDLOGS_REDIS:[^]*?password: (\\S+)/.exec(readFileSync(stack + 'config.yaml', 'utf8'))[1];
  const tls = { cert: readFileSync(stack + 'ssl.cert'), key: readFileSync(stack + 'ssl.key') };
  createServer(tls, async (request, response) => {
    const services = { auth: true, database: true, registry_gunicorn: true, redis: await askRedis(password) };
    const isIll = existsSync(stack + 'ill-' + version) || !services.redis;
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
    // A new volume gets the owner of the folder where it is mounted first.
    for (const name of ['sqlite', 'datastorage']) await mkdir(join(folder, 'volumes', name), { recursive: true });
    const owned = ['-C', join(folder, 'volumes'), '--owner=1001', '--group=0', '--mode=0775', '-rf', tar];
    await runSuccessfully('tar', [...owned, './sqlite', './datastorage']);
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
