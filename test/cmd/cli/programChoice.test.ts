import { expect } from 'chai';
import { chooseProgram, isCompleter, nameAsCalled } from '../../../cmd/cli/programChoice.ts';

describe('nameAsCalled', () => {
  it('names kubectl if kubectl calls the program', () => {
    const program = { name: 'oc adm-upgrade-bundle', describe: '', commands: [] };
    const called = (...names: string[]): string => nameAsCalled(program, names).name;
    expect(called('node', '/bin/kubectl-adm_upgrade_bundle')).to.equal('kubectl adm-upgrade-bundle');
    expect(called('kubectl-adm_upgrade_bundle.exe')).to.equal('kubectl adm-upgrade-bundle');
    expect(called('/opt/kubectl-tools/oc-adm_upgrade_bundle')).to.equal('oc adm-upgrade-bundle');
  });
});

describe('chooseProgram', () => {
  const [first, second] = ['adm-upgrade-bundle', 'adm-mirror-registry'].map((word) => ({
    name: `oc ${word}`,
    describe: 'Do something.',
    commands: [],
  }));
  const choose = (calledBy: string, ...argv: string[]): [string, ...string[]] => {
    if (!first || !second) throw new Error('unreachable');
    const chosen = chooseProgram([first, second], calledBy, argv);
    return [chosen.program.name, ...chosen.argv];
  };

  it('goes by the name that the executable is called by', () => {
    for (const name of ['oc-adm_mirror_registry', 'kubectl-adm_mirror_registry', 'oc-adm_mirror_registry.exe']) {
      expect(choose(name, 'status')).to.deep.equal(['oc adm-mirror-registry', 'status']);
    }
  });

  it('knows the name by which kubectl requests completions', () => {
    for (const name of ['kubectl_complete-adm_mirror_registry', 'oc_complete-adm_mirror_registry']) {
      expect(choose(name, 'st')).to.deep.equal(['oc adm-mirror-registry', 'st']);
      expect(isCompleter(['node', `/bin/${name}`])).to.equal(true);
    }
    expect(isCompleter(['/opt/kubectl_complete-x/oc-adm_mirror_registry', ''])).to.equal(false);
  });

  it('lists the programs without words, and if they ask for help', () => {
    for (const words of [[], ['help'], ['--help'], ['-h']])
      expect(choose('oc-disconnected', ...words)).to.deep.equal(['oc-disconnected', ...words]);
    expect(choose('oc-disconnected', 'status', '--help')[0]).to.equal('oc adm-upgrade-bundle');
  });

  it('else goes by the first word', () => {
    expect(choose('oc-disconnected', 'adm-mirror-registry', 'status')).to.deep.equal([
      'oc adm-mirror-registry',
      'status',
    ]);
  });

  it('else is the first program', () => {
    expect(choose('oc-disconnected', 'status')).to.deep.equal(['oc adm-upgrade-bundle', 'status']);
    expect(choose('renamed', 'create', '--help')).to.deep.equal(['oc adm-upgrade-bundle', 'create', '--help']);
  });
});
