import { parseArgs } from 'node:util';
import { measureFleet } from '../fakes/cluster/fleet.ts';
import { addRow } from './measure.ts';

// Measures how a rollout grows with the cluster. Counts requests and bytes of the API server for
// each node, bytes that the node with the USB drive sends, and rounds in which the bundle spreads.
// Also measures the time.

const { values, positionals } = parseArgs({
  allowPositionals: true,
  // In seconds: the pause between two checks of the cluster, and the time to send a bundle.
  options: {
    interval: { type: 'string', default: '15' },
    sending: { type: 'string', default: '5' },
    rest: { type: 'string', default: '0' },
    slow: { type: 'string', default: '0' },
  },
});
const intervals = {
  interval: Number(values.interval) * 1000,
  sending: Number(values.sending) * 1000,
  rest: Number(values.rest) * 1000,
  slow: Number(values.slow),
};
const sizes = positionals.length > 0 ? positionals.map(Number) : [3, 50, 500];
for (const size of sizes) {
  const { nodes, seconds, phases, bytes, bundle, rounds, spread, record, atRest } = await measureFleet(size, intervals);
  const [all, sum] = [[...phases.values()], (numbers: readonly number[]) => numbers.reduce((a, b) => a + b, 0)];
  for (const [name, { requests, controller, cost }] of phases) {
    const own = `controller: ${controller} requests, ${cost.cpu.toFixed(2)} CPU s, ${(cost.memory / 1e6).toFixed(0)} MB`;
    console.log(`${name}: ${requests.toFixed(1)} requests of each agent; ${own}`);
  }
  const own = [
    `${seconds.toFixed(0)} s`,
    `${rounds} rounds in ${spread.toFixed(0)} s, ${bundle.sentBySource} times from the source`,
    `${sum(all.map(({ requests }) => requests)).toFixed(1)} requests and ${(bytes / 1024).toFixed(0)} KiB of ` +
      'the API server a node',
    `a record of ${(record / 1024).toFixed(0)} KiB`,
  ];
  addRow({ job: `an update of ${nodes} nodes`, own: own.join(', '), peer: '', wall: '', cpu: '' });
  for (const [name, each] of intervals.rest > 0 ? atRest : [])
    console.log(`at rest, a minute: ${((each / intervals.rest) * 60_000).toFixed(1)} ${name}`);
}
