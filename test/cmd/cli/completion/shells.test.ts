import { access, mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { requirePeer, run, runSuccessfully, type Peer } from '../../../support/peers.ts';
import { executeProgram } from '../../../support/program/execution.ts';

const executable = fileURLToPath(new URL('../../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url));

/** Commands that run if a shell expands the name. `RAN` is the file that each of them creates. */
const commands = ['$(touch${IFS}RAN)', '`touch${IFS}RAN`', '${x:-$(touch${IFS}RAN)}', "';touch RAN;'", '$(touch RAN)'];
const hostile = [
  ...commands,
  ...commands.map((command) => `"${command}"`),
  '(e:touch RAN:)',
  '$[$(touch RAN)]',
  '\n:16\n',
];

/** What bash-completion gives to the functions of cobra, and a completion of the words in the arguments. */
const completeInBash = `
_init_completion() { words=("\${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=\${words[cword]}; prev=\${words[cword-1]}; }
__ltrim_colon_completions() { :; }
compopt() { :; }
eval "$SCRIPT"
COMP_TYPE=9
COMP_WORDS=("$@")
COMP_CWORD=$((\${#COMP_WORDS[@]} - 1))
__start_"\${COMP_WORDS[0]}" 2>&1
printf '%s\\n' "\${COMPREPLY[@]}"
`;

/**
 * The same step as in the functions of cobra 1.8 and older, which expands each candidate. It stands in for programs
 * with such a function.
 */
const expandingScript = `
__start_standin() {
  _init_completion
  local out=$("\${words[@]:0:1}" __complete "\${words[@]:1}")
  IFS=$'\\n' read -ra COMPREPLY -d '' < <(compgen -W "\${out%:*}" -- "$cur")
}
`;

/** Types a line and Tab in zsh, and waits until the line has the name of the bundle. */
const completeInZsh = `
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'autoload -Uz compinit && compinit -u -D; eval "$SCRIPT"; compdef _kubectl kubectl; echo READY\${:-1}'
zpty -r z out '*READY1*'
zpty -w -n z 'kubectl verify upg'$'\\t'
zpty -r z out '*verify upgrade-4.20.4-x86_64.tar *'
zpty -d z
`;

/** Loads our script after a completion of oc, and completes the line in LINE. */
const completeByOurs = `
__former() { COMPREPLY=(former); }
complete -F __former oc
eval "$SCRIPT"
compopt() { :; }
COMP_LINE="$LINE" COMP_POINT=\${#LINE}
"$(complete -p oc | sed 's/.*-F \\([^ ]*\\).*/\\1/')" oc
printf '%s\\n' "\${COMPREPLY[@]}"
`;

/** The same in zsh: types the line and Tab, and waits until it has the name of the bundle. */
const completeByOursInZsh = `
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'autoload -Uz compinit && compinit -u -D; __former() { compadd former }; compdef __former oc; eval "$SCRIPT"; echo READY\${:-1}'
zpty -r z out '*READY1*'
zpty -w -n z 'oc adm-upgrade-bundle verify upg'$'\\t'
zpty -r z out '*verify upgrade-4.20.4-x86_64.tar *'
zpty -w -n z $'\\x15''oc get form'$'\\t'
zpty -r z out '*oc get former *'
zpty -d z
`;

describe('a shell that completes names of a drive, a folder and a kubeconfig', () => {
  let folder: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'completion-shells-'));
    await mkdir(join(folder, 'bin'));
    for (const name of ['kubectl', 'podman', 'skopeo', 'standin', 'oc', 'oc-adm_upgrade_bundle'])
      await symlink(executable, join(folder, 'bin', name));
    for (const name of hostile) {
      const file = name.replaceAll('/', '');
      for (const bundle of [`upgrade-4.20.3${file}-x86_64.tar`, `upgrade-4.20.3-x86_64${file}.tar`, `${file}.tar`])
        await writeFile(join(folder, bundle), '');
    }
    await writeFile(join(folder, 'upgrade-4.20.4-x86_64.tar'), '');
    const names = [...hostile, 'admin'];
    await writeFile(
      join(folder, 'kubeconfig'),
      JSON.stringify({
        contexts: names.map((name) => ({ name, context: { cluster: name, user: name } })),
        clusters: names.map((name) => ({ name, cluster: { server: 'https://192.0.2.1' } })),
        users: names.map((name) => ({ name, user: {} })),
      }),
    );
  });
  beforeEach(() => rm(join(folder, 'RAN'), { force: true }));
  after(() => rm(folder, { recursive: true, force: true }));

  /** Lines to complete, and what is offered for each. */
  const lines: [words: string[], offered: string[]][] = [
    [['verify', 'upg'], ['upgrade-4.20.4-x86_64.tar']],
    [['verify', ''], ['upgrade-4.20.4-x86_64.tar']],
    [['create', '--version', ''], ['4.20.4']],
    [['preflight', '--kubeconfig', 'kubeconfig', '--context', ''], ['admin']],
    [['preflight', '--kubeconfig', 'kubeconfig', '--cluster', ''], ['admin']],
    [['preflight', '--kubeconfig', 'kubeconfig', '--user', ''], ['admin']],
  ];
  const environment = (more: NodeJS.ProcessEnv): NodeJS.ProcessEnv => ({
    PATH: [join(folder, 'bin'), dirname(process.execPath), process.env['PATH']].join(delimiter),
    HOME: folder,
    TERM: 'dumb',
    ...more,
  });
  const script = (peer: Peer, shell: string): Promise<string> => runSuccessfully(peer, ['completion', shell]);
  const expectNothingRan = async (): Promise<void> => {
    await access(join(folder, 'RAN')).then(
      () => expect.fail('a name ran as a command'),
      () => undefined,
    );
  };

  for (const peer of ['kubectl', 'podman', 'skopeo', 'standin'] as const)
    it(`runs none of them in bash: the function of ${peer}`, async function () {
      requirePeer(this, 'bash');
      if (peer !== 'standin') requirePeer(this, peer);
      const source = peer === 'standin' ? expandingScript : await script(peer, 'bash');
      for (const [words, offered] of lines) {
        const args = ['--norc', '-c', completeInBash, 'bash', peer, ...words];
        const { stdout } = await run('bash', args, { cwd: folder, env: environment({ SCRIPT: source }) });
        await expectNothingRan();
        expect(stdout.trim().split('\n'), words.join(' ')).to.deep.equal(offered);
      }
    });

  const own = async (shell: string): Promise<string> =>
    (await executeProgram('oc-adm_upgrade_bundle', ['completion', shell])).stdout;

  it('runs none of them in bash: our own script, which leaves oc to its own', async function () {
    requirePeer(this, 'bash');
    const source = await own('bash');
    for (const [line, offered] of [
      ...lines.map(([words, found]) => [['oc adm-upgrade-bundle', ...words].join(' '), found] as const),
      ['oc adm-upgrade-bundle create --version=', ['4.20.4']] as const,
      ['oc adm-upgrade-bundle abo', ['abort']] as const,
      ['oc get po', ['former']] as const,
      ['oc adm-upgr', ['former']] as const,
    ]) {
      const args = ['--norc', '-c', completeByOurs];
      const env = environment({ SCRIPT: source, LINE: line });
      const { stdout } = await run('bash', args, { cwd: folder, env });
      await expectNothingRan();
      expect(stdout.trim().split('\n'), line).to.deep.equal(offered);
    }
  });

  it('runs none of them in zsh: our own script, which leaves oc to its own', async function () {
    requirePeer(this, 'zsh');
    const env = environment({ SCRIPT: await own('zsh') });
    expect((await run('zsh', ['-f', '-c', completeByOursInZsh], { cwd: folder, env })).code).to.equal(0);
    await expectNothingRan();
  });

  it('runs none of them in fish: our own script', async function () {
    requirePeer(this, 'fish');
    const source = join(folder, 'own.fish');
    await writeFile(source, await own('fish'));
    for (const [words, offered] of lines) {
      const env = environment({ LINE: ['oc', 'adm-upgrade-bundle', ...words].join(' ') });
      const completed = `source ${source}; complete -C "$LINE"`;
      const { stdout } = await run('fish', ['--no-config', '-c', completed], { cwd: folder, env });
      await expectNothingRan();
      expect(stdout.trim().split('\n'), words.join(' ')).to.deep.equal(offered);
    }
  });

  it('runs none of them in zsh', async function () {
    requirePeer(this, 'zsh', 'kubectl');
    const env = environment({ SCRIPT: await script('kubectl', 'zsh') });
    expect((await run('zsh', ['-f', '-c', completeInZsh], { cwd: folder, env })).code).to.equal(0);
    await expectNothingRan();
  });

  it('runs none of them in fish', async function () {
    requirePeer(this, 'fish', 'kubectl');
    const source = join(folder, 'kubectl.fish');
    await writeFile(source, await script('kubectl', 'fish'));
    for (const [words, offered] of lines) {
      const completed = `source ${source}; complete -C "$LINE"`;
      const env = environment({ LINE: ['kubectl', ...words].join(' ') });
      const { stdout } = await run('fish', ['--no-config', '-c', completed], { cwd: folder, env });
      await expectNothingRan();
      expect(stdout.trim().split('\n'), words.join(' ')).to.deep.equal(offered);
    }
  });
});
