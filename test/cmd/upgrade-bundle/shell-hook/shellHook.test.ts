import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { hookOf } from '../../../../cmd/upgrade-bundle/shell-hook/shellHook.ts';
import { requirePeer, run, type RunResult } from '../../../support/peers.ts';
import { executeProgram } from '../../../support/program/execution.ts';

const shells = {
  bash: { args: ['--norc', '--noprofile'], prelude: 'shopt -s expand_aliases' },
  zsh: { args: ['-f'], prelude: '' },
  fish: { args: ['--no-config'], prelude: '' },
} as const;

/** Prints its name, then each argument on its own line, and exits with $EXIT. */
const standIn = `#!/bin/sh
echo "\${0##*/}"
for word in "$@"; do printf '  [%s]\\n' "$word"; done
[ -z "$SHOW" ] || echo "KUBECONFIG=$KUBECONFIG"
exit "\${EXIT:-0}"
`;

describe('shell-hook', () => {
  it('says that PowerShell is not supported, instead of another shell', async () => {
    for (const shell of ['pwsh', 'PowerShell', 'cmd.exe']) {
      const { code, stderr } = await executeProgram('oc-adm_upgrade_bundle', ['shell-hook', shell]);
      expect(code).to.equal(2);
      expect(stderr)
        .to.match(/^error \([a-z-]+\): <shell>: PowerShell and cmd are not supported: use bash, zsh or fish\n/)
        .and.to.not.contain('Did you mean');
    }
  });
});

for (const shell of ['bash', 'zsh', 'fish'] as const) {
  const { args, prelude } = shells[shell];
  describe(`the hook for ${shell}`, function () {
    requirePeer(this, shell);
    let folder: string;
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), 'hook-'));
      for (const name of [
        'bin/oc',
        'other/oc4',
        'plugins/oc-adm_upgrade_bundle',
        'plugins/oc-adm_release_mirror_config',
      ]) {
        const file = join(folder, name);
        await mkdir(join(file, '..'), { recursive: true });
        await writeFile(file, standIn);
        await chmod(file, 0o755);
      }
    });
    after(() => (folder ? rm(folder, { recursive: true, force: true }) : undefined));

    /** Runs lines in the shell, with folders of the test first on the PATH. `HOOK` is replaced by loading the hook. */
    async function say(
      lines: readonly string[],
      { folders = ['bin', 'plugins'], env = {}, releaseMirror = false } = {},
    ): Promise<RunResult> {
      const [file, script] = [join(folder, 'hook'), join(folder, 'script')];
      await writeFile(file, hookOf(shell, releaseMirror));
      const text = [prelude, ...lines].map((line) => (line === 'HOOK' ? `. ${file}` : line)).join('\n');
      await writeFile(script, `${text}\n`);
      const path = [...folders.map((name) => join(folder, name)), '/usr/bin', '/bin'].join(':');
      return run(shell, [...args, script], { env: { HOME: folder, PATH: path, TERM: 'dumb', ...env } });
    }

    const words = (name: string, ...rest: string[]): string =>
      [name, ...rest.map((word) => `  [${word}]`), ''].join('\n');

    it('sends the literal commands to the plugins, arguments untouched', async () => {
      const { stdout, stderr } = await say([
        'HOOK',
        `oc adm upgrade create bundle --version=4.12.4 --output='/my files/*' "" '$HOME' "a\\"b"`,
        'oc adm upgrade create bundle',
        `oc adm release mirror 4.12.4 --to-dir 'x  y' --apply-config`,
        'oc adm release mirror --config-to-dir=config 4.12.4',
        'oc adm release mirror --config-to-dir config --apply-config=true',
      ]);
      expect(stderr).to.equal('');
      expect(stdout).to.equal(
        [
          words('oc-adm_upgrade_bundle', 'create', '--version=4.12.4', '--output=/my files/*', '', '$HOME', 'a"b'),
          words('oc-adm_upgrade_bundle', 'create'),
          words('oc-adm_release_mirror_config', '4.12.4', '--to-dir', 'x  y', '--apply-config'),
          words('oc-adm_release_mirror_config', '--config-to-dir=config', '4.12.4'),
          words('oc-adm_release_mirror_config', '--config-to-dir', 'config', '--apply-config=true'),
        ].join(''),
      );
    });

    it('finds the flags of oc before the verb, and sends --to-dir to the plugin if the user asked for it', async () => {
      const lines = [
        'HOOK',
        `oc --context=x -n 'a  b' adm upgrade create bundle --version=4.12.4`,
        'oc adm --kubeconfig k release --insecure-skip-tls-verify mirror 4.12.4 --apply-config',
        'oc -v 6 adm release mirror 4.12.4 --to-dir=x',
      ];
      const flags = ['--kubeconfig', 'k', '--insecure-skip-tls-verify', '4.12.4', '--apply-config'];
      const found =
        words('oc-adm_upgrade_bundle', 'create', '--version=4.12.4') + words('oc-adm_release_mirror_config', ...flags);
      const { stdout, stderr } = await say(lines);
      expect(stderr).to.equal('');
      expect(stdout).to.equal(found + words('oc', '-v', '6', 'adm', 'release', 'mirror', '4.12.4', '--to-dir=x'));
      const asked = await say(lines, { releaseMirror: true });
      expect(asked.stdout).to.equal(found + words('oc-adm_release_mirror_config', '-v', '6', '4.12.4', '--to-dir=x'));
    });

    it('adds a line to the help of oc adm release mirror, and keeps the exit code', async () => {
      const code = shell === 'fish' ? '$status' : '$?';
      const lines = [
        'oc adm release mirror --help',
        'oc --context=x adm release mirror -h',
        'oc adm release mirror -- -h',
      ];
      const { stdout, stderr } = await say(['HOOK', ...lines.flatMap((line) => [line, `echo ${code}`])], {
        env: { EXIT: '3' },
      });
      expect(stdout.match(/^3$/gm)).to.have.length(3);
      expect(stdout).to.contain(words('oc', '--context=x', 'adm', 'release', 'mirror', '-h'));
      const note =
        'With --apply-config or --config-to-dir, oc adm-release-mirror-config runs instead. See its --help.\n';
      expect(stderr).to.equal(note.repeat(2));
      expect((await say(['HOOK', 'oc adm release mirror --apply-config --help'])).stdout).to.equal(
        words('oc-adm_release_mirror_config', '--apply-config', '--help'),
      );
    });

    const others = [
      [],
      ['get', 'pods'],
      ['adm', 'upgrade'],
      ['adm', 'upgrade', 'create'],
      ['adm', 'upgrade', '--to=4.12.4'],
      ['adm upgrade', 'create', 'bundle'],
      ['adm', 'upgrade', 'create', 'bundles'],
      ['--unknown', 'adm', 'upgrade', 'create', 'bundle'],
      ['--context', 'adm', 'upgrade', 'create', 'bundle'],
      ['-n', 'x', 'adm', 'upgrade'],
      ['--', 'adm', 'upgrade', 'create', 'bundle'],
      ['-n'],
      ['adm', 'release', 'mirror', '4.12.4', '--to-dir=x'],
      ['adm', 'release', 'mirror', '--', '--apply-config'],
      ['adm', 'release', 'mirror', '--apply-configs'],
      ['adm', 'release', 'info', '--apply-config'],
      ['__complete', 'adm', 'upgrade', 'cr'],
      ['__complete', 'adm', 'release', 'mirror', '--to-dir=x', ''],
      ['exec', 'p', '--', 'sh', '-c', 'echo $HOME "*" \\n;'],
      ['', ' ', '-n', '~', '*'],
    ];
    it('sends every other command line to the real oc, arguments untouched', async () => {
      const quote = (word: string): string => `'${word.replaceAll('\\', shell === 'fish' ? '\\\\' : '\\')}'`;
      const { stdout, stderr } = await say(['HOOK', ...others.map((line) => ['oc', ...line.map(quote)].join(' '))]);
      expect(stderr).to.equal('');
      expect(stdout).to.equal(others.map((line) => words('oc', ...line)).join(''));
    });

    it('sends the completion of the literal commands to the plugins', async () => {
      const { stdout, stderr } = await say([
        'HOOK',
        `oc __complete adm upgrade create bundle --version=4.12.4 ''`,
        `oc __complete -n x adm release mirror --apply-config --ov`,
        `oc __complete adm upgrade create bun`,
      ]);
      expect(stderr).to.equal('');
      expect(stdout).to.equal(
        [
          words('oc-adm_upgrade_bundle', '__complete', 'create', '--version=4.12.4', ''),
          words('oc-adm_release_mirror_config', '__complete', '-n', 'x', '--apply-config', '--ov'),
          'bundle\n:4\n',
        ].join(''),
      );
    });

    it('keeps exit codes and pipes', async () => {
      const status = shell === 'fish' ? '$status' : '$?';
      const { stdout } = await say(
        [
          'HOOK',
          'oc get pods >/dev/null',
          `echo ${status}`,
          'oc adm upgrade create bundle >/dev/null',
          `echo ${status}`,
          'oc adm release mirror --apply-config | tail -n 1',
          'oc get pods | tail -n 1',
        ],
        { env: { EXIT: '7' } },
      );
      expect(stdout).to.equal('7\n7\n  [--apply-config]\n  [pods]\n');
    });

    it('takes over an alias that is an oc of another place or with options, which the cluster is chosen by', async () => {
      const lines = ['HOOK', 'oc get pods', 'oc adm upgrade create bundle', 'oc adm release mirror --apply-config'];
      const create = words('oc-adm_upgrade_bundle', 'create');
      const elsewhere = await say([`alias oc=${folder}/other/oc4`, ...lines]);
      expect(elsewhere.stderr).to.equal('');
      expect(elsewhere.stdout).to.equal(
        words('oc4', 'get', 'pods') + create + words('oc-adm_release_mirror_config', '--apply-config'),
      );
      const chosen = await say([`alias oc='oc --context=prod'`, ...lines]);
      expect(chosen.stderr).to.equal('');
      expect(chosen.stdout).to.equal(
        words('oc', '--context=prod', 'get', 'pods') +
          create +
          words('oc-adm_release_mirror_config', '--context=prod', '--apply-config'),
      );
      const assigned = await say([`alias oc='KUBECONFIG=$HOME/k command oc'`, ...lines], { env: { SHOW: '1' } });
      expect(assigned.stderr).to.equal('');
      expect(assigned.stdout.match(/^KUBECONFIG=.*$/gm)).to.deep.equal(Array(3).fill(`KUBECONFIG=${folder}/k`));
    });

    it('leaves an alias that is more than an oc, and a function of the user, and says so', async () => {
      for (const mine of [
        `alias oc='env oc'`,
        `alias oc='oc -n x'`,
        `alias oc='echo mine; command oc'`,
        shell === 'fish' ? 'function oc; command oc --mine $argv; end' : 'function oc { command oc --mine "$@"; }',
      ]) {
        const { stdout, stderr } = await say([mine, 'HOOK', 'oc adm upgrade create bundle']);
        expect(stderr).to.match(/^oc: .* call the plugins as oc adm-upgrade-bundle/);
        expect(stdout, mine).to.match(/^ {2}\[adm\]\n {2}\[upgrade\]\n {2}\[create\]\n {2}\[bundle\]$/m);
      }
    });

    it('can be loaded twice, with an alias too', async () => {
      const { stdout, stderr } = await say([
        `alias oc='oc --context=prod'`,
        'HOOK',
        'HOOK',
        'oc get pods',
        'oc adm release mirror --apply-config',
      ]);
      expect(stderr).to.equal('');
      expect(stdout).to.equal(
        words('oc', '--context=prod', 'get', 'pods') +
          words('oc-adm_release_mirror_config', '--context=prod', '--apply-config'),
      );
    });

    it('does without an oc, and reports its absence as before', async () => {
      const status = shell === 'fish' ? '$status' : '$?';
      const { stdout, stderr } = await say(['HOOK', 'oc adm upgrade create bundle', 'oc get pods', `echo ${status}`], {
        folders: ['plugins'],
      });
      expect(stdout).to.equal(`${words('oc-adm_upgrade_bundle', 'create')}127\n`);
      expect(stderr).to.match(/oc/);
    });

    it('says which plugin is missing, and finds one that krew installed', async () => {
      const status = shell === 'fish' ? '$status' : '$?';
      const absent = await say(['HOOK', 'oc adm upgrade create bundle', `echo ${status}`], { folders: ['bin'] });
      expect(absent.stdout).to.equal('127\n');
      expect(absent.stderr).to.equal('oc: the plugin oc-adm_upgrade_bundle is not on the PATH\n');
      await mkdir(join(folder, 'krew'), { recursive: true });
      await writeFile(join(folder, 'krew/kubectl-adm_upgrade_bundle'), standIn, { mode: 0o755 });
      const found = await say(['HOOK', 'oc adm upgrade create bundle'], { folders: ['bin', 'krew'] });
      expect(found.stdout).to.equal(words('kubectl-adm_upgrade_bundle', 'create'));
    });

    if (shell !== 'fish') {
      it('works if unset variables and failures end the shell', async () => {
        const { code, stdout, stderr } = await say(['set -eu', 'HOOK', 'oc', 'oc adm', 'oc adm upgrade create bundle']);
        expect({ code, stderr }).to.deep.equal({ code: 0, stderr: '' });
        expect(stdout).to.equal(words('oc') + words('oc', 'adm') + words('oc-adm_upgrade_bundle', 'create'));
      });
    }
  });
}
