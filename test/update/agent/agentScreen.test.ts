import { mkdir, readFile, readlink, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { screenFile, screenLinks } from '../../../lib/node/machine/host.ts';
import { AgentScreen } from '../../../lib/update/agent/agentScreen.ts';
import { codeOf } from '../../../lib/update/screen/screenCode.ts';
import type { ScreenFacts } from '../../../lib/update/screen/screenText.ts';
import { makeContext } from '../../support/context.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const minute = 60_000;
const none = new Map<never, never>();
const checking = (percent: number): ScreenFacts => ({
  version: '4.20.3',
  phase: 'Verified',
  drive: 'needed',
  work: { kind: 'check', share: { percent } },
});
const updating: ScreenFacts = { version: '4.20.3', phase: 'Upgrading', drive: 'none' };
const completed: ScreenFacts = { version: '4.20.3', phase: 'Completed', drive: 'none' };

describe('AgentScreen', () => {
  let root: string;
  let now = 0;
  const context = makeContext();
  beforeEach(async () => {
    root = await makeFolder();
    await mkdir(join(root, 'etc'));
    await writeFile(join(root, 'etc/issue'), '');
    now = 0;
  });
  afterEach(() => removeFolder(root));

  const open = (console = true): AgentScreen =>
    new AgentScreen({ root, environment: process.env }, { console }, () => now);
  const read = (): Promise<string> => readFile(join(root, screenFile), 'utf8').catch(() => '');

  it('changes numbers once a minute, and everything else at once', async () => {
    const screen = open();
    await screen.show(checking(3), none, context);
    now += minute - 1;
    await screen.show(checking(34), none, context);
    expect(await read()).to.contain('3 %');
    now += 1;
    await screen.show(checking(35), none, context);
    expect(await read()).to.contain('35 %');
    await screen.show({ version: '4.20.3', phase: 'Loaded', drive: 'removable' }, none, context);
    expect(await read()).to.contain('You can remove the USB drive now.');
    await screen.show({ drive: 'none' }, none, context);
    expect(await read()).to.equal('');
  });

  it('replaces the screen of a killed agent in its first round', async () => {
    await open().show(checking(34), none, context);
    await open().show({ drive: 'none' }, none, context);
    expect(await read()).to.equal('');
    await open().show(checking(34), none, context);
    await open().show(checking(12), none, context);
    expect(await read()).to.contain('12 %');
  });

  it('removes outdated text when it ends, and keeps that the cluster is updated', async () => {
    const first = open();
    const ending = makeContext();
    await first.show(checking(34), none, ending);
    // Until now the node had no agetty.
    const reloads = join(root, 'usr/sbin/agetty');
    await mkdir(dirname(reloads), { recursive: true });
    await writeFile(reloads, '', { mode: 0o755 });
    // A signal ends agents.
    ending.interrupt();
    await first.close(ending);
    expect(await read()).to.equal('');
    expect(ending.lines.filter((line) => line.endsWith('run: agetty --reload'))).to.have.length(1);
    const second = open();
    await second.show(updating, none, context);
    await second.close(context);
    expect(await read()).to.contain('Do not switch off.');
  });

  it('shows the version of the cluster for a day, and only after another text', async () => {
    await open().show(completed, none, context);
    expect(await read()).to.equal('');
    await open().show(updating, none, context);
    const screen = open();
    await screen.show(completed, none, context);
    expect(await read()).to.contain('This cluster runs 4.20.3');
    const age = async (hours: number): Promise<string> => {
      const time = Date.now() / 1000 - hours * 3600;
      await utimes(join(root, screenFile), time, time);
      await screen.show(completed, none, context);
      return read();
    };
    expect(await age(23)).to.contain('This cluster runs 4.20.3');
    expect(await age(25)).to.equal('');
    await screen.show(completed, none, context);
    expect(await read()).to.equal('');
  });

  it('says at once that the report is written, as long as the drive with it is inserted', async () => {
    const screen = open();
    const report = async (state: ScreenFacts['report']): Promise<string> => {
      await screen.show({ ...completed, report: state }, none, context);
      return read();
    };
    // After a boot, the end of an update is not repeated, and nothing is asked.
    expect(await report('wanted')).to.equal('');
    expect(await report('written')).to.contain('The report is on the USB drive.');
    expect(await report('wanted')).to.contain('Insert the USB drive again');
    expect(await report('writing')).to.contain('Writing the report.');
    const last = Date.now() / 1000 - 25 * 3600;
    expect(await report('written')).to.contain('The report is on the USB drive.');
    await utimes(join(root, screenFile), last, last);
    expect(await report('written')).to.contain('The report is on the USB drive.');
    expect(await report('writing')).to.contain('Writing the report.');
    await screen.close(context);
    expect(await read()).to.equal('');
  });

  it('says for a minute that a drive cannot be used, each time that it is inserted', async () => {
    const screen = open();
    const empty = new Map([['sdb', 'empty' as const]]);
    await screen.show({ drive: 'none' }, empty, context);
    expect(await read()).to.contain(codeOf('driveEmpty'));
    now += minute;
    await screen.show(updating, empty, context);
    expect(await read()).to.contain('Updating this cluster');
    await screen.show(updating, none, context);
    await screen.show(updating, empty, context);
    expect(await read())
      .to.contain(codeOf('driveEmpty'))
      .and.contain('Do not switch off.');
  });

  it('says after a quarter of an hour that the cluster is not reached', async () => {
    const screen = open();
    await screen.show(updating, none, context);
    now += 14 * minute;
    await screen.noteFailure(context);
    expect(await read()).to.contain('Updating this cluster');
    now += minute;
    await screen.noteFailure(context);
    expect(await read()).to.contain(codeOf('unreachable'));
  });

  it('shows nothing if it is turned off, and removes its earlier text', async () => {
    await open().show(updating, none, context);
    expect(await readlink(join(root, screenLinks.etc))).to.equal('../../run/oc-upgrade-bundle/login.issue');
    await open(false).show(updating, none, context);
    expect(await read()).to.equal('');
    expect(await readlink(join(root, screenLinks.etc)).catch(() => 'gone')).to.equal('gone');
  });

  it('logs once that the screen cannot be changed, and disturbs no agent', async () => {
    await mkdir(join(root, screenFile), { recursive: true });
    const own = makeContext();
    const screen = open();
    for (const percent of [1, 2]) await screen.show(checking(percent), none, own);
    expect(own.lines.filter((line) => line.startsWith('warn'))).to.have.length(1);
  });
});
