import { chmod, cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { bashCompletion } from '../../cmd/cli/completion/bashCompletion.ts';
import { fishCompletion } from '../../cmd/cli/completion/fishCompletion.ts';
import { zshCompletion } from '../../cmd/cli/completion/zshCompletion.ts';
import { hookOf } from '../../cmd/upgrade-bundle/shell-hook/shellHook.ts';
import { upgradeBundleKind } from '../../lib/update/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../lib/update/upgradeBundleDefinition.ts';
import { startApiServer, type TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { requirePeer, run, runSuccessfully } from '../support/peers.ts';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** Each shell with an earlier completion of oc, which suggests `get` and `own-thing`, with ours, and with the hook. */
const shells = {
  bash: {
    file: '.bashrc',
    command: (home: string) => `bash --noprofile --rcfile ${home}/.bashrc -i`,
    start: [
      `_own_oc() { COMPREPLY=($(compgen -W 'get own-thing' -- "$2")); }`,
      'complete -o default -F _own_oc oc',
      bashCompletion,
      hookOf('bash', false),
    ],
  },
  zsh: {
    file: '.zshrc',
    command: () => 'zsh -i',
    start: [
      'autoload -Uz compinit && compinit -u -D',
      '_own_oc() { compadd get own-thing; }',
      'compdef _own_oc oc',
      zshCompletion,
      hookOf('zsh', false),
    ],
  },
  fish: {
    file: '.config/fish/config.fish',
    command: () => 'fish -i',
    start: [
      `function fish_prompt; echo '$ '; end; set -g fish_greeting; set -g fish_autosuggestion_enabled 0`,
      `complete -c oc -f -a 'get own-thing'`,
      fishCompletion,
      hookOf('fish', false),
    ],
  },
};

/** The folder with the executables, which are built once for all shells. */
let built: Promise<string> | undefined;
after(async () => {
  if (built) await rm(await built, { recursive: true });
});

async function build(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'completion-'));
  await runSuccessfully(process.execPath, [join(root, '.config/build.ts'), folder]);
  return folder;
}

for (const [shell, { file, command, start }] of Object.entries(shells)) {
  describe(`completion in ${shell}`, function () {
    requirePeer(this, 'tmux', shell as keyof typeof shells);
    let home: string;
    let server: TestApiServer | undefined;
    let sessions = 0;
    before(async () => {
      home = await mkdtemp(join(tmpdir(), 'completion-'));
      server = await startApiServer({ openshift: '4.19.3' });
      server.put(upgradeBundleDefinition());
      server.put({ ...upgradeBundleKind, metadata: { name: '4.19.4-x86-64' }, spec: { bundle: {} } });
      await cp(await (built ??= build()), home, { recursive: true });
      await writeFile(join(home, 'bin/oc'), '#!/bin/sh\nexit 1\n');
      await chmod(join(home, 'bin/oc'), 0o755);
      await mkdir(join(home, 'drive'));
      await writeFile(join(home, 'drive/upgrade.tar'), '');
      await writeFile(join(home, 'drive.txt'), '');
      await writeFile(
        join(home, 'kubeconfig'),
        JSON.stringify({
          contexts: [{ name: 'default/api-site:6443/admin' }, { name: 'other', context: { cluster: 'site' } }],
          clusters: [{ name: 'site', cluster: { server: server.url } }],
        }),
      );
      await mkdir(dirname(join(home, file)), { recursive: true });
      await writeFile(
        join(home, file),
        [...start, `cd ${home}`, `PS1='$ '`].slice(0, shell === 'fish' ? -1 : undefined).join('\n'),
      );
    });
    after(async () => {
      await server?.stop();
      // A stopped shell may still write its history.
      if (home) await rm(home, { recursive: true, force: true, maxRetries: 10 });
    });

    /**
     * Types keys into the shell on its own terminal, and waits for the expected output of each. Returns the final
     * screen.
     */
    async function type(steps: readonly (readonly [keys: string, shown: string | RegExp])[]): Promise<string> {
      const socket = join(home, `tmux-${(sessions += 1)}`);
      const tmux = (...args: string[]): Promise<string> => runSuccessfully('tmux', ['-S', socket, ...args]);
      const env = {
        ...{ HOME: home, ZDOTDIR: home, XDG_CONFIG_HOME: join(home, '.config'), LANG: 'C.UTF-8' },
        ...{ KUBECONFIG: join(home, 'kubeconfig') },
        PATH: [join(home, 'bin'), dirname(process.execPath), '/usr/bin:/bin'].join(delimiter),
      };
      const words = Object.entries(env).map(([name, value]) => `${name}='${value}'`);
      await tmux(
        '-f',
        '/dev/null',
        'new-session',
        '-d',
        '-x',
        '130',
        '-y',
        '50',
        ['env', ...words, command(home)].join(' '),
      );
      try {
        await waitFor(tmux, /^\$/);
        let screen = '';
        for (const [keys, shown] of steps) {
          await tmux('send-keys', '-l', '--', keys);
          screen = await waitFor(tmux, shown);
        }
        return screen;
      } finally {
        await run('tmux', ['-S', socket, 'kill-server']);
      }
    }

    async function waitFor(tmux: (...args: string[]) => Promise<string>, shown: string | RegExp): Promise<string> {
      let screen = '';
      for (let attempt = 0; attempt < 200; attempt += 1) {
        screen = await tmux('capture-pane', '-p');
        const text = screen.replace(/ +$/gm, '');
        if (typeof shown === 'string' ? text.includes(`$ ${shown}`) : shown.test(text)) return screen;
        await sleep(100);
      }
      throw new Error(`the screen does not show ${String(shown)}:\n${screen.trimEnd()}`);
    }

    it('completes the name of a plugin, a command, an option, its value, and a folder', async () => {
      await type([
        ['oc adm-up\t', 'oc adm-upgrade-bundle'],
        ['crea\t', 'oc adm-upgrade-bundle create'],
        ['--arc\t', 'oc adm-upgrade-bundle create --arch='],
        ['s3\t', 'oc adm-upgrade-bundle create --arch=s390x'],
        ['--output dri\t', 'oc adm-upgrade-bundle create --arch=s390x --output drive/'],
      ]);
      await type([['oc adm-upgrade-bundle create --output=dr\t', 'oc adm-upgrade-bundle create --output=drive/']]);
      await type([['oc adm-upgrade-bundle inspect drive/\t', 'oc adm-upgrade-bundle inspect drive/upgrade.tar']]);
    });

    it('shows descriptions if there are several candidates', async () => {
      const screen = await type([['oc adm-upgrade-bundle \t\t', /Verify a bundle, from its signature/]]);
      expect(screen).to.match(/^create +(--|\()/m);
    });

    it('completes a value with colons', async () => {
      const line = 'oc adm-upgrade-bundle preflight --context=default/api-site:6443/admin';
      await type([['oc adm-upgrade-bundle preflight --context=def\t', line]]);
      await type([['oc adm-upgrade-bundle preflight --context=default/api-site:\t', line]]);
    });

    it('completes a name that the cluster knows', async () => {
      const line = 'oc adm-upgrade-bundle status --context other 4.19.4-x86-64';
      await type([['oc adm-upgrade-bundle status --context other 4\t', line]]);
    });

    it('completes the literal commands, and leaves everything else to what completed oc before', async () => {
      await type([
        ['oc adm upgrade create \t', 'oc adm upgrade create bundle'],
        ['--vers\t', 'oc adm upgrade create bundle --version='],
      ]);
      await type([
        ['oc adm release mirror --apply-config --overw\t', 'oc adm release mirror --apply-config --overwrite'],
      ]);
      await type([['oc own\t', 'oc own-thing']]);
      await type([['oc adm upgrade own\t', 'oc adm upgrade own-thing']]);
      await type([['oc adm release mirror --x own\t', 'oc adm release mirror --x own-thing']]);
    });

    it('completes executables by their own names and paths', async () => {
      await type([['oc-adm_mirror_registry certs sta\t', 'oc-adm_mirror_registry certs status']]);
      await type([['./bin/oc-adm_release_mirror_config app\t', './bin/oc-adm_release_mirror_config apply']]);
    });

    it('completes what the cursor stands at, in quotes and behind other commands', async () => {
      await type([
        [`true; oc adm-upgrade-bundle inspect 'a b' -o wi\t`, `true; oc adm-upgrade-bundle inspect 'a b' -o wide`],
      ]);
    });

    it('shows nothing if a plugin is missing', async () => {
      await rm(join(home, 'bin/oc-adm_mirror_registry'));
      const screen = await type([['oc adm-mirror-registry sta\tx', 'oc adm-mirror-registry stax']]);
      expect(screen.trim()).to.equal('$ oc adm-mirror-registry stax');
    });
  });
}
