import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { fieldsOf, listOf, textsOf } from '../../../lib/fields.ts';
import { nodeStateFolder, screenFile, screenLinks } from '../../../lib/node/machine/host.ts';
import { cleaningSet } from '../../../lib/update/install/agentCleanup.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

/** Returns the script that runs on each node when an installation is removed. */
function cleanScript(): string {
  const [agents] = agentObjects({ image: 'i', executables: {}, admission: undefined, rules: true }).slice(-1);
  const set = cleaningSet(agents ?? expect.fail('there is no DaemonSet'), { removePins: false });
  const pod = fieldsOf(fieldsOf(fieldsOf(set['spec'])['template'])['spec']);
  return textsOf(listOf(pod['containers'])[0]?.['command'])[2] ?? '';
}

describe('the cleanup of a node', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await makeFolder();
    await mkdir(join(folder, 'bin'));
    await writeFile(join(folder, 'bin/chroot'), '#!/bin/bash\nshift\necho "$*" >> "$RECORD"\n', { mode: 0o755 });
  });
  afterEach(() => removeFolder(folder));

  /** Runs it until it waits, with a folder in the place of the node. */
  const clean = async (): Promise<string> => {
    const script = cleanScript().replaceAll('/host', join(folder, 'host'));
    const record = join(folder, 'record');
    const waiting = script.replace('exec sleep infinity', 'echo done >> "$RECORD"\nexec sleep infinity');
    const env = { PATH: `${join(folder, 'bin')}:${String(process.env['PATH'])}`, RECORD: record };
    const child = spawn('/bin/bash', ['-c', waiting], { env, stdio: 'ignore' });
    const read = (): Promise<string> => readFile(record, 'utf8').catch(() => '');
    await until(async () => (await read()).includes('done'));
    const ended = once(child, 'close');
    child.kill();
    await ended;
    return read();
  };
  const put = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(folder, 'host', path)), { recursive: true });
    await writeFile(join(folder, 'host', path), text);
  };

  it('removes the text of the login screen, and redraws it', async () => {
    await put(screenFile, 'Do not switch off.');
    await put('/etc/issue.d/22_clhm_eth0.issue', 'eth0');
    await symlink('../../run/x', join(folder, 'host', screenLinks.etc));
    await put(`${nodeStateFolder}/bin/x`, '');
    expect(await clean()).to.equal('agetty --reload\ndone\n');
    expect(await readdir(join(folder, 'host/etc/issue.d'))).to.deep.equal(['22_clhm_eth0.issue']);
    expect(await readdir(join(folder, 'host/run'))).to.deep.equal([]);
  });

  it('removes the link also if nothing was said since the boot', async () => {
    await mkdir(join(folder, 'host/etc/issue.d'), { recursive: true });
    await symlink('../../run/x', join(folder, 'host', screenLinks.etc));
    expect(await clean()).to.equal('done\n');
    expect(await readdir(join(folder, 'host/etc/issue.d'))).to.deep.equal([]);
  });
});
