import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { appendFile, mkdir, readFile, rm } from 'node:fs/promises';
import { createServer, request as forward, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { createServer as createSecureServer } from 'node:https';
import {
  createServer as createSocketServer,
  type AddressInfo,
  type Server as SocketServer,
  type Socket,
} from 'node:net';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { startDockerRegistry, type DockerRegistry } from '../../support/dockerRegistry.ts';
import { run } from '../../support/peers.ts';
import { localPrograms } from '../../support/program/localPrograms.ts';
import type { Fixture } from './mirrorRegistry.ts';
import type { Postgres } from './postgresServer.ts';
import { migratePostgres, migrateSqlite } from './standInSchema.ts';

/** The response of Quay to `/health/instance`. */
export interface Health {
  readonly status: number;
  readonly services: Readonly<Record<string, boolean>>;
}

const services = { auth: true, database: true, disk_space: true, registry_gunicorn: true, service_key: true };

/** A healthy registry. */
export const healthy: Health = { status: 200, services };

/**
 * A host under a fixture, for programs that replace podman and systemctl. It runs the units: the port is from the pod’s
 * `--publish`, the certificates from the mounted configuration of Quay, and the image must be loaded. A docker-registry
 * runs behind the front. Like systemd, it reads units only after a reload.
 */
export class MirrorRegistryHost {
  readonly fixture: Fixture;
  readonly port: number;
  /** What `podman info` says, as podman 5.4.2 with its defaults. */
  podmanInfo: object = {
    host: { cgroupVersion: 'v2', databaseBackend: 'sqlite', networkBackend: 'netavark' },
    version: { Version: '5.4.2' },
  };
  /** The images in podman: IDs by name. */
  readonly images = new Map<string, string>();
  /** The IDs of pulled images, which podman keeps if they lose their names. */
  readonly #ids = new Set<string>();
  /** The IDs of the images of containers that never ran, by their names. */
  readonly #idle = new Map<string, string>();
  /** All calls of podman and systemctl. */
  readonly calls: string[] = [];
  /** The running image of Quay. */
  running: string | undefined;
  /** The secrets in podman: values by name. */
  readonly secrets = new Map<string, string>();
  /** Other objects in podman, by name. */
  readonly pods = new Set(['quay-pod']);
  readonly containers = new Set(['quay-app', 'quay-redis']);
  readonly volumes = new Set<string>();
  /** The enabled units that a change may disable. */
  readonly enabled = new Set(['quay-postgres.service']);
  /** Returns whether a call fails. */
  fails: (call: string) => boolean = () => false;
  /** What a call that fails prints. */
  failure = 'the power failed';
  /** Changes the output of pg_dump. */
  dumpOf: (text: string) => string = (text) => text;
  /** The number of commands after which the next one fails. */
  failsAfter = Infinity;
  /** The architecture by its name in podman. */
  architecture = 'amd64';
  /** Returns the health of an image. */
  healthOf: (image: string) => Health = () => healthy;
  /** The database of releases before 2.0. */
  postgres: Postgres | undefined;
  /** A row that Quay writes into its SQLite database when it ends, as its workers may; undefined for none. */
  lastRow: string | undefined;
  /** Quay runs in a container that a person started: its unit does not stop it, and replaces it when it starts. */
  isForeign = false;
  /** The image that Quay runs, if it is another one than that of its unit. */
  fixedImage: string | undefined;
  /** Makes every `systemctl restart` fail. */
  isBroken = false;
  readonly #database: string;
  readonly #units = new Map<string, string>();
  readonly #sockets = new Set<Socket>();
  #installed: string | undefined;
  #control: SocketServer | undefined;
  #front: Server | undefined;
  #backend: Promise<DockerRegistry> | undefined;

  constructor(fixture: Fixture, port: number, database: string) {
    this.fixture = fixture;
    this.port = port;
    this.#database = join(fixture.root, database, 'quay_sqlite.db');
  }

  /**
   * Starts the registry as it is installed, and writes `podman` and `systemctl` into the folder `programs` of the
   * fixture.
   */
  async start(): Promise<void> {
    this.#control = createSocketServer((socket) => {
      let received = '';
      socket.setEncoding('utf8').on('data', (chunk: string) => {
        received += chunk;
        const [count = '', name = '', ...args] = received.split('\0').slice(0, -1);
        if (args.length < Number(count)) return;
        void this.#answer(name, args).then(({ code, text }) => socket.end(`${code}\n${text}\n`));
      });
      socket.on('error', () => socket.destroy());
    }).listen(0, '127.0.0.1');
    await once(this.#control, 'listening');
    const { port } = this.#control.address() as AddressInfo;
    for (const name of ['podman', 'systemctl']) {
      // For programs in other processes.
      const script = `#!/bin/bash
if [ "$2" = import ]; then set -- "$@" "$(sha256sum | cut -d ' ' -f 1)"; fi
if [ "$2" = --interactive ]; then set -- "$@" "$(cat)"; fi
exec 3<>/dev/tcp/127.0.0.1/${port}
printf '%s\\0' "$#" ${name} "$@" >&3
IFS= read -r code <&3
IFS= read -r -d '' text <&3
if [ "$code" = 0 ]; then printf '%s' "$text"; else printf '%s' "$text" >&2; exit "$code"; fi
`;
      await this.fixture.write(`/programs/${name}`, script, 0o755);
      localPrograms.set(join(this.fixture.root, 'programs', name), (args, input) =>
        this.#answer(name, [...args, ...wordOfInput(args, input)]),
      );
    }
    await this.#run('systemctl', ['daemon-reload']);
    for (const unit of ['quay-app', 'quay-redis', 'quay-pod']) {
      const image = this.#wordsOf(unit).find((word) => /\/(?:quay-rhel8|redis-6|pause):/.test(word));
      if (image !== undefined) this.images.set(image, `old ${unit}`);
    }
    await this.#run('systemctl', ['restart', 'quay-app.service']);
  }

  /** Stops everything. */
  async stop(): Promise<void> {
    for (const name of ['podman', 'systemctl']) localPrograms.delete(join(this.fixture.root, 'programs', name));
    await this.#stopFront();
    await this.postgres?.remove();
    this.#control?.close();
    await (await this.#backend)?.stop();
  }

  /** Runs a command, and returns its exit code and output. */
  async #answer(name: string, args: readonly string[]): Promise<{ code: number; text: string }> {
    this.calls.push([name, ...args].join(' '));
    const { code, text } = await this.#run(name, args).catch((error: unknown) => ({ code: 125, text: String(error) }));
    return { code, text: text.trimEnd() };
  }

  async #run(name: string, args: readonly string[]): Promise<{ code: number; text: string }> {
    const done = { code: 0, text: '' };
    const fail = (text: string) => ({ code: 125, text });
    const absent = { code: 1, text: '' };
    const words = args.filter((word) => word !== '--user');
    const last = words.at(-1) ?? '';
    this.failsAfter -= 1;
    if (this.failsAfter === -1 || this.fails([name, ...args].join(' '))) return fail(this.failure);
    const drop = (held: { delete(name: string): boolean }): { code: number; text: string } => {
      for (const word of words) held.delete(word);
      return done;
    };
    if (name === 'systemctl') {
      if (words[0] === 'daemon-reload') await this.#readUnits();
      const unit = join(this.fixture.root, this.fixture.unitFolder, last);
      if (/^(?:enable|disable)$/.test(words[0] ?? '') && !existsSync(unit)) {
        return fail(`Unit file ${last} does not exist.`);
      }
      if (last === 'quay-postgres.service') {
        if (words[0] !== 'enable') await this.postgres?.stop();
        if (words[0] === 'restart') await this.postgres?.start();
        if (words[0] === 'enable') this.enabled.add(last);
        if (words[0] === 'disable') this.enabled.delete(last);
        return done;
      }
      // Its containers end with the pod.
      if (words[0] === 'restart' && last === 'quay-pod.service') await this.postgres?.stop();
      const isStop = words[0] === 'stop' || (words[0] === 'disable' && last === 'quay-app.service');
      if (isStop && !this.isForeign) await this.#stopFront();
      if (words[0] === 'show') return { code: 0, text: this.#front && !this.isForeign ? 'active\n' : 'inactive\n' };
      const isStarted = this.#front && !this.isForeign;
      if (words[0] === 'start' && last === 'quay-app.service' && !isStarted) await this.#startFront();
      if (words[0] !== 'restart') return done;
      if (this.isBroken) return fail('Job for the unit failed.');
      if (last === 'quay-app.service') await this.#startFront();
      return done;
    }
    switch (words.slice(0, 2).join(' ')) {
      case 'image exists':
        return this.#idOf(last) === undefined ? absent : done;
      case 'tag ' + (words[1] ?? ''): {
        const id = this.#idOf(words[1] ?? '');
        if (id === undefined) return fail(`${words[1] ?? ''}: image not known`);
        this.#ids.add(this.images.get(last) ?? id);
        this.images.set(last, id);
        return done;
      }
      case 'exec quay-postgres': {
        const [tool = '', ...options] = words.slice(2);
        if (!this.postgres) return fail('no such container');
        const { code, stdout, stderr } = await this.postgres.runClient(tool, options);
        return { code, text: code !== 0 ? stderr : tool === 'pg_dump' ? this.dumpOf(stdout) : stdout };
      }
      case 'run --rm':
        await this.#runQuayOnce(words);
        return done;
      case 'exec --interactive': {
        const [tool = '', ...options] = words.slice(3, -1);
        if (!this.postgres) return fail('no such container');
        const { code, stderr } = await this.postgres.runClient(tool, options, last);
        return { code, text: stderr };
      }
      case 'volume create':
        this.volumes.add(last);
        await mkdir(this.#locateVolume(last), { recursive: true });
        return done;
      case 'volume inspect':
        return this.volumes.has(last) ? { code: 0, text: this.#locateVolume(last) } : fail('no such volume');
      case 'ps --quiet': {
        const isRunning = words.includes('name=^quay-app$') ? this.#front : this.postgres?.isRunning;
        return { code: 0, text: isRunning ? 'c0ffee\n' : '' };
      }
      case 'stop quay-app':
        await this.#stopFront();
        return done;
      case 'create --replace': {
        const id = this.#idOf(words.at(-2) ?? '');
        if (id === undefined) return fail('no such image');
        this.#idle.set(words[words.indexOf('--name') + 1] ?? '', id);
        return done;
      }
      case 'pod exists':
        return this.pods.has(last) ? done : absent;
      case 'container exists':
        return this.containers.has(last) ? done : absent;
      case 'volume exists':
        return this.volumes.has(last) ? done : absent;
      case 'pod rm':
        return drop(this.pods);
      case 'rm --force':
        drop(this.#idle);
        return drop(this.containers);
      case 'volume rm':
        await rm(join(this.#locateVolume(last), '..'), { recursive: true, force: true });
        return drop(this.volumes);
      case 'secret rm':
        return drop(this.secrets);
      case 'secret inspect':
        return this.secrets.has(last) ? { code: 0, text: this.secrets.get(last) ?? '' } : fail('no such secret');
      case 'secret create':
        this.secrets.set(words[2] ?? '', await readFile(last, 'utf8'));
        return done;
      case 'untag ' + (words[1] ?? ''):
        this.images.delete(last);
        return done;
      case 'unshare cp':
      case 'unshare find':
      case 'unshare rm':
      case 'unshare sh': {
        const { code, stdout, stderr } = await run(words[1] ?? '', words.slice(2));
        return { code, text: code === 0 ? stdout : stderr };
      }
      case 'image import':
        // The digest of its input.
        this.images.set(words.at(-2) ?? '', last);
        return done;
      case 'info --format':
        if (last === 'json') return { code: 0, text: JSON.stringify(this.podmanInfo) };
        return last === '{{.Store.VolumePath}}'
          ? { code: 0, text: join(this.fixture.root, 'srv/volumes') }
          : { code: 0, text: `${this.architecture} ${this.fixture.root}\n` };
      case 'image inspect':
        return { code: 0, text: `${this.#idOf(last) ?? ''}\n` };
      case 'container inspect': {
        const image = last === 'quay-app' ? this.running : this.#wordsOf(last).at(-1);
        return { code: 0, text: `true ${this.images.get(image ?? '') ?? ''}\n` };
      }
      case 'pull --quiet': {
        const [host = '', ...path] = last.replace(/@.*/, '').split('/');
        const digest = last.split('@')[1] ?? '';
        const answer = await fetch(`http://${host}/v2/${path.join('/')}/manifests/${digest}`);
        if (!answer.ok) return fail(`${last}: ${answer.status}`);
        const { config } = (await answer.json()) as { config: { digest: string } };
        this.images.set(last, config.digest.replace('sha256:', ''));
        this.#ids.add(this.images.get(last) ?? '');
        return done;
      }
      default:
        return fail(`no such command: ${words.join(' ')}`);
    }
  }

  #idOf(name: string): string | undefined {
    const isHeld = this.#ids.has(name) || [...this.images.values()].includes(name);
    return this.images.get(name) ?? (isHeld ? name : undefined);
  }

  /** Returns the IDs of images that are kept for a rollback. */
  rollbackIds(): string[] {
    return [...this.#idle.values()];
  }

  /** Does the same as `podman image prune --all`. */
  pruneImages(): void {
    const running = ['quay-app', 'quay-redis', 'quay-pod'].flatMap((unit) => this.#wordsOf(unit));
    const used = new Set([...this.#idle.values(), ...running.map((word) => this.images.get(word))]);
    for (const id of new Set([...this.images.values(), ...this.#ids])) if (!used.has(id)) this.removeImage(id);
  }

  /** Does the same as `podman rmi --force`. */
  removeImage(name: string): void {
    const id = this.#idOf(name) ?? '';
    this.#ids.delete(id);
    for (const [each, found] of this.images) if (found === id) this.images.delete(each);
  }

  async #readUnits(): Promise<void> {
    for (const name of ['quay-app', 'quay-pod', 'quay-redis']) {
      const path = join(this.fixture.root, this.fixture.unitFolder, `${name}.service`);
      // The first installers created no pod, and an uninstalled registry has no units.
      this.#units.set(name, await readFile(path, 'utf8').catch(() => ''));
    }
  }

  #wordsOf(unit: string): string[] {
    const [, command = ''] = /^ExecStart=((?:.*\\\n)*.*)/m.exec(this.#units.get(unit) ?? '') ?? [];
    return command.split(/[\s\\]+/);
  }

  async #startFront(): Promise<void> {
    await this.#stopFront();
    const words = this.#wordsOf('quay-app');
    const place = words.findLastIndex((word) => word.includes('/quay-rhel8:'));
    const image = this.fixedImage ?? words[place] ?? '';
    // For systemd the unit has started, but its program ends immediately. The first installers
    // named no command.
    if (!this.images.has(image) || (words[place + 1] ?? 'registry') !== 'registry') return;
    const mount = words.find((word) => word.includes(':/quay-registry/conf/stack'))?.split(':')[0] ?? '';
    const [cert, key] = await Promise.all(
      ['ssl.cert', 'ssl.key'].map((name) => readFile(join(this.fixture.root, mount, name)).catch(() => undefined)),
    );
    // Behind a proxy, Quay serves TLS if it has a key, else HTTP on another port.
    const configuration = await readFile(join(this.fixture.root, mount, 'config.yaml'), 'utf8');
    const isPlain = configuration.includes('EXTERNAL_TLS_TERMINATION: true') && key === undefined;
    if (!isPlain && (cert === undefined || key === undefined)) return;
    const published = /--publish (?:[\d.]+:)?(\d+):(\d+)/.exec(this.#wordsOf('quay-pod').join(' ')) ?? [];
    const port = published[2] === (isPlain ? '8080' : '8443') ? published[1] : undefined;
    // Its unit requires that of PostgreSQL.
    if (/^Requires=.*quay-postgres/m.test(this.#units.get('quay-app') ?? '')) await this.postgres?.start();
    if (!(await this.#openDatabase(image, configuration, words))) return;
    this.running = image;
    const handle = (request: IncomingMessage, response: ServerResponse): void => {
      if (request.url === '/health/instance') {
        const { status, services: found } = this.healthOf(image);
        response.writeHead(status, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ data: { services: found }, status_code: status }));
        return;
      }
      if (request.url === '/v2/') {
        response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
        return;
      }
      void this.#forward(request, response);
    };
    const front = isPlain ? createServer(handle) : createSecureServer({ cert: cert ?? '', key: key ?? '' }, handle);
    front.on('connection', (socket: Socket) => {
      this.#sockets.add(socket);
      socket.on('close', () => this.#sockets.delete(socket));
    });
    front.listen(Number(port ?? this.port), '127.0.0.1');
    await once(front, 'listening');
    this.#front = front;
  }

  /** Migrates the database, as Quay does when it starts. Returns whether Quay can use it. */
  async #openDatabase(image: string, configuration: string, words: readonly string[]): Promise<boolean> {
    this.#installed ??= image;
    const isNew = image !== this.#installed && this.running !== image;
    if (configuration.includes('postgresql://')) {
      if (!this.postgres?.isRunning) return false;
      const isGood = await migratePostgres(this.postgres, image).then(
        () => true,
        () => false,
      );
      if (isGood && isNew)
        await this.postgres.query(`INSERT INTO migration VALUES ('${image}'); CREATE TABLE IF NOT EXISTS newer ()`);
      return isGood;
    }
    if (this.postgres) {
      const [storage = ''] = words.find((word) => word.includes(':/sqlite'))?.split(':') ?? [];
      const path = join(this.#locateStorage(storage), 'quay_sqlite.db');
      // A new database would be an empty registry.
      if (!existsSync(path)) return false;
      migrateSqlite(path, image);
    }
    if (isNew) {
      const storage = words.find((word) => word.includes(':/sqlite'))?.split(':')[0];
      const path = this.postgres ? join(this.#locateStorage(storage ?? ''), 'quay_sqlite.db') : this.#database;
      using database = new DatabaseSync(path);
      database.prepare('INSERT INTO migration VALUES (?)').run(image);
      if (!this.postgres) await appendFile(`${path}-wal`, 'more\n');
    }
    return true;
  }

  /** Runs `migrate head` of Quay in a container with the given volumes. */
  async #runQuayOnce(words: readonly string[]): Promise<void> {
    const mounts = new Map(
      words
        .filter((word) => word.startsWith('--volume='))
        .map((word) => word.slice('--volume='.length).split(':'))
        .map(([source = '', target = '']) => [target, this.#locateStorage(source)]),
    );
    const image = words.at(-3) ?? '';
    if (!this.images.has(image)) throw new Error(`${image}: image not known`);
    const path = join(mounts.get('/quay-registry/conf/stack') ?? '', 'config.yaml');
    const configuration = await readFile(path, 'utf8');
    if (!configuration.includes('postgresql://')) {
      migrateSqlite(join(mounts.get('/sqlite') ?? '', 'quay_sqlite.db'), image);
    } else if (this.postgres && words.includes('--pod=quay-pod')) await migratePostgres(this.postgres, image);
    else throw new Error('connection refused');
  }

  #locateVolume(name: string): string {
    return join(this.fixture.root, 'srv/volumes', name, '_data');
  }

  #locateStorage(source: string): string {
    return source.startsWith('/') ? join(this.fixture.root, source) : this.#locateVolume(source);
  }

  /** Sends a request to the docker-registry, which starts with the first one. */
  async #forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#backend ??= startDockerRegistry();
    const { method = 'GET', url = '/', headers } = request;
    const target = new URL(url, (await this.#backend).url);
    const sent = forward(target, { method, headers: { ...headers, 'x-forwarded-proto': 'https' } }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(response);
    });
    sent.on('error', () => response.destroy());
    request.pipe(sent);
  }

  async #stopFront(): Promise<void> {
    const front = this.#front;
    this.#front = undefined;
    this.isForeign = false;
    if (!front) return;
    const closed = once(front, 'close');
    front.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
    if (this.lastRow === undefined) return;
    using database = new DatabaseSync(this.#database);
    database.prepare('INSERT INTO migration VALUES (?)').run(this.lastRow);
  }
}

/** Returns the last word of a command that reads its standard input: a digest of an image, or else the input. */
function wordOfInput([, option]: readonly string[], input: Buffer): string[] {
  if (option === '--interactive') return [input.toString()];
  return option === 'import' ? [createHash('sha256').update(input).digest('hex')] : [];
}
