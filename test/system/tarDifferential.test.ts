import { expect } from 'chai';
import { tarAttacks } from '../support/archive/tarAttacks.ts';
import { mutateTar } from '../support/archive/tarMutations.ts';
import { compareReaders } from '../support/archive/tarReaders.ts';
import { sampleTar } from '../support/archive/tarSample.ts';
import { requirePeer } from '../support/peers.ts';

/** The number of mutated tars to compare, and the number in a batch. */
const mutations = 2000;
const batch = 500;

describe('Archive beside GNU tar and bsdtar', function () {
  requirePeer(this, 'tar', 'bsdtar');
  it('reads the same tree out of every mutated tar that it accepts', async () => {
    let accepted = 0;
    for (let seed = 0; seed < mutations; seed += batch) {
      const seeds = Array.from({ length: batch }, (_, index) => seed + index);
      const compared = await compareReaders(seeds.map(mutateTar));
      const { disagreements } = compared;
      expect(disagreements.map(({ index, ...readings }) => ({ seed: seed + index, ...readings }))).to.deep.equal([]);
      accepted += compared.accepted;
    }
    // Otherwise the mutations would test nothing.
    expect(accepted).to.be.greaterThan(mutations / 20);
    expect(accepted).to.be.lessThan(mutations / 2);
  });

  it('accepts none of the headers that create never writes, alone or before others', async () => {
    const end = Buffer.alloc(1024);
    const attacks = Object.values(tarAttacks);
    const tars = attacks.flatMap((attack) => [
      Buffer.concat([attack, end]),
      Buffer.concat([sampleTar().subarray(0, -1024), attack, end]),
      Buffer.concat([attack, sampleTar()]),
    ]);
    const { disagreements } = await compareReaders(tars);
    expect(disagreements).to.deep.equal([]);
  });
});
