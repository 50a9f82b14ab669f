import { expect } from 'chai';
import { callOf } from '../../cmd/cli/command.ts';
import { programs } from '../support/project/docs.ts';
import { differences, readOutputs } from '../support/program/outputs.ts';

/** Commands whose JSON is not recorded yet. */
const unrecorded = [
  ...['create', 'inspect', 'diff', 'verify', 'receipt', 'lint', 'preflight', 'drill', 'status', 'load', 'pin', 'mirror']
    .concat('watch', 'push', 'doctor')
    .map((name) => `oc adm-upgrade-bundle ${name}`),
  ...['', ' apply', ' list', ' prune'].map((name) => `oc adm-release-mirror-config${name}`),
  ...['bundle', 'plan', 'certs', 'upgrade', 'status'].map((name) => `oc adm-mirror-registry ${name}`),
];

describe('test/golden/outputs.json', () => {
  it('has every command that prints JSON', async () => {
    const printing: string[] = [];
    for (const program of programs) {
      for (const entry of program.commands) {
        const { output, format } = (await entry.load()).command.options;
        if ([output, format].some((option) => option?.choices?.includes('json'))) printing.push(callOf(program, entry));
      }
    }
    expect([...Object.keys(readOutputs()), ...unrecorded]).to.have.members(printing);
  });

  it('is compared with what a command prints: missing fields, new ones, and types', () => {
    const known = { name: 'string', phase: 'string', 'images?': 'string[]' };
    expect(differences(known, { name: 'string', phase: 'string', images: '[]' })).to.deep.equal([]);
    expect(differences(known, { name: 'string', phase: 'number', more: 'string' })).to.deep.equal([
      'phase: number',
      'more: string',
    ]);
    expect(differences(known, { name: 'string' })).to.deep.equal(['phase']);
  });
});
