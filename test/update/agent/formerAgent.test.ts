import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { takeLock } from '../../../lib/content/files/lock.ts';
import { endFormerAgent } from '../../../lib/update/agent/agentMedia.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

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
