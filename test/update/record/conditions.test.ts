import { expect } from 'chai';
import { findReason } from '../../../lib/update/record/conditions.ts';

describe('findReason', () => {
  const find = (...conditions: readonly (readonly [type: string, status: string, reason: string])[]) =>
    findReason(conditions.map(([type, status, reason]) => ({ type, status, reason })));
  const verified = ['Verified', 'True', 'Verified'] as const;

  it('is that of the last condition that is not true', () => {
    expect(find(['Verified', 'False', 'NotAllowed'])).to.equal('NotAllowed');
    expect(find(verified, ['Updated', 'False', 'Held'], ['Loaded', 'True', 'Loaded'])).to.equal('Held');
    expect(find(verified, ['BackedUp', 'False', 'Off'], ['Loaded', 'False', 'ImagesLost'])).to.equal('ImagesLost');
    expect(find(verified)).to.equal(undefined);
  });

  it('names a standstill only if the wait is an ordinary one', () => {
    const stalled = ['Stalled', 'True', 'NoProgress'] as const;
    expect(find(verified, ['Loaded', 'False', 'Loading'], stalled)).to.equal('NoProgress');
    expect(find(verified, ['Loaded', 'False', 'NodesFailed'], stalled)).to.equal('NodesFailed');
    expect(find(['Loaded', 'False', 'Loading'], ['Stalled', 'False', 'Progressing'])).to.equal('Loading');
  });
});
