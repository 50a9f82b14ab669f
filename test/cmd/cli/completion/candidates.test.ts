import { expect } from 'chai';
import { findCandidates, type Completion } from '../../../../cmd/cli/completion/candidates.ts';
import { mirrorRegistry } from '../../../../cmd/mirror-registry/commands.ts';
import { releaseMirrorConfig } from '../../../../cmd/release-mirror-config/commands.ts';
import { upgradeBundle } from '../../../../cmd/upgrade-bundle/commands.ts';

describe('findCandidates', () => {
  /** The kind of values that was asked for last, and the values on the command line. */
  let asked: [kind: string, values: unknown];
  /** Returns the suggestions for the last word of a command line. `Z` marks an empty last word. */
  function complete(line: string, program = upgradeBundle): Promise<Completion> {
    const words = line.replace(/Z$/, '').split(' ');
    return findCandidates(program, words, (kind, values) => {
      asked = [kind, values];
      return Promise.resolve(['4.20.3', 'name']);
    });
  }
  const wordsOf = async (line: string, program = upgradeBundle): Promise<string[]> =>
    (await complete(line, program)).candidates.map(({ word }) => word);

  it('offers the commands with their summaries', async () => {
    expect(await wordsOf('Z')).to.deep.equal(
      upgradeBundle.commands.flatMap(({ usage, isInternal }) => (isInternal ? [] : [usage.split(' ')[0]])),
    );
    expect((await complete('insp')).candidates).to.deep.equal([
      { word: 'inspect', describe: 'Show the contents of a bundle' },
    ]);
    expect(await wordsOf('help cr')).to.deep.equal(['create']);
    expect(await wordsOf('help create Z')).to.deep.equal([]);
    expect(await wordsOf('-v cr')).to.deep.equal(['create']);
    expect(await wordsOf('dance Z')).to.deep.equal([]);
  });

  it('offers options that are not there yet', async () => {
    expect(await wordsOf('create --ar')).to.deep.equal(['--arch']);
    expect(await wordsOf('create --dry')).to.deep.equal(['--dry-run']);
    const left = await wordsOf('create --arch=x86_64 --dry-run=client -a secret --extra-image=i --');
    expect(left).to.include.members(['--version', '--extra-image', '--verbose', '--help']);
    expect(left).to.not.include.members(['--arch']).and.to.not.include.members(['--dry-run']);
    expect(left).to.not.include.members(['--pull-secret']);
    // A bare --dry-run and --color take no word as their value.
    expect(await wordsOf('install --dry-run --wa')).to.deep.equal(['--wait']);
    expect(await wordsOf('shell-hook --color ba')).to.deep.equal(['bash']);
    expect(await wordsOf('--ver')).to.deep.equal(['--version', '--verbose']);
    expect(await wordsOf('inspect --vers')).to.deep.equal([]);
    // Only options can follow.
    expect(await wordsOf('install Z')).to.include('--timeout');
  });

  it('offers the choices of a value, however it is typed, without the option', async () => {
    for (const line of ['create --arch=a', 'create --arch a']) {
      expect(await wordsOf(line)).to.deep.equal(['aarch64', 'amd64', 'arm64']);
    }
    expect(await wordsOf('inspect b -o Z')).to.deep.equal(['json', 'yaml', 'wide', 'html']);
    expect((await complete('install --dry-run=n')).candidates).to.deep.equal([
      { word: 'none', describe: 'the default' },
    ]);
    expect(await wordsOf('--print-mirror-instructions=I', releaseMirrorConfig)).to.deep.equal(['idms', 'icsp']);
    expect(await wordsOf('shell-hook Z')).to.deep.equal(['bash', 'zsh', 'fish']);
    expect(await wordsOf('certs s', mirrorRegistry)).to.deep.equal(['status']);
  });

  it('leaves files and folders to the shell, and offers nothing if neither is possible', async () => {
    expect(await complete('create -a Z')).to.deep.equal({ candidates: [], otherwise: 'files' });
    expect(await complete('inspect -- -Z')).to.deep.equal({ candidates: [], otherwise: 'files' });
    expect(await complete('create --output=/m')).to.deep.equal({ candidates: [], otherwise: 'folders' });
    expect(await complete('create -a Z')).to.deep.equal({ candidates: [], otherwise: 'files' });
    for (const line of ['preflight --token=Z', 'create --max-per-registry Z', 'create --no-such=Z', 'pin a b']) {
      expect(await complete(line), line).to.deep.equal({ candidates: [], otherwise: 'nothing' });
    }
  });

  it('asks the cluster for values, with the given options', async () => {
    expect(await wordsOf('preflight --kubeconfig=k --context=Z')).to.deep.equal(['4.20.3', 'name']);
    expect(asked).to.deep.equal(['contexts', { kubeconfig: ['k'] }]);
    expect(await wordsOf('load b.tar --images Z')).to.deep.equal(['4.20.3', 'name']);
    expect(asked).to.deep.equal(['components', { bundle: ['b.tar'] }]);
    expect(await wordsOf('load b.tar --images x')).to.deep.equal([]);
  });

  it('knows a program that does something without a command', async () => {
    expect(await wordsOf('Z', releaseMirrorConfig)).to.include.members(['apply', '4.20.3']);
    expect(await wordsOf('4.12.4 app', releaseMirrorConfig)).to.deep.equal([]);
    expect(await wordsOf('4.12.4 --to-d', releaseMirrorConfig)).to.deep.equal(['--to-dir']);
    expect(await wordsOf('apply c --overw', releaseMirrorConfig)).to.deep.equal(['--overwrite']);
    expect(await wordsOf('apply c --to-d', releaseMirrorConfig)).to.deep.equal([]);
  });

  it('offers no value that a shell could expand, and none like an option', async () => {
    const kinds = {
      'load b --images': 'release',
      'preflight --context': 'default/api-site:6443/kube:admin',
      'preflight --cluster': 'api-site:6443',
      'preflight --user': 'kube@site',
      'create --version': '4.20.3-rc.1',
      resume: 'site-4.20.3',
      'agent --node-name': 'worker-0.site.example',
      verify: '/run/media/a/upgrade-4.20.3-x86_64.tar',
    };
    const parts = [
      '$(x)',
      '`x`',
      '$x',
      '${x}',
      ' x',
      "'",
      '"',
      '\\',
      ';',
      '&',
      '|',
      '<',
      '>',
      '\n',
      '\t',
      '\x1b',
      '*',
      '?',
      '[x]',
    ];
    for (const [line, good] of Object.entries(kinds)) {
      const spoiled = parts.flatMap((part) => [good + part, good.slice(0, 1) + part + good.slice(1), part + good]);
      const offered = await findCandidates(upgradeBundle, [...line.split(' '), ''], () =>
        Promise.resolve([...spoiled, `--${good}`, good.padEnd(5000, 'x'), good]),
      );
      expect(
        offered.candidates.map(({ word }) => word),
        line,
      ).to.include(good);
      expect(
        offered.candidates.map(({ word }) => word).filter((word) => !word.startsWith('--') || word.includes(good)),
        line,
      ).to.deep.equal([good]);
    }
  });
});
