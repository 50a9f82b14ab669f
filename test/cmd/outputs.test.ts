import { expect } from 'chai';
import { callOf, type Command, type CommandEntry, type Program } from '../../cmd/cli/command.ts';
import { differences, parseFields, readOutputs } from '../support/program/outputs.ts';
import { programs } from '../support/project/docs.ts';

/** Outputs in the format of another project. */
const foreign = ['oc adm-upgrade-bundle verify --sign-key'];

describe('test/golden/outputs.json', () => {
  it('has every command that prints JSON', async () => {
    const printing: string[] = [];
    for (const program of programs) {
      for (const entry of program.commands) {
        const { command } = await entry.load();
        const { output, format } = command.options;
        if ([output, format].some((option) => option?.choices?.includes('json')))
          printing.push(...callsOf(program, entry, command));
      }
    }
    const recorded = [...readOutputs().keys()].map((call) => call.replace(/ --.*$/, ''));
    expect([...new Set(recorded)]).to.have.members(printing);
  });

  it('describes each field, and has the version in each object', () => {
    for (const [call, fields] of readOutputs()) {
      for (const [path, { description }] of fields) {
        // The command that adds a field to the file does not know its meaning: add it there.
        expect(description, `the description of ${path} of ${call}`).to.match(/^[A-Z`].*[^.]$/);
      }
      const start = fields.get('[]')?.types.includes('object') ? '[].' : '';
      const isObject = fields.get('apiVersion')?.optional === false;
      const isOther = isObject || foreign.includes(call) || fields.get('[]')?.types[0] === 'string';
      expect(fields.has(`${start}outputVersion`), call).to.equal(!isOther);
    }
  });

  it('is compared with the output of a command: missing fields, new ones, and types', () => {
    const known = parseFields({
      name: 'string: The name',
      begun: 'date',
      'images?': 'object[]',
      'images[].size?': 'number',
      'images[].name': 'string | null',
    });
    const printed = parseFields({ name: 'string', begun: 'date' });
    expect(differences(known, printed)).to.deep.equal([]);
    expect(differences(known, parseFields({ name: 'string', begun: 'date', images: '[]' }))).to.deep.equal([]);
    expect(differences(known, parseFields({ name: 'number', begun: 'string', more: 'string' }))).to.deep.equal([
      'name: number',
      'begun: string',
      'more: string',
    ]);
    expect(differences(known, parseFields({ name: 'string', images: 'object[]' }))).to.deep.equal([
      'begun',
      'images[].name',
    ]);
  });
});

/** Returns the words that call a command with each of its actions. */
function callsOf(program: Program, entry: CommandEntry, { positionals = {} }: Command): string[] {
  const actions = (positionals['action'] ?? positionals['what'])?.choices;
  const call = callOf(program, entry);
  return actions ? actions.map((action) => `${call} ${action}`) : [call];
}
