import {
  chmod,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  stat,
  writeFile,
  rename,
  symlink,
  lchown,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { HostCommands, isClockSynchronized } from '../../../lib/node/machine/hostCommands.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('HostCommands.exists', () => {
  let folder: string;
  const { signal } = new AbortController();
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'host-commands-'));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  const podmanThat = async (script: string): Promise<HostCommands> => {
    const podman = join(folder, 'podman');
    await writeFile(podman, `#!/bin/sh\n${script}\n`);
    await chmod(podman, 0o755);
    return new HostCommands({ podman, systemctl: 'systemctl', environment: process.env, signal }, 'system');
  };

  it('is false for images that podman does not have', async () => {
    expect(await (await podmanThat('exit 1')).exists('image', 'a')).to.equal(false);
    const inspecting = await podmanThat(
      'echo "Error: no secret with name or id \\"a\\": no such secret" >&2; exit 125',
    );
    expect(await inspecting.exists('secret', 'a')).to.equal(false);
  });

  it('fails if podman cannot tell', async () => {
    const full = await podmanThat('echo "Error: no space left on device" >&2; exit 125');
    for (const kind of ['image', 'secret'] as const) {
      const { message } = await failureOf(full.exists(kind, 'a'), 'command-failed');
      expect(message).to.include('no space left on device');
    }
  });
});

describe('HostCommands, with programs that tell their calls', () => {
  let folder: string;
  let commands: HostCommands;
  const calls = async (): Promise<string[]> => (await readFile(join(folder, 'calls'), 'utf8')).trimEnd().split('\n');
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'host-commands-'));
    const [places, programs] = [join(folder, 'places'), join(folder, 'programs')];
    for (const each of ['old', 'new']) await mkdir(join(places, each), { recursive: true });
    await mkdir(programs);
    for (const name of ['chmod', 'chown', 'find', 'mv', 'sync']) {
      const script = `#!/bin/sh\necho ${name} "$1" >>${folder}/calls\nexec /bin/${name} "$@"\n`;
      await writeFile(join(programs, name), script, { mode: 0o755 });
    }
    const environment = { PATH: `${programs}:${process.env['PATH'] ?? ''}` };
    const { signal } = new AbortController();
    commands = new HostCommands({ podman: 'podman', systemctl: 'systemctl', environment, signal }, 'system');
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it('write a file to the disk before they rename it', async () => {
    const [from, to] = [join(folder, 'places/partial'), join(folder, 'places/complete')];
    await writeFile(from, 'all');
    await commands.rename(from, to);
    expect(await calls()).to.deep.equal([`sync ${from}`, 'mv -f']);
    expect(await readFile(to, 'utf8')).to.equal('all');
  });

  it('write a folder to the disk before containers have access to it', async () => {
    const [from, to] = [join(folder, 'places/new'), join(folder, 'places/old')];
    await writeFile(join(from, 'file'), 'new');
    await chmod(from, 0o750);
    await commands.replaceFolder(from, to);
    const names = (await calls()).map((line) => line.split(' ')[0]);
    expect(names).to.deep.equal(['chown', 'chmod', 'find', 'find', 'sync', 'chown', 'chmod']);
    expect([await readFile(join(to, 'file'), 'utf8'), (await stat(to)).mode & 0o777]).to.deep.equal(['new', 0o750]);
  });

  it('fail if the disk does, and rename nothing then', async () => {
    await writeFile(join(folder, 'programs/sync'), '#!/bin/sh\necho sync: I/O error >&2\nexit 1\n', { mode: 0o755 });
    const from = join(folder, 'places/partial');
    await writeFile(from, 'all');
    const failure = await failureOf(commands.rename(from, join(folder, 'places/complete')), 'command-failed');
    expect(failure.message).to.equal('sh -c failed: sync: I/O error');
    expect((await readdir(join(folder, 'places'))).sort()).to.deep.equal(['new', 'old', 'partial']);
  });
});

describe('isClockSynchronized', () => {
  let folder: string;
  before(async () => {
    folder = await makeFolder();
  });
  after(() => removeFolder(folder));
  const host = () => ({ root: '/', environment: { PATH: folder } });
  const answerWith = async (script: string): Promise<void> => {
    await writeFile(join(folder, 'timedatectl'), `#!/bin/sh\n${script}\n`);
    await chmod(join(folder, 'timedatectl'), 0o755);
  };

  it('asks timedatectl, and knows nothing if that fails', async () => {
    for (const [script, answer] of [
      ['test "$*" = "show --property=NTPSynchronized --value" && echo yes', true],
      ['echo no', false],
      ['echo "Failed to connect to bus" >&2; exit 1', undefined],
      ['echo perhaps', undefined],
    ] as const) {
      await answerWith(script);
      expect(await isClockSynchronized(host(), makeContext()), script).to.equal(answer);
    }
  });

  it('ends with an interruption', async () => {
    const context = makeContext();
    context.interrupt();
    await failureOf(isClockSynchronized(host(), context), 'interrupted');
  });
});

describe('programs that root runs in a folder of another user', function () {
  let root: string;
  const programs = {
    podman: 'podman',
    systemctl: 'systemctl',
    environment: process.env,
    signal: new AbortController().signal,
  };
  const commands = new HostCommands(programs, 'system');
  before(async function () {
    await requireRoot(this);
  });
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'other-user-'));
    await mkdir(join(root, 'home/data'), { recursive: true });
    await mkdir(join(root, 'system/data'), { recursive: true, mode: 0o700 });
    await writeFile(join(root, 'system/data/precious'), 'precious');
    await writeFile(join(root, 'home/data/own'), 'own');
    await mkdir(join(root, 'copy'));
  });
  afterEach(() => rm(root, { recursive: true, force: true }));

  /** Replaces a folder with a link to the folder of the system, as its owner does. */
  async function swap(): Promise<void> {
    await rename(join(root, 'home'), join(root, 'home.aside'));
    await symlink(join(root, 'system'), join(root, 'home'));
    await lchown(join(root, 'home'), 1234, 1234);
  }

  async function collect(output: AsyncIterable<Buffer>): Promise<string> {
    const chunks: Buffer[] = [];
    for await (const chunk of output) chunks.push(chunk);
    return Buffer.concat(chunks).toString();
  }

  it('do nothing behind a link that replaced a folder', async () => {
    const before = await stat(join(root, 'system/data'));
    const folder = join(root, 'home/data');
    await swap();
    for (const act of [
      () => commands.removeFolder(folder),
      () => commands.replaceFolder(join(root, 'copy'), folder),
      () => commands.copyFolder(folder, join(root, 'copied')),
      () => commands.setFolderAttributes(folder, '1001:0', '0777'),
      () => commands.sizeOfFolder(folder),
      () => collect(commands.readInFolder(folder, ['ls'])),
      () => commands.runAsQuay(folder, ['true']),
    ]) {
      expect((await failureOf(act(), 'not-readable')).message).to.include('symbolic link of another user');
    }
    expect(await readdir(join(root, 'system/data'))).to.deep.equal(['precious']);
    expect(await readdir(root)).not.to.include('copied');
    const { uid, mode } = await stat(join(root, 'system/data'));
    expect([uid, mode]).to.deep.equal([before.uid, before.mode]);
  });

  it('stay in the folder that they began in', async () => {
    const program = ['sh', '-c', 'echo ready; sleep 1; ls "$PWD/." .', '-'];
    const output = commands.readInFolder(join(root, 'home/data'), program)[Symbol.asyncIterator]();
    expect(String((await output.next()).value)).to.equal('ready\n');
    await swap();
    expect(String((await output.next()).value))
      .to.include('own')
      .and.not.include('precious');
    await output.return(undefined);
  });

  it('replace and remove folders of the user', async () => {
    await writeFile(join(root, 'copy/fresh'), 'fresh');
    await commands.replaceFolder(join(root, 'copy'), join(root, 'home/data'));
    expect(await readdir(join(root, 'home/data'))).to.deep.equal(['fresh']);
    await commands.copyFolder(join(root, 'home/data'), join(root, 'copied'));
    expect(await readdir(join(root, 'copied'))).to.deep.equal(['fresh']);
    expect(await commands.sizeOfFolder(join(root, 'home/data'))).to.be.above(4);
    await commands.removeFolder(join(root, 'home/data'));
    await commands.removeFolder(join(root, 'missing/data'));
    expect(await readdir(join(root, 'home'))).to.deep.equal([]);
  });
});
