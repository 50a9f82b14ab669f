import { copyFile, link, mkdir, readFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { volumeName } from '../../../lib/content/archive/volumes.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { listFiles } from '../../../lib/node/media/medium.ts';
import { AgentMedia } from '../../../lib/update/agent/agentMedia.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { makeTarFile } from '../../support/archive/archive.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { run, runSuccessfully } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('a medium whose owner wants to read the machine', () => {
  const token = 'eyJhbGciOi.9.secret-of-the-agents';
  let made: TestBundle;
  let outside: string;
  let drive: string;
  let secret: string;
  let media: AgentMedia;
  let context: TestContext;
  const at = (name: string): string => join(drive, name);
  const name = 'upgrade-4.12.4-x86_64.tar';

  before(async () => {
    made = await makeBundle();
  });
  after(() => made.remove());
  beforeEach(async () => {
    outside = await makeFolder();
    drive = join(outside, 'drive');
    secret = join(outside, 'secret');
    await mkdir(drive);
    await writeFile(secret, token);
    context = makeContext();
    // Nothing can be mounted below a file, so only the folders are searched.
    const options = { host: { root: '/', environment: {} }, place: join(secret, 'media'), devices: [] };
    media = await AgentMedia.open({ ...options, folders: [drive] }, context);
  });
  afterEach(async () => {
    await media.close();
    await removeFolder(outside);
  });

  /** Searches twice, expects no bundle, and returns all messages. */
  const complaintOf = async (named?: string): Promise<string> => {
    expect(await media.find(named)).to.deep.equal([]);
    expect(await media.find(named)).to.deep.equal([]);
    const said = [...context.lines, ...media.problems].join('\n');
    expect(said).not.to.include('eyJ').and.not.to.include('secret-of');
    return said;
  };
  /**
   * Creates a bundle in three volumes. The second must have the bytes of a file of the machine in the middle of
   * metadata.json.
   */
  const splitAround = async (before: string, after: string): Promise<void> => {
    const text = Buffer.from(`${before}${token}${after}`);
    const tar = makeTarFile([{ path: 'metadata.json', content: text }]);
    const start = tar.indexOf(token);
    await writeFile(at(volumeName(name, 0)), tar.subarray(0, start));
    await writeFile(at(volumeName(name, 2)), tar.subarray(start + token.length));
  };

  it('shows nothing of a file that a volume links to', async () => {
    await splitAround('', 'x'.repeat(600));
    await symlink(secret, at(volumeName(name, 1)));
    expect(await complaintOf()).to.include(`${at(volumeName(name, 1))} is a symbolic link, which is not followed`);
    const { message } = await failureOf(openBundle(at(volumeName(name, 0)), context), 'not-readable');
    expect(message).to.match(/is a symbolic link/);
  });

  it('gives no bundle the name that a linked file has in it', async () => {
    const { version: _version, ...rest } = made.result.metadata;
    const endWith = (size: number): string => `",${JSON.stringify({ ...rest, size }).slice(1)}`;
    const whole = Buffer.from(`{"version":"${token}${endWith(10_000)}`);
    await splitAround('{"version":"', endWith(makeTarFile([{ path: 'metadata.json', content: whole }]).length));
    await symlink(secret, at(volumeName(name, 1)));
    expect(await complaintOf()).to.include('is a symbolic link');
  });

  it('reads no digest through a link', async () => {
    await copyFile(made.path, at(name));
    await writeFile(secret, `${'a'.repeat(64)}  ${name}\n`);
    await symlink(secret, at(`${name}.sha256`));
    expect((await media.find()).map(({ digest }) => digest)).to.deep.equal([undefined]);
  });

  it('neither waits for a pipe nor opens a device, under any name', async () => {
    await runSuccessfully('mkfifo', [at(name), at('upgrade-b.tar.000')]);
    await run('mknod', [at('upgrade-c.tar'), 'c', '1', '5']);
    await symlink(made.path, at('upgrade-d.tar'));
    expect(await complaintOf()).not.to.include('upgrade-');
    for (const each of [name, 'upgrade-d.tar'])
      expect(await complaintOf(at(each))).to.match(/is not a regular|is a symbolic/);
    await copyFile(made.path, at(volumeName('upgrade-e.tar', 0)));
    await truncate(at(volumeName('upgrade-e.tar', 0)), 10_000);
    await runSuccessfully('mkfifo', [at(volumeName('upgrade-e.tar', 1))]);
    expect(await complaintOf()).to.include('upgrade-e.tar');
  });

  it('cannot put a link in the place of a bundle between finding it and verifying it', async () => {
    await copyFile(made.path, at(name));
    const [found] = await media.find();
    if (!found) return expect.fail();
    await rename(at(name), join(outside, 'moved'));
    await symlink(join(outside, 'moved'), at(name));
    const trust = {
      keyrings: [made.keyFile],
      fingerprints: [],
      allowUnsigned: false,
      fetchFile: () => Promise.resolve(undefined),
    };
    const cache = new BundleCache(join(outside, 'cache'), trust);
    await failureOf(cache.verify(found, digestOf(await readFile(made.path)), context), 'not-readable');
    await rm(at(name));
    await runSuccessfully('mkfifo', [at(name)]);
    await failureOf(cache.verify(found, digestOf(''), context), 'not-readable');
  });

  it('may have a hard link to a file of the same file system, which cannot be distinguished', async () => {
    await link(made.path, at(name)).catch(() => copyFile(made.path, at(name)));
    expect((await media.find()).map(({ version }) => version)).to.deep.equal(['4.12.4']);
  });

  it('leaves out names that cannot be printed, and refuses too many bundles', async () => {
    for (const odd of ['upgrade-\u001b[2J.tar', 'upgrade-\u202etar.exe.tar', `upgrade-${'x'.repeat(200)}.tar`])
      await writeFile(at(odd), 'x');
    expect(await listFiles(drive)).to.have.property('size', 0);
    for (let count = 0; count < 65; count += 1) await writeFile(at(`upgrade-${count}.tar`), 'x');
    expect(await complaintOf()).to.include(`${basename(drive)} has more than 64 bundles`);
  });
});
