import { chmod, cp, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'chai';
import { buildExecutables } from '../../.config/executables.ts';
import { hookOf } from '../../cmd/upgrade-bundle/shell-hook/shellHook.ts';
import { upgradeBundleKind } from '../../lib/update/record/upgradeBundle.ts';
import { upgradeBundleDefinition } from '../../lib/update/record/upgradeBundleDefinition.ts';
import { startApiServer, type TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { requirePeer, run, runSuccessfully } from '../support/peers.ts';

/** Each shell with the completion of oc and kubectl, and with the hook. */
const shells = {
  bash: {
    file: '.bashrc',
    command: (home: string) => `bash --noprofile --rcfile ${home}/.bashrc -i`,
    before: ['. /usr/share/bash-completion/bash_completion'],
    after: [`PS1='$ '`],
  },
  zsh: {
    file: '.zshrc',
    command: () => 'zsh -i',
    before: ['autoload -Uz compinit && compinit -u -D'],
    after: [`PS1='$ '`],
  },
  fish: {
    file: '.config/fish/config.fish',
    command: () => 'fish -i',
    before: [`function fish_prompt; echo '$ '; end; set -g fish_greeting; set -g fish_autosuggestion_enabled 0`],
    after: [],
  },
};

for (const [shell, { file, command, before: first, after: last }] of Object.entries(shells)) {
  describe(`completion in ${shell}`, function () {
    requirePeer(this, 'tmux', 'kubectl', shell as keyof typeof shells);
    if (shell === 'bash') requirePeer(this, 'dh_bash-completion');
    let home: string;
    let server: TestApiServer | undefined;
    let sessions = 0;
    before(async () => {
      home = await mkdtemp(join(tmpdir(), 'completion-'));
      server = await startApiServer({ openshift: '4.19.3' });
      server.put(upgradeBundleDefinition());
      server.put({ ...upgradeBundleKind, metadata: { name: '4.19.4-x86-64' }, spec: { bundle: {} } });
      await cp(await buildExecutables(), home, { recursive: true });
      // The code of oc that completes plugins is that of kubectl, which asks for other names.
      await writeFile(join(home, 'bin/oc'), '#!/bin/sh\nexec kubectl "$@"\n');
      await chmod(join(home, 'bin/oc'), 0o755);
      for (const name of ['adm_upgrade_bundle', 'adm_release_mirror_config', 'adm_mirror_registry'])
        await symlink(`oc-${name}`, join(home, `bin/kubectl-${name}`));
      const { PATH = '' } = process.env;
      const env = { PATH: [join(home, 'bin'), dirname(process.execPath), PATH].join(delimiter) };
      await runSuccessfully('sh', ['-c', 'oc-adm_upgrade_bundle completion | sh'], { env });
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
      const completion = await runSuccessfully('kubectl', ['completion', shell]);
      const hook = hookOf(shell as keyof typeof shells, false);
      await writeFile(
        join(home, file),
        [...first, completion, completion.replaceAll('kubectl', 'oc'), hook, `cd ${home}`, ...last].join('\n'),
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
        HOME: home,
        ZDOTDIR: home,
        XDG_CONFIG_HOME: join(home, '.config'),
        LANG: 'C.UTF-8',
        KUBECONFIG: join(home, 'kubeconfig'),
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
        ['--arc\t', 'oc adm-upgrade-bundle create --arch'],
        ['s3\t', 'oc adm-upgrade-bundle create --arch s390x'],
      ]);
      // The completion that kubectl and oc have for fish offers files too.
      const after = shell === 'fish' ? 'drive' : 'drive/';
      await type([['oc adm-upgrade-bundle create --output dri\t', `oc adm-upgrade-bundle create --output ${after}`]]);
      await type([['oc adm-upgrade-bundle create --output=dr\t', `oc adm-upgrade-bundle create --output=${after}`]]);
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

    it('completes the literal commands, and leaves everything else to oc', async () => {
      await type([
        ['oc adm upgrade create \t', 'oc adm upgrade create bundle'],
        ['--vers\t', 'oc adm upgrade create bundle --version'],
      ]);
      await type([
        ['oc adm release mirror --apply-config --overw\t', 'oc adm release mirror --apply-config --overwrite'],
      ]);
      await type([['oc cluster-in\t', 'oc cluster-info']]);
      await type([['oc config use-context oth\t', 'oc config use-context other']]);
    });

    it('completes the word at the cursor, in quotes and behind other commands', async () => {
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
