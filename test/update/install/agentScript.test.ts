import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { expect } from 'chai';
import { digestOf, hexOf } from '../../../lib/content/oci/reference.ts';
import { serveContent, type ContentServer } from '../../../lib/content/server.ts';
import { executablePath, screenFile } from '../../../lib/node/machine/host.ts';
import { describeExecutables, startScript } from '../../../lib/update/install/agentScript.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

const executable = Buffer.from(
  '#!/bin/bash\necho "agent of $NODE_NAME with $*, executable $EXECUTABLE" >> "$RECORD"\n',
);
const digest = hexOf(digestOf(executable));

describe('startScript', () => {
  let folder: string;
  let server: ContentServer | undefined;

  beforeEach(async () => {
    folder = await makeFolder();
    await mkdir(join(folder, 'stubs'));
    // Stubs for commands that need root in a container: mount, and chroot into the node’s file system.
    await stub('mount', 'echo "mount $*" >> "$RECORD"');
    await stub('chroot', 'root=$1; shift; program=$1; shift; exec "$root$program" "$@"');
    await mkdir(join(folder, 'host'));
  });
  afterEach(async () => {
    await server?.close();
    server = undefined;
    await removeFolder(folder);
  });
  const stub = async (name: string, text: string): Promise<void> => {
    await writeFile(join(folder, 'stubs', name), `#!/bin/bash\n${text}\n`, { mode: 0o755 });
  };
  const onNode = (): string => join(folder, 'host', executablePath);
  const place = async (content: Buffer): Promise<void> => {
    await mkdir(dirname(onNode()), { recursive: true });
    await writeFile(onNode(), content, { mode: 0o755 });
  };
  const serve = async (content: Buffer): Promise<string> => {
    const chunks = (start: number, size: number): Readable => Readable.from([content.subarray(start, start + size)]);
    const files = new Map([[`/executable/${digest}`, { size: content.length, chunks }]]);
    server = await serveContent(() => undefined, { files }, makeContext());
    return server.url;
  };
  const start = (peers = 'http://127.0.0.1:9', size = executable.length) => {
    const script = startScript.replaceAll('/host', join(folder, 'host'));
    const env = { PATH: `${join(folder, 'stubs')}:${String(process.env['PATH'])}`, NODE_NAME: 'node-1', PEERS: peers };
    const record = { digest, size };
    const own = describeExecutables({ amd64: record, arm64: record });
    const more = { RECORD: join(folder, 'record'), ...Object.fromEntries(own.map(({ name, value }) => [name, value])) };
    const child = spawn('/bin/bash', ['-c', script, 'agent', '--allow-unsigned'], {
      env: { ...env, ...more },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let words = '';
    child.stderr.on('data', (chunk: Buffer) => (words += chunk.toString()));
    const ended = new Promise<number | null>((resolve) => child.once('close', resolve));
    return { child, ended, words: () => words };
  };
  const record = (): Promise<string> => readFile(join(folder, 'record'), 'utf8').catch(() => '');
  const started =
    `mount --rbind /run/secrets HOST/run/secrets\nagent of node-1 with agent --allow-unsigned, ` +
    `executable ${digest}\n`;

  it('becomes the agent if the executable exists', async () => {
    await place(executable);
    expect(await start().ended).to.equal(0);
    expect(await record()).to.equal(started.replace('HOST', join(folder, 'host')));
  });

  it('removes a text of an agent that was killed from the login screen, half an hour after it', async () => {
    await place(executable);
    const screen = join(folder, 'host', screenFile);
    await mkdir(dirname(screen), { recursive: true });
    await stub('chroot', 'shift; case $1 in agetty) echo "agetty $2" >> "$RECORD";; esac');
    for (const [minutes, isKept] of [
      [20, true],
      [40, false],
    ] as const) {
      await writeFile(screen, 'Checking it: 34 %');
      const time = Date.now() / 1000 - minutes * 60;
      await utimes(screen, time, time);
      expect(await start().ended).to.equal(0);
      expect(existsSync(screen)).to.equal(isKept);
      expect((await record()).includes('agetty --reload')).to.equal(!isKept);
    }
  });

  it('waits until the executable is uploaded', async () => {
    const { ended } = start();
    await place(Buffer.from('#!/bin/bash\necho "something else" >> "$RECORD"\n'));
    await place(executable);
    expect(await ended).to.equal(0);
    expect(await record()).to.equal(started.replace('HOST', join(folder, 'host')));
  });

  it('fetches it from another agent, without the token', async () => {
    const { ended } = start(await serve(executable));
    expect(await ended).to.equal(0);
    expect(await readFile(onNode())).to.deep.equal(executable);
    expect(await record()).to.equal(started.replace('HOST', join(folder, 'host')));
  });

  it('replaces one that another installation has left', async () => {
    await place(Buffer.from('#!/bin/bash\necho old >> "$RECORD"\n'));
    expect(await start(await serve(executable)).ended).to.equal(0);
    expect(await record()).not.to.contain('old');
  });

  it('runs nothing with another digest, from any source', async () => {
    const evil = Buffer.from('#!/bin/bash\necho evil >> "$RECORD"\n');
    await place(evil);
    const { child, ended, words } = start(await serve(evil));
    await until(() => words().includes('is not the executable that was installed'));
    child.kill('SIGKILL');
    await ended;
    expect(await record()).to.equal('');
  });

  it('takes no more than the size that was installed from a node that sends without an end, then asks the next', async () => {
    const seen: number[] = [];
    const chunk = Buffer.alloc(64 * 1024);
    let requests = 0;
    const endless = createServer((_, response) => {
      requests += 1;
      if (requests > 2) return void response.end(executable);
      response.writeHead(200);
      const more = (): void => {
        void stat(`${onNode()}.fetched`).then(
          ({ size }) => seen.push(size),
          () => undefined,
        );
        if (!response.destroyed) response.write(chunk, () => setTimeout(more, 1));
      };
      return more();
    });
    await once(endless.listen(0, '127.0.0.1'), 'listening');
    const { port } = endless.address() as AddressInfo;
    const { ended, words } = start(`http://127.0.0.1:${port}`);
    expect(await ended).to.equal(0);
    endless.closeAllConnections();
    endless.close();
    expect(requests).to.equal(3);
    expect(Math.max(...seen)).to.be.at.most(executable.length + 1);
    expect(words()).to.contain('is not the executable that was installed');
    expect(await readFile(onNode())).to.deep.equal(executable);
  });

  it('does not run a file that cannot be run', async () => {
    await place(executable);
    await chmod(onNode(), 0o644);
    expect(await start(await serve(executable)).ended).to.equal(0);
  });

  it('knows its machine, and reports that nothing was installed for it', async () => {
    expect(describeExecutables({ amd64: { digest, size: 7 } })).to.deep.equal([
      { name: 'EXECUTABLE_x86_64', value: digest },
      { name: 'SIZE_OF_EXECUTABLE_x86_64', value: '7' },
    ]);
    await stub('uname', 'echo s390x');
    await stub('sleep', 'exit');
    const { ended, words } = start();
    expect(await ended).to.equal(1);
    expect(words()).to.equal('no executable for s390x was installed\n');
  });
});
