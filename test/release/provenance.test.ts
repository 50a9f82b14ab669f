import { expect } from 'chai';
import { readProvenance } from '../../lib/release/release.ts';

describe('readProvenance', () => {
  const read = (...versions: string[]): ReturnType<typeof readProvenance> => {
    const tags = versions.map((text, index) => ({
      name: `component-${index}`,
      annotations: { 'io.openshift.build.versions': text },
    }));
    return readProvenance(new Map([['image-references', Buffer.from(JSON.stringify({ spec: { tags } }))]]));
  };

  it('names each operating system of a release with two, once', () => {
    const [el9, el10] = ['9.8.20260419-0', '10.2.20260420-0'];
    const { versions } = read(`machine-os=${el9}`, `machine-os=${el10},kubernetes=1.35.1`, `machine-os=${el9}`);
    expect(versions).to.deep.equal({ 'machine-os': `${el9}, ${el10}`, kubernetes: '1.35.1' });
  });

  it('leaves out versions of another form', () => {
    expect(read('machine-os=<b>', 'Kubernetes=1', 'x', 'constructor=1').versions).to.deep.equal({ constructor: '1' });
  });
});
