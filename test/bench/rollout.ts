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
  const { nodes, seconds, requests, bytes, bundle, rounds, record, atRest } = await measureFleet(size, intervals);
  const phases = [...requests].map(([name, each]) => `${name} ${each.toFixed(1)}`);
  const sum = [...requests.values()].reduce((total, each) => total + each, 0);
  console.log(`API requests of each node by phase: ${phases.join(', ')}`);
  const own = [
    `${seconds.toFixed(0)} s`,
    `${rounds} rounds, ${bundle.sentBySource} times from the source`,
    `${sum.toFixed(1)} requests and ${(bytes / 1024).toFixed(0)} KiB of the API server a node`,
    `a record of ${(record / 1024).toFixed(0)} KiB`,
  ];
  addRow({ job: `an update of ${nodes} nodes`, own: own.join(', '), peer: '', wall: '', cpu: '' });
  for (const [name, each] of intervals.rest > 0 ? atRest : [])
    console.log(`at rest, a minute: ${((each / intervals.rest) * 60_000).toFixed(1)} ${name}`);
}
