import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { truncate, writeFile } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { buffer, text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { openListener, type ConnectionLimits, type Listener } from '../../../lib/content/http/listener.ts';
import type { PluginError } from '../../../lib/errors.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

describe('openListener', () => {
  let listener: Listener;
  let context: TestContext;
  let sockets: Socket[];
  let running: string[];
  let release: () => void;

  beforeEach(() => {
    context = makeContext();
    sockets = [];
    running = [];
  });
  afterEach(async () => {
    for (const socket of sockets) socket.destroy();
    await listener.close();
  });
  /** Listens, and responds with the path of each request. The response to `/wait` waits until it is released. */
  const open = async (limits: ConnectionLimits = {}): Promise<void> => {
    const released = new Promise<void>((resolve) => (release = resolve));
    listener = await openListener(
      { host: '127.0.0.1', port: 0, limits },
      async ({ url = '' }, response) => {
        running.push(url);
        if (url === '/wait') await released;
        await new Promise<void>((resolve) => response.end(url, resolve));
      },
      context,
    );
  };
  const dial = async (localAddress = '127.0.0.1'): Promise<Socket> => {
    const socket = connect({ port: listener.port, host: '127.0.0.1', localAddress }).on('error', () => undefined);
    sockets.push(socket);
    await once(socket, 'connect');
    return socket;
  };
  const isServed = async (socket: Socket): Promise<boolean> => {
    socket.write(get('/'));
    return Promise.race([once(socket, 'data').then(() => true), once(socket, 'close').then(() => false)]);
  };

  it('names the address and the port that it cannot listen at, an IPv6 address in brackets', async () => {
    await open();
    const failAt = async (host: string, port: number): Promise<PluginError> =>
      failureOf(openListener({ host, port }, () => Promise.resolve(), context));
    const taken = await failAt('127.0.0.1', listener.port);
    expect([taken.code, taken.message.split(': ', 1)]).to.deep.equal([
      'busy',
      [`cannot listen at 127.0.0.1:${listener.port}`],
    ]);
    // No machine has this address.
    expect((await failAt('2001:db8::1', 8080)).message).to.match(/^cannot listen at \[2001:db8::1\]:8080: /);
  });

  it('refuses connections beyond the limits, those of one address first, while others continue', async () => {
    await open({ connections: 3, connectionsPerAddress: 2 });
    const [first, second] = [await dial(), await dial()];
    expect([await isServed(first), await isServed(second)]).to.deep.equal([true, true]);
    expect(await isServed(await dial())).to.equal(false);
    const other = await dial('127.0.0.2');
    expect(await isServed(other)).to.equal(true);
    expect([await isServed(first), await isServed(second), await isServed(other)]).to.deep.equal([true, true, true]);
    expect(context.lines.filter((line) => line.includes('refused'))).to.have.length(1);
    for (const socket of [first, second]) socket.write(get('/wait'));
    await until(() => running.filter((path) => path === '/wait').length === 2);
    expect(await isServed(await dial('127.0.0.3'))).to.equal(false);
    release();
    first.destroy();
    await until(async () => isServed(await dial('127.0.0.3')));
  });

  it('closes an idle connection of the address with the most, if another address has no place', async () => {
    await open({ connections: 6, connectionsPerAddress: 6 });
    const busy = await dial();
    busy.write(get('/wait'));
    await until(() => running.length === 1);
    const idle = [await dial(), await dial(), await dial(), await dial('127.0.0.2'), await dial('127.0.0.2')];
    const closed = Promise.all(idle.slice(0, 2).map((socket) => once(socket, 'close')));
    for (let count = 0; count < 2; count += 1) expect(await isServed(await dial('127.0.0.3'))).to.equal(true);
    await closed;
    // Every address has two now.
    expect(await isServed(await dial('127.0.0.4'))).to.equal(true);
    expect(await isServed(await dial('127.0.0.3'))).to.equal(false);
    const response = once(busy, 'data');
    release();
    expect(String(await response)).to.contain('/wait');
  });

  it('keeps connections for some addresses, and makes room for them', async () => {
    const isFor = (address: string): boolean => address === '127.0.0.9';
    await open({ connections: 3, connectionsPerAddress: 3, reserved: { connections: 1, isFor } });
    expect([await isServed(await dial()), await isServed(await dial('127.0.0.2'))]).to.deep.equal([true, true]);
    expect(await isServed(await dial('127.0.0.3'))).to.equal(false);
    for (let count = 0; count < 3; count += 1) expect(await isServed(await dial('127.0.0.9'))).to.equal(true);
    expect(await isServed(await dial('127.0.0.3'))).to.equal(false);
  });

  it('closes connections whose requests do not arrive in time, and no others', async () => {
    await open({ headTime: 300 });
    const waiting = await dial();
    waiting.write(get('/wait'));
    const silent = await dial();
    const slow = await dial();
    slow.write('GET / HTTP/1.1\r\nHost: a\r\nX-A: ');
    const drip = setInterval(() => slow.write('a'), 50);
    const body = await dial();
    body.write('GET /wait HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n1');
    // Writing to a closed connection resets it. That is an end, too.
    const closed = [silent, slow, body].map(
      (socket) => new Promise((resolve) => socket.resume().once('close', resolve)),
    );
    await Promise.all(closed);
    clearInterval(drip);
    release();
    const [answer] = (await once(waiting, 'data')) as [Buffer];
    expect(answer.toString()).to.contain('200 OK');
  });

  it('answers requests of one connection one after the other, and closes it if there are too many', async () => {
    await open();
    const patient = await dial();
    patient.write(get('/wait') + get('/b') + get('/c').replace('Host', 'Connection: close\r\nHost'));
    await until(() => running.length === 1);
    const greedy = await dial();
    greedy.write(get('/wait').repeat(50));
    expect(await text(greedy)).to.equal('');
    expect(running).to.deep.equal(['/wait']);
    release();
    const bodies = (await text(patient)).split(/HTTP\/1\.1 200 OK/).map((answer) => answer.split('\r\n\r\n')[1]);
    expect(bodies.slice(1)).to.deep.equal(['/wait', '/b', '/c']);
  });
});

describe('a server whose clients stop reading', () => {
  let folder: string;
  let child: ChildProcess;
  const size = 2 ** 30;
  const sockets: Socket[] = [];

  before(async () => {
    folder = await makeFolder();
    const path = join(folder, 'content');
    await writeFile(path, '');
    await truncate(path, size);
    const program = fileURLToPath(new URL('../../support/servingChild.ts', import.meta.url));
    child = fork(program, [path, String(size)]);
  });
  after(async () => {
    for (const socket of sockets) socket.destroy();
    child.kill();
    await removeFolder(folder);
  });

  it('does not take more memory with each of 360, and serves another meanwhile', async () => {
    const [port] = (await once(child, 'message')) as [number];
    const measure = async (): Promise<number> => {
      child.send('memory');
      return ((await once(child, 'message')) as [number])[0];
    };
    const before = await measure();
    for (let count = 0; count < 360; count += 1) {
      const localAddress = `127.0.0.${2 + (count % 4)}`;
      const socket = connect({ port, host: '127.0.0.1', localAddress }).on('error', () => undefined);
      socket.write(get('/file'));
      sockets.push(socket);
    }
    // The received data shows that each response has begun. Then the client stops reading.
    await Promise.all(sockets.map((socket) => once(socket, 'data').then(() => socket.pause())));
    const answer = await fetch(`http://127.0.0.1:${port}/file`, { headers: { range: 'bytes=0-99999999' } });
    expect((await buffer(answer.body as never)).length).to.equal(100_000_000);
    const grown = (await measure()) - before;
    expect(grown, 'bytes').to.be.below(256 * 2 ** 20);
  });
});
