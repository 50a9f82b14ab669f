import { expect } from 'chai';
import { WriteTurn } from '../../../lib/content/archive/writeTurn.ts';

describe('WriteTurn', () => {
  const order = (turn: WriteTurn): string[] => {
    const done: string[] = [];
    turn.writeAnd(
      () => done.push('write'),
      () => done.push('other'),
    );
    return done;
  };

  it('lets a thread write first if no other thread writes', () => {
    const turn = new WriteTurn();
    expect([order(turn), order(turn)]).to.deep.equal([
      ['write', 'other'],
      ['write', 'other'],
    ]);
  });

  it('has a thread do other work first while another writes, and limits every wait', () => {
    const turn = new WriteTurn();
    const same = new WriteTurn(turn.memory);
    let meanwhile: string[] = [];
    turn.writeAnd(
      () => (meanwhile = order(same)),
      () => undefined,
    );
    expect(meanwhile).to.deep.equal(['other', 'write']);
    expect(order(turn)).to.deep.equal(['write', 'other']);
  });

  it('ends a turn that failed', () => {
    const turn = new WriteTurn();
    const fail = (): void => {
      turn.writeAnd(
        () => {
          throw new Error('the disk is full');
        },
        () => undefined,
      );
    };
    expect(fail).to.throw('the disk is full');
    expect(order(turn)).to.deep.equal(['write', 'other']);
  });
});
