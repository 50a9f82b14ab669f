// Measures everything, and prints one table: `npm run bench`. Arguments: the parts to measure; all by default.
import { fork } from 'node:child_process';
import { cpus } from 'node:os';
import { formatLoad, type Row } from './measure.ts';

const parts = ['create', 'mirror', 'load', 'serve', 'start', 'rollout', 'site'];
const chosen = process.argv.length > 2 ? process.argv.slice(2) : parts;

const before = formatLoad();
const rows: Row[] = [];
for (const part of chosen) {
  const child = fork(new URL(`${part}.ts`, import.meta.url));
  child.on('message', (row: Row) => rows.push(row));
  const code = await new Promise((resolve) => child.once('close', resolve));
  if (code !== 0) rows.push({ job: part, own: 'not measured: it failed here', peer: '', wall: '', cpu: '' });
}
console.log(`\n${cpus().length} processors (${cpus()[0]?.model ?? ''}); load before ${before}, after ${formatLoad()}`);
console.log('Medians; seconds of wall time, CPU seconds, peak of memory; ratios of the runs in turns.\n');
console.log('| job | this program | peer | wall ratio | CPU ratio |');
console.log('| --- | --- | --- | --- | --- |');
for (const { job, own, peer, wall, cpu } of rows) console.log(`| ${[job, own, peer, wall, cpu].join(' | ')} |`);
