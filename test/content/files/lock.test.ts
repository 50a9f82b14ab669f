import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { mkdir, readdir, readFile, symlink, utimes, writeFile } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { checkLock, takeLock } from '../../../lib/content/files/lock.ts';
import { ForgetfulDisk } from '../../fakes/files/forgetfulDisk.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('takeLock', () => {
  let folder: string;
  let path: string;
  beforeEach(async () => {
    folder = await makeFolder();
    path = join(folder, 'upgrade.tar.lock');
  });
  afterEach(() => removeFolder(folder));

  const leave = (content: object | string): Promise<void> =>
    writeFile(path, typeof content === 'string' ? content : JSON.stringify(content));
  const mine = async (): Promise<{ host: string; kernel: string; pid: number; started: string }> => {
    const lock = await takeLock(path, 'x');
    const content = JSON.parse(await readFile(path, 'utf8')) as Awaited<ReturnType<typeof mine>>;
    await lock[Symbol.asyncDispose]();
    return content;
  };
  const expectTaken = async (): Promise<void> => {
    const lock = await takeLock(path, 'x');
    expect(JSON.parse(await readFile(path, 'utf8'))).to.include({ pid: process.pid });
    await lock[Symbol.asyncDispose]();
    expect(await readdir(folder)).to.deep.equal([]);
  };

  it('takes over a lock that no process can have written', async () => {
    const own = await mine();
    for (const pid of [0, -1, '1', null, 1.5]) {
      await leave({ ...own, pid, started: '' });
      await expectTaken();
    }
    for (const content of ['null', '[]', '7', '"x"']) {
      await leave(content);
      await expectTaken();
    }
  });

  it('refuses a second taker until the first lets go', async () => {
    const lock = await takeLock(path, 'the bundle');
    const error = await failureOf(takeLock(path, 'the bundle'), 'busy');
    expect(error.message).to.contain('the bundle');
    expect(error.hint).to.contain(path);
    await lock[Symbol.asyncDispose]();
    await expectTaken();
  });

  it('gives it to one of many who want it at the same time, stale or not', async () => {
    for (const before of [undefined, { ...(await mine()), started: '1' }]) {
      if (before) await leave(before);
      const all = await Promise.allSettled(Array.from({ length: 10 }, () => takeLock(path, 'x')));
      const taken = all.filter((each) => each.status === 'fulfilled');
      expect(taken).to.have.length(1);
      for (const { value } of taken) await value[Symbol.asyncDispose]();
    }
  });

  it('leaves it to a process that took over the same lock a moment before', async function () {
    if (process.platform !== 'linux') this.skip();
    const own = await mine();
    await leave({ ...own, started: '1' });
    const theirs = JSON.stringify({ ...own, host: 'another' });
    using _disk = await ForgetfulDisk.open(folder, (to) => {
      if (to !== basename(path)) writeFileSync(path, theirs);
    });
    await failureOf(takeLock(path, 'x'), 'busy');
    expect(await readFile(path, 'utf8')).to.equal(theirs);
  });

  it('takes it over from a process that was killed, and not before', async () => {
    const code = `import { checkLock, takeLock } from ${JSON.stringify(new URL('../../../lib/content/files/lock.ts', import.meta.url).href)};
      await takeLock(${JSON.stringify(path)}, 'x'); console.log('taken'); setInterval(() => {}, 1000);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    await once(child.stdout, 'data');
    await failureOf(takeLock(path, 'x'), 'busy');
    child.kill('SIGKILL');
    await once(child, 'exit');
    await expectTaken();
  });

  it('takes it over from a process that has ended, of which its parent takes no notice', async function () {
    if (process.platform !== 'linux') this.skip();
    const parent = spawn('sh', ['-c', 'sleep 0 & echo $!; exec sleep 60']);
    const [pid] = (await once(parent.stdout, 'data')) as [Buffer];
    const read = () =>
      readFile(`/proc/${Number(pid)}/stat`, 'utf8').then((text) => text.split(') ')[1]?.split(' ') ?? []);
    while ((await read())[0] !== 'Z') await sleep(10);
    await leave({ ...(await mine()), pid: Number(pid), started: (await read())[19] });
    await expectTaken();
    parent.kill();
    await once(parent, 'exit');
  });

  it('takes it over when the number of the process has gone to another', async () => {
    await leave({ ...(await mine()), started: '12345' });
    await expectTaken();
  });

  it('keeps the lock of another machine, whose processes are unknown', async () => {
    await leave({ ...(await mine()), host: `not-${hostname()}`, kernel: 'another', pid: 999_999_999 });
    await failureOf(takeLock(path, 'x'), 'busy');
  });

  it('sees the processes of a container of another name if it sees all of the machine, as those of successive pods do', async function () {
    const { kernel, ...process } = await mine();
    if (kernel === '') this.skip();
    const elsewhere = { ...process, kernel, host: `not-${hostname()}` };
    await leave(elsewhere);
    await failureOf(takeLock(path, 'x'), 'busy');
    await leave({ ...elsewhere, started: '12345' });
    await expectTaken();
  });

  it('leaves it to a process of the same number in another container of the same name', async () => {
    const { host, kernel, ...process } = await mine();
    expect(host).to.contain(hostname());
    const inAnother = (text: string): string => text.replace(/pid:\[\d+\]$/, 'pid:[1]');
    await leave({ ...process, host: inAnother(host), kernel: inAnother(kernel) });
    if (host.endsWith(']')) await failureOf(takeLock(path, 'x'), 'busy');
  });

  it('is looked at without being taken', async () => {
    await checkLock(path, 'x');
    const lock = await takeLock(path, 'x');
    expect((await failureOf(checkLock(path, 'the bundle'), 'busy')).message).to.contain('the bundle');
    await lock[Symbol.asyncDispose]();
    await leave({ ...(await mine()), started: '1' });
    await checkLock(path, 'x');
    expect(await readdir(folder)).to.have.length(1);
  });

  it('leaves a recent empty lock to the process that may still write it', async () => {
    for (const seconds of [-60, 60]) {
      await leave('');
      await failureOf(takeLock(path, 'x'), 'busy');
      const other = new Date(Date.now() + seconds * 1000);
      await utimes(path, other, other);
      await expectTaken();
    }
  });

  it('takes over a file that is not a lock', async () => {
    for (const content of ['rubbish', 'null', '{"host":', '[]'.repeat(100)]) {
      await leave(content);
      await expectTaken();
    }
  });

  it('takes the place of a link that leads nowhere', async () => {
    await symlink(join(folder, 'nowhere', 'lock'), path);
    await expectTaken();
  });

  it('reports a lock that cannot be taken, and stops trying', async () => {
    await failureOf(takeLock(join(folder, 'nowhere', 'lock'), 'x'), 'not-writable');
    await mkdir(path);
    const error = await failureOf(takeLock(path, 'x'), 'not-writable');
    expect(error.message).to.contain(path);
  });

  it('reports a stale lock that cannot be removed', async function () {
    await leave({ ...(await mine()), started: '12345' });
    try {
      execFileSync('mount', ['--bind', folder, folder], { stdio: 'pipe' });
    } catch (error) {
      process.emitWarning(`SKIPPED, nothing can be mounted here: ${String(error)}`);
      this.skip();
    }
    try {
      execFileSync('mount', ['-o', 'remount,bind,ro', folder], { stdio: 'pipe' });
      await failureOf(takeLock(path, 'x'), 'not-writable');
    } finally {
      execFileSync('umount', ['--lazy', folder]);
    }
  });
});
