import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { takeLock } from '../../../lib/content/files/lock.ts';
import { endFormerAgent } from '../../../lib/update/agent/agentMedia.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('endFormerAgent', () => {
  const host = { root: '/', environment: {} };
  let folder: string;
  let path: string;
  let holder: ChildProcess;
  const module = new URL('../../../lib/content/files/lock.ts', import.meta.url).href;

  beforeEach(async () => {
    folder = await makeFolder();
    path = join(folder, 'media.lock');
    const code = `import { takeLock } from ${JSON.stringify(module)};
      await takeLock(${JSON.stringify(path)}, 'x'); console.log('taken'); setInterval(() => {}, 1000);`;
    const options = { stdio: ['ignore', 'pipe', 'inherit'] as const, argv0: 'program' };
    holder = spawn(process.execPath, ['--input-type=module', '-e', code], { ...options, stdio: [...options.stdio] });
    if (holder.stdout) await once(holder.stdout, 'data');
  });
  afterEach(async () => {
    holder.kill('SIGKILL');
    await removeFolder(folder);
  });

  it('ends the agent that holds the lock, so that this one can take it', async () => {
    const ended = once(holder, 'exit');
    await endFormerAgent(host, path, makeContext(), ['program', '--input-type=module']);
    expect((await ended)[1]).to.equal('SIGTERM');
    await using _lock = await takeLock(path, 'x');
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
