import { expect } from 'chai';
import { measureFleet, type FleetMeasure } from '../fakes/cluster/fleet.ts';
import { lies } from '../fakes/cluster/lyingPeer.ts';

describe('a rollout', () => {
  it('costs the API server no more for each node of a cluster that is four times as large, and spreads in rounds that double', async () => {
    const intervals = { interval: 500, sending: 200 };
    const [small, large] = [await measureFleet(10, intervals), await measureFleet(40, intervals)];
    const sum = ({ phases }: FleetMeasure): number =>
      [...phases.values()].reduce((total, { requests }) => total + requests, 0);
    // There are more rounds to wait for. If data of all nodes were sent to all nodes, it would be
    // four times as much.
    expect(large.bytes).to.be.lessThan(small.bytes * 2);
    expect(sum(large)).to.be.lessThan(sum(small) * 2);
    expect(large.bytes / sum(large)).to.be.lessThan((small.bytes / sum(small)) * 1.3);
    expect(large.rounds).to.be.at.most(2 * Math.log2(40));
  });

  it('completes on twelve nodes of which one lies about the bundle in twelve ways', async () => {
    const intervals = { interval: 500, sending: 5000, layerSize: 2_000_000 };
    const hostile = await measureFleet(12, { ...intervals, lies: Object.values(lies) });
    expect(hostile.told).to.be.at.least(5);
  });
});
