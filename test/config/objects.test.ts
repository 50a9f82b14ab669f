import { expect } from 'chai';
import { readObjects } from '../../lib/config/manifest.ts';
import { PluginError } from '../../lib/errors.ts';

describe('readObjects', () => {
  it('reads the objects of all documents, and those inside of lists', () => {
    const text = 'kind: A\n---\n---\nkind: List\nitems:\n- kind: B\n- kind: List\n  items: [{kind: C}]\n';
    expect(readObjects(text, 'x.yaml').map(({ kind }) => kind)).to.deep.equal(['A', 'B', 'C']);
    expect(readObjects('{"kind": "D"}', 'x.json')).to.deep.equal([{ kind: 'D' }]);
  });

  it('reads nothing out of nothing, and an object without fields out of what is none', () => {
    expect(readObjects('', 'x.yaml')).to.deep.equal([]);
    expect(readObjects('just words', 'x.yaml')).to.deep.equal([{}]);
  });

  it('names a file that is neither YAML nor JSON', () => {
    expect(() => readObjects('a: [', 'broken.yaml')).to.throw(PluginError, /broken\.yaml is neither/);
  });
});
