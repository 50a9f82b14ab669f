import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { readFile, writeFile, copyFile, mkdir, readdir, rm, stat, symlink, truncate, utimes } from 'node:fs/promises';
import { join, basename } from 'node:path';
import { expect } from 'chai';
import { takeLock } from '../../../lib/content/files/lock.ts';
import { mountLock } from '../../../lib/node/media/privateMounts.ts';
import { endFormerAgent, AgentMedia } from '../../../lib/update/agent/agentMedia.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { Drives, requireLoopDevices, type Drive } from '../../support/loopDevice.ts';
import { runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

describe('AgentMedia', () => {
  let bundle: TestBundle;
  let folder: string;
  let media: AgentMedia;
  let context: TestContext;

  before(async () => {
    bundle = await makeBundle();
  });
  after(() => bundle.remove());
  beforeEach(async () => {
    context = makeContext();
    folder = await makeFolder();
    await mkdir(join(folder, 'drives'));
    // An agent without the right to mount searches the folders.
    await writeFile(join(folder, 'no-folder'), '');
    const host = { root: '/', environment: { PATH: folder } };
    const options = { host, place: join(folder, 'no-folder/media'), devices: [], folders: [join(folder, 'drives')] };
    media = await AgentMedia.open(options, context);
  });
  afterEach(async () => {
    await media.close();
    await removeFolder(folder);
  });

  it('does not begin while another process searches', async () => {
    const host = { root: '/', environment: {} };
    const place = join(folder, 'media');
    await using _lock = await takeLock(mountLock(host, place), place);
    await failureOf(AgentMedia.open({ host, place, devices: [], folders: [] }, context), 'busy');
  });

  it('finds inserted and removed bundles in a folder, if nothing can be mounted', async () => {
    expect(context.lines.join()).to.match(/^warn: media are not searched/);
    expect(await media.find()).to.deep.equal([]);
    const path = join(folder, 'drives/upgrade-4.12.4-x86_64.tar');
    await copyFile(bundle.path, path);
    for (let time = 0; time < 2; time += 1) {
      const [found, ...others] = await media.find();
      expect(found).to.include({ path, version: '4.12.4', arch: 'x86_64' });
      expect(others).to.deep.equal([]);
    }
    await rm(path);
    expect(await media.find()).to.deep.equal([]);
  });

  it('continues with the other folders if one has too many files', async () => {
    const folders = ['full', 'drives'].map((name) => join(folder, name));
    await mkdir(join(folder, 'full'));
    for (let count = 0; count < 65; count += 1) await writeFile(join(folder, `full/upgrade-${count}.tar`), '');
    const host = { root: '/', environment: { PATH: folder } };
    const both = await AgentMedia.open({ host, place: join(folder, 'no-folder/media'), devices: [], folders }, context);
    await copyFile(bundle.path, join(folder, 'drives/upgrade-a.tar'));
    expect(await both.find()).to.have.length(1);
    expect(context.lines).to.include(`warn: ${folder}/full has more than 64 bundles`);
  });

  it('reports a file that is not a bundle once, and reads it again when it changes', async () => {
    const path = join(folder, 'drives/upgrade-x.tar');
    await writeFile(path, 'not yet');
    for (let time = 0; time < 2; time += 1) expect(await media.find()).to.deep.equal([]);
    expect(context.lines.filter((line) => line.includes('upgrade-x.tar'))).to.have.length(1);
    await copyFile(bundle.path, path);
    expect(await media.find()).to.have.length(1);
    await rm(path);
  });

  it('looks at nothing but the file that is named', async () => {
    const named = join(folder, 'anywhere.tar');
    expect(await media.find(named)).to.deep.equal([]);
    await copyFile(bundle.path, named);
    await copyFile(bundle.path, join(folder, 'drives/upgrade-a.tar'));
    expect((await media.find(named)).map(({ path }) => path)).to.deep.equal([named]);
    await writeFile(named, 'no bundle');
    await media.find(named);
    expect(media.problems.join()).to.contain('anywhere.tar');
    await copyFile(bundle.path, named);
    const { size } = await stat(named);
    const then = new Date(0);
    await utimes(named, then, then);
    expect(await media.find(named)).to.have.length(1);
    await writeFile(named, Buffer.alloc(size));
    await utimes(named, then, then);
    // It is read again only if it has changed.
    expect(await media.find(named)).to.have.length(1);
    await utimes(named, then, new Date());
    expect(await media.find(named)).to.deep.equal([]);
    await copyFile(bundle.path, named);
    expect(await media.find(named)).to.have.length(1);
    await rm(named);
    expect(await media.find(named)).to.deep.equal([]);
    await writeFile(named, 'no bundle');
    await media.find(named);
    // A later record names no file.
    await media.find();
    expect(media.problems).to.deep.equal([]);
  });

  it('does not wait for a named device that hangs', async function () {
    const device = (await readdir('/sys/class/block')).map((name) => `/dev/${name}`).find((path) => existsSync(path));
    if (device === undefined) return this.skip();
    const answer = join(folder, 'answer');
    await runSuccessfully('mkfifo', [answer]);
    await writeFile(join(folder, 'dd'), `#!/bin/sh\nread -r _ <'${answer}'\n`, { mode: 0o755 });
    const host = { root: '/', environment: { PATH: folder } };
    const options = { host, place: join(folder, 'no-folder/media'), devices: [], folders: [], deviceTimeout: 100 };
    const hung = await AgentMedia.open(options, context);
    expect(await hung.find(device)).to.deep.equal([]);
    const problem = `${device} does not answer: it is skipped until it does`;
    expect(hung.problems).to.deep.equal([problem]);
    expect(await hung.find(device)).to.deep.equal([]);
    expect(context.lines.filter((line) => line === `warn: ${problem}`)).to.have.length(1);
    await writeFile(answer, '\n');
  });

  describe('on drives', () => {
    let ended: AsyncDisposableStack;
    let drives: Drives;
    let files: string;

    beforeEach(async function () {
      ended = new AsyncDisposableStack();
      await requireLoopDevices(this);
      drives = await Drives.open(folder);
      ended.defer(() => drives.close());
      files = join(folder, 'files');
      await mkdir(files);
    });
    afterEach(() => ended.disposeAsync());

    async function open(place = 'media'): Promise<AgentMedia> {
      const host = { root: '/', environment: { PATH: drives.path } };
      const agent = await AgentMedia.open({ host, place: join(folder, place), devices: [], folders: [] }, context);
      ended.defer(() => agent.close());
      return agent;
    }

    async function link(target: string, path: string): Promise<string> {
      await symlink(target, path);
      ended.defer(() => rm(path));
      return path;
    }

    /** Replaces a program of the host. */
    async function replace(program: string, script: string): Promise<void> {
      const path = join(drives.path.split(':')[0] ?? '', program);
      await writeFile(path, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    }

    const plugBundle = async (isRemovable = true): Promise<Drive> => {
      await copyFile(bundle.path, join(files, 'upgrade-4.12.4-x86_64.tar'));
      return drives.plug(await drives.makeExt4(files, '', 32), isRemovable);
    };
    const plugBroken = async (): Promise<Drive> => {
      await writeFile(join(files, 'upgrade-bad.tar'), 'no bundle');
      const drive = await drives.plug(await drives.makeExt4(files));
      await rm(join(files, 'upgrade-bad.tar'));
      return drive;
    };

    it('follows a named link in /dev to its device, if nothing can be mounted', async () => {
      const copy = join(folder, 'raw');
      await copyFile(bundle.path, copy);
      await truncate(copy, Math.ceil((await stat(copy)).size / 4096) * 4096);
      const { device } = await drives.plug(copy);
      const agent = await open('no-folder/media');
      const found = await agent.find(await link(device, '/dev/oc-disconnected-test-raw'));
      expect(found.map(({ version }) => version)).to.deep.equal(['4.12.4']);
    });

    it('finds a bundle in the file system of a named disk that is not removable', async () => {
      const empty = await drives.plug(await drives.makeExt4(files), false);
      const full = await plugBundle(false);
      const agent = await open();
      expect(await agent.find()).to.deep.equal([]);
      const [found, ...others] = await agent.find(full.device);
      expect(found).to.include({ device: full.device, version: '4.12.4', filesystem: 'ext4' });
      expect([others, agent.problems]).to.deep.equal([[], []]);
      expect(await agent.find(await link(full.device, '/dev/oc-disconnected-test'))).to.have.length(1);
      expect(await agent.find(empty.device)).to.deep.equal([]);
      expect(agent.problems).to.deep.equal([
        `${empty.device} has neither a bundle written to it nor a file upgrade-*.tar in a file system`,
      ]);
      expect(await agent.find()).to.deep.equal([]);
    });

    it('names drives that cannot be used, and empty ones only if they were inserted since the start', async () => {
      const old = await drives.plug(await drives.makeExt4(files));
      const agent = await open();
      await agent.find();
      expect([...agent.unusable]).to.deep.equal([]);
      const [bad, good] = [await plugBroken(), await plugBundle()];
      await rm(join(files, 'upgrade-4.12.4-x86_64.tar'));
      const empty = await drives.plug(await drives.makeExt4(files));
      await agent.find();
      expect([...agent.unusable]).to.have.deep.members([
        [bad.device, 'damaged'],
        [basename(empty.device), 'empty'],
      ]);
      expect(agent.unusable.has(good.device)).to.equal(false);
      await old.pull();
      await empty.pull();
      await agent.find();
      expect([...agent.unusable]).to.deep.equal([[bad.device, 'damaged']]);
    });

    it('names bundles and similar files on removable drives, until they are removed', async () => {
      const [bad, good] = [await plugBroken(), await plugBundle()];
      const agent = await open();
      expect((await agent.find()).map(({ device }) => device)).to.deep.equal([good.device]);
      expect(context.lines).to.include(`info: ${good.device} has 4.12.4 x86_64`);
      const path = join(folder, 'media', basename(bad.device), 'upgrade-bad.tar');
      const problem = `${path} is not a complete upgrade bundle: it is not a tar`;
      expect(agent.problems).to.deep.equal([problem]);
      expect(context.lines).to.include(`warn: ${problem}`);
      await good.pull();
      expect(await agent.find()).to.deep.equal([]);
      expect(context.lines).to.include(`info: ${good.device} was removed`);
    });

    it('follows no link outside of /dev to a device, and reads a file of /dev as a file', async () => {
      const [bad, good] = [await plugBroken(), await plugBundle()];
      const agent = await open();
      expect(await agent.find(await link(good.device, join(folder, 'link')))).to.deep.equal([]);
      const named = '/dev/shm/oc-disconnected-test.tar';
      ended.defer(() => rm(named, { force: true }));
      await copyFile(bundle.path, named);
      expect((await agent.find(named)).map(({ path }) => path)).to.deep.equal([named]);
      await writeFile(named, 'no bundle');
      await agent.find(named);
      // Its problem is that of another search.
      expect(await agent.find(bad.device)).to.deep.equal([]);
      expect(agent.problems).to.have.length(1);
      expect(agent.problems[0]).to.include('upgrade-bad.tar');
    });

    it('looks again at an event of a device, warns if devices cannot be listed, and ends its program', async () => {
      await replace('udevadm', `echo $$ > '${folder}/pid'\necho 'UDEV [1.0] add'\nexec sleep 600`);
      const agent = await open();
      await agent.wait(2 ** 31 - 1, new AbortController().signal);
      await replace('lsblk', 'echo broken >&2\nexit 1');
      expect(await agent.find()).to.deep.equal([]);
      expect(context.lines.join('\n')).to.match(/^warn: cannot search the media: .*broken/m);
      await agent.close();
      const pid = (await readFile(join(folder, 'pid'), 'utf8')).trim();
      await until(() => !existsSync(`/proc/${pid}/exe`));
    });
  });

  it('waits until the signal or the time limit', async () => {
    const stop = new AbortController();
    const forever = 2 ** 31 - 1;
    const waiting = media.wait(forever, stop.signal);
    stop.abort();
    await waiting;
    await media.wait(forever, stop.signal);
    await media.wait(1, new AbortController().signal);
  });
});

describe('endFormerAgent', () => {
  const host = { root: '/', environment: {} };
  let folder: string;
  let path: string;
  let holder: ChildProcess;
  const agents: ChildProcess[] = [];
  const module = new URL('../../../lib/content/files/lock.ts', import.meta.url).href;

  /** Starts a process that holds the lock. */
  async function hold(first = ''): Promise<void> {
    const code = `${first}; import { takeLock } from ${JSON.stringify(module)};
      await takeLock(${JSON.stringify(path)}, 'x'); console.log('taken'); setInterval(() => {}, 1000);`;
    const options = { stdio: ['ignore', 'pipe', 'inherit'] as const, argv0: 'program' };
    holder = spawn(process.execPath, ['--input-type=module', '-e', code], { ...options, stdio: [...options.stdio] });
    if (holder.stdout) await once(holder.stdout, 'data');
  }

  beforeEach(async () => {
    folder = await makeFolder();
    path = join(folder, 'media.lock');
    await hold();
  });
  afterEach(async () => {
    for (const child of [holder, ...agents.splice(0)]) child.kill('SIGKILL');
    await removeFolder(folder);
  });

  it('ends the agent that holds the lock, so that this one can take it', async () => {
    const ended = once(holder, 'exit');
    await endFormerAgent(host, path, makeContext(), ['program', '--input-type=module']);
    expect((await ended)[1]).to.equal('SIGTERM');
    await using _lock = await takeLock(path, 'x');
  });

  it('kills an agent that does not end in 10 seconds', async () => {
    holder.kill('SIGKILL');
    await hold("process.on('SIGTERM', () => undefined)");
    const ended = once(holder, 'exit');
    await endFormerAgent(host, path, makeContext(), ['program', '--input-type=module']);
    expect((await ended)[1]).to.equal('SIGKILL');
    await using _lock = await takeLock(path, 'x');
  });

  it('ends an agent of other options', async () => {
    holder.kill('SIGKILL');
    const script = join(folder, 'program.mjs');
    const agentMedia = new URL('../../../lib/update/agent/agentMedia.ts', import.meta.url).href;
    await writeFile(
      script,
      `import { takeLock } from ${JSON.stringify(module)};
      import { endFormerAgent } from ${JSON.stringify(agentMedia)};
      const context = { signal: new AbortController().signal, log: () => {}, onEvent: () => {} };
      await endFormerAgent(${JSON.stringify(host)}, ${JSON.stringify(path)}, context);
      await takeLock(${JSON.stringify(path)}, 'x'); console.log('taken'); setInterval(() => {}, 1000);`,
    );
    const start = async (option: string): Promise<ChildProcess> => {
      const agent = spawn(process.execPath, [script, 'agent', option], { stdio: ['ignore', 'pipe', 'inherit'] });
      agents.push(agent);
      const [event] = (await Promise.race([once(agent.stdout, 'data'), once(agent, 'exit')])) as unknown[];
      expect(String(event)).to.equal('taken\n');
      return agent;
    };
    const first = await start('--former');
    const ended = once(first, 'exit');
    await start('--newer');
    expect((await ended)[1]).to.equal('SIGTERM');
  });

  it('does not end itself', async () => {
    const own = join(folder, 'own.lock');
    await using _lock = await takeLock(own, 'x');
    const words = (await readFile('/proc/self/cmdline', 'utf8')).split('\0');
    const context = makeContext();
    // A root without the program that would end this process.
    await endFormerAgent({ ...host, root: folder }, own, context, words.slice(0, 1));
    expect(context.lines).to.deep.equal([]);
  });

  it('leaves every other program alone', async () => {
    for (const own of [undefined, [], ['program', 'agent']]) await endFormerAgent(host, path, makeContext(), own);
    await failureOf(takeLock(path, 'x'), 'busy');
  });
});
