import { spawn } from 'node:child_process';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { describeScreen } from '../../../lib/update/screen/screenText.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { requirePeer } from '../../support/peers.ts';
import { factsWith, goodSteps, otherSteps, screenReasons } from '../../support/project/screens.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const child = fileURLToPath(new URL('../../fakes/files/agettyChild.ts', import.meta.url));

/**
 * Shows texts one after the other on a real agetty, in a mount namespace with its own /run and /etc. Returns what its
 * terminal got at first and after each. `issue` is the content of /etc/issue; undefined for none.
 */
async function show(root: string, texts: readonly (readonly string[] | null)[], issue?: string): Promise<string[]> {
  for (const name of ['etc', 'run']) await mkdir(join(root, name));
  if (issue !== undefined) await writeFile(join(root, 'etc/issue'), issue);
  const script = 'mount --bind "$0/run" /run && mount --bind "$0/etc" /etc && exec "$@"';
  const own = ['--mount', '--propagation=private', 'sh', '-c', script, root, process.execPath, child];
  const running = spawn('unshare', own, { stdio: ['pipe', 'pipe', 'inherit'] });
  running.stdin.end(JSON.stringify(texts));
  const { seen } = JSON.parse(await text(running.stdout)) as { seen: string[] };
  return seen.map((each) => each.replaceAll('\r', ''));
}

describe('the login screen of a node, on a real agetty', function () {
  requirePeer(this, 'agetty', 'script', 'stty', 'unshare');
  const issue = 'Red Hat Enterprise Linux CoreOS\n';
  const screens = [
    ...[...goodSteps, ...otherSteps].map(([, facts]) => describeScreen(facts)?.lines ?? []),
    ...screenReasons.map((reason) => describeScreen(factsWith(reason, { drive: 'needed' }))?.lines ?? []),
  ];
  let root: string;

  before(async function () {
    await requireRoot(this);
  });
  beforeEach(async () => {
    root = await makeFolder();
  });
  afterEach(() => removeFolder(root));

  it('shows each text at once, as it is, without a line that wraps, and nothing when it is gone', async () => {
    const seen = await show(root, [...screens, null], issue);
    const [first = '', ...shown] = seen;
    const prompt = first.slice(first.indexOf(issue) + issue.length);
    expect(prompt).to.match(/^\S+ login: $/);
    for (const [index, lines] of screens.entries()) {
      expect(shown[index]).to.equal(`\n${issue}\n${lines.join('\n')}\n\n${prompt}`);
      const printed = (shown[index] ?? '').split('\n');
      expect(printed.length).to.be.below(24);
      for (const line of printed) expect(line.length, line).to.be.below(80);
    }
    expect(shown.at(-1)).to.equal(`\n${issue}${prompt}`);
  });

  it('shows it once also if the node has no /etc/issue', async () => {
    const [, shown = ''] = await show(root, [['Do not switch off.']]);
    expect(shown.match(/Do not switch off\./g)).to.have.length(1);
    expect(await readdir(join(root, 'run/issue.d'))).to.deep.equal(['90-oc-upgrade-bundle.issue']);
  });

  it('shows nothing after a boot, which empties /run', async () => {
    await show(root, [['Do not switch off.']], issue);
    expect(await readdir(join(root, 'etc/issue.d'))).to.deep.equal(['90-oc-upgrade-bundle.issue']);
    await removeFolder(join(root, 'run'));
    const etc = join(root, 'etc');
    const script =
      'mount -t tmpfs tmpfs /run && mount --bind "$0" /etc && exec script -qec "agetty --show-issue" /dev/null';
    const running = spawn('unshare', ['--mount', '--propagation=private', 'sh', '-c', script, etc], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    const said = (await text(running.stdout)).replaceAll('\r', '');
    expect(said).to.contain(issue.trim()).and.not.contain('switch off');
  });
});
