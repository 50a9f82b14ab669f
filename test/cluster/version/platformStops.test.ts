import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { platformStops } from '../../../lib/cluster/version/platformStops.ts';

const page = new URL('../../../docs/how-to/check-a-cluster.md', import.meta.url);

describe('platformStops', () => {
  it('has each place where the platform stops, with its source', async () => {
    const rows = (await readFile(page, 'utf8'))
      .split('\n')
      .flatMap((line) => /^\| (.+?) +\| (.+?) +\|$/.exec(line)?.slice(1, 3).join(' — ') ?? []);
    for (const { because, source } of Object.values(platformStops)) expect(rows).to.include(`${because} — ${source}`);
    const sentences = rows.filter((row) => Object.values(platformStops).some(({ because }) => row.startsWith(because)));
    expect(sentences).to.have.length(Object.keys(platformStops).length);
  });
});
