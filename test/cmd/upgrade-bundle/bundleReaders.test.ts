import { expect } from 'chai';
import { commandNameOf } from '../../../cmd/cli/command.ts';
import { programs } from '../../support/project/docs.ts';

/** The commands that read a bundle or a mirror directory and check no signature. They change nothing. */
const unchecked = [
  'oc adm-upgrade-bundle inspect',
  'oc adm-upgrade-bundle diff',
  'oc adm-upgrade-bundle lint',
  'oc adm-upgrade-bundle watch',
  'oc adm-upgrade-bundle mirror-serve',
  'oc adm-release-mirror-config list',
];
/** No signature covers the images of a mirror registry. */
const withoutSignatures = ['bundle', 'plan', 'upgrade', 'rollback'].map((verb) => `oc adm-mirror-registry ${verb}`);
/** The commands that mention bundles and open none. */
const others = [
  ...['status', 'resume', 'abort', 'clean', 'gather', 'receipt', 'uninstall', 'install'].map(
    (verb) => `oc adm-upgrade-bundle ${verb}`,
  ),
  'oc adm-release-mirror-config prune',
];

describe('the commands that read bundles', () => {
  it('check the signatures with the same options, or say that they check none', async () => {
    const seen: string[] = [];
    for (const program of programs) {
      for (const entry of program.commands) {
        const { command } = await entry.load();
        const all = Object.values({ ...command.options, ...command.positionals });
        const reads = all.some(
          ({ describe: words, suggest }) => suggest === 'bundles' || /bundle|mirror directory/i.test(words),
        );
        const name = `${program.name} ${commandNameOf(entry)}`;
        if ((!reads && !unchecked.includes(name)) || others.includes(name)) continue;
        seen.push(name);
        const isChecked = 'allow-unsigned' in command.options || 'skip-verification' in command.options;
        expect(isChecked, name).to.equal(!unchecked.includes(name) && !withoutSignatures.includes(name));
        if (!isChecked) expect(command.details, name).to.contain('Checks no signature');
      }
    }
    expect(seen).to.include.members([...unchecked, ...withoutSignatures, 'oc adm-upgrade-bundle pin']);
  });
});
