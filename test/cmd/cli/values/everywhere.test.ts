import { expect } from 'chai';
import type { Option } from '../../../../cmd/cli/command.ts';
import { architectures, goArchitecture } from '../../../../lib/release/version.ts';
import { programs } from '../../../support/project/docs.ts';

/** Returns the options with a name in all programs, by their commands. */
async function listOptions(name: string): Promise<Map<string, Option>> {
  const found = new Map<string, Option>();
  for (const program of programs) {
    for (const entry of program.commands) {
      const option = (await entry.load()).command.options[name];
      if (option) found.set(`${program.name} ${entry.usage}`, option);
    }
  }
  return found;
}

describe('a value that several commands ask for', () => {
  it('is a digest with or without sha256:', async () => {
    const options = await listOptions('digest');
    expect([...options.keys()].map((name) => name.split(' ')[2])).to.have.members([
      'verify',
      'load',
      'apply',
      'retain',
      'receipt',
      'bundle',
      'upgrade',
      'rollback',
    ]);
    for (const [command, option] of options) {
      expect(option, command).to.have.property('check');
      for (const digest of ['a'.repeat(64), 'A'.repeat(64), `sha256:${'a'.repeat(64)}`]) await option.check?.(digest);
      for (const text of ['12', `sha512:${'a'.repeat(64)}`, `sha256:${'g'.repeat(64)}`])
        expect(() => option.check?.(text), command).to.throw('64 hex digits, with or without sha256:');
    }
  });

  it('is an architecture by its own name or by the name in images', async () => {
    const options = await listOptions('arch');
    expect(options.size).to.be.at.least(6);
    const names = new Set(architectures.flatMap((arch) => [arch, goArchitecture(arch) ?? arch]));
    for (const [command, { choices }] of options) {
      const host = command.startsWith('oc adm-mirror-registry');
      expect(choices, command).to.include.members(host ? ['x86_64', 'amd64', 'aarch64', 'arm64'] : [...names]);
    }
  });
});
