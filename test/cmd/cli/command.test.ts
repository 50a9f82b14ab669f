import { expect } from 'chai';
import { callOf, commandNameOf, defaultOf, inGroup, namesOf, usageOf } from '../../../cmd/cli/command.ts';

const load = () => Promise.reject(new Error('not needed'));
const entryOf = (usage: string) => ({ usage, describe: '', load });

describe('the entry of a command', () => {
  const [create, list, mirror] = [entryOf('create [release]'), entryOf('list'), entryOf('$0 [release] <to>')];
  const program = { name: 'oc x', describe: '', commands: [create, list, mirror] };

  it('has the name and the call of its first word', () => {
    expect(program.commands.map(commandNameOf)).to.deep.equal(['create', 'list', '$0']);
    expect(program.commands.map((entry) => callOf(program, entry))).to.deep.equal(['oc x create', 'oc x list', 'oc x']);
  });

  it('has its arguments in its usage, also without a name', () => {
    expect(program.commands.map((entry) => usageOf(program, entry))).to.deep.equal([
      'oc x create [release]',
      'oc x list',
      'oc x [release] <to>',
    ]);
  });

  it('is the default of its program without a name', () => {
    expect(defaultOf(program)).to.equal(mirror);
    expect(defaultOf({ ...program, commands: [create, list] })).to.equal(undefined);
  });
});

describe('an option', () => {
  it('has its aliases as names, and not the hidden one', () => {
    const option = { type: 'string', describe: '', hiddenAlias: 'filename' } as const;
    expect(namesOf(['file', option])).to.deep.equal(['file']);
    expect(namesOf(['file', { ...option, alias: 'f' }])).to.deep.equal(['file', 'f']);
    expect(namesOf(['pull-secret', { ...option, alias: ['a', 'b'] }])).to.deep.equal(['pull-secret', 'a', 'b']);
  });

  it('gets the heading of a group, unless it has one', () => {
    const made = inGroup('Size:', {
      a: { type: 'string', describe: 'A' },
      b: { type: 'boolean', describe: 'B', group: 'Trust:' },
    });
    expect(made).to.deep.equal({
      a: { type: 'string', describe: 'A', group: 'Size:' },
      b: { type: 'boolean', describe: 'B', group: 'Trust:' },
    });
  });
});
