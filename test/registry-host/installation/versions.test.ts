import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { compareTags, imagesOfVersion, knownVersions } from '../../../lib/registry-host/installation/versions.ts';
import { makeFixture } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { planFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';

/** All published releases, and the tag of Quay in their units. 1.2.4 has the same as 1.2.5. */
const published = {
  '1.0.0': 'v3.6.1',
  '1.1.0': 'v3.6.4',
  '1.2.0': 'v3.7.1',
  '1.2.1': 'v3.7.2',
  '1.2.2': 'v3.7.3',
  '1.2.3': 'v3.7.4',
  '1.2.5': 'v3.7.5',
  '1.2.6': 'v3.7.7',
  '1.2.7': 'v3.7.8',
  '1.2.8': 'v3.7.9',
  '1.2.9': 'v3.7.10',
  '1.3.0': 'v3.8.1',
  '1.3.1': 'v3.8.3',
  '1.3.2': 'v3.8.4',
  '1.3.3': 'v3.8.5',
  '1.3.4': 'v3.8.6',
  '1.3.5': 'v3.8.7',
  '1.3.6': 'v3.8.8',
  '1.3.7': 'v3.8.10',
  '1.3.8': 'v3.8.11',
  '1.3.9': 'v3.8.12',
  '1.3.10': 'v3.8.14',
  '1.3.11': 'v3.8.15',
  '2.0.0': 'v3.12.0',
  '2.0.1': 'v3.12.1',
  '2.0.2': 'v3.12.2',
  '2.0.3': 'v3.12.3',
  '2.0.4': 'v3.12.4',
  '2.0.5': 'v3.12.5',
  '2.0.6': 'v3.12.8',
  '2.0.7': 'v3.12.10',
  '2.0.8': 'v3.12.12',
  '2.0.10': 'v3.12.14',
  '2.0.11': 'v3.12.18',
};

const page = fileURLToPath(new URL('../../../docs/mirror-registry-host.md', import.meta.url));

describe('the releases of the mirror registry', () => {
  const { postgres: _, ...latest } = imagesOf('2.0.11');

  /** Returns the release whose units a release has, apart from its images. */
  function layoutOf(release: string): string {
    const minor = release.slice(0, 3);
    return minor === '1.2' ? '1.2.9' : minor === '1.3' ? '1.3.10' : minor === '2.0' ? '2.0.7' : release;
  }

  /** Returns the rows of the page for a release. */
  async function rowsOf(release: string): Promise<string[][]> {
    const rows = [...(await readFile(page, 'utf8')).matchAll(/^\| (\d\S+)(?: to (\d\S+))? +\|(.*)\|$/gm)];
    return rows
      .filter(([, first = '', last = first]) => compareTags(first, release) <= 0 && compareTags(release, last) <= 0)
      .map(([, , , cells = '']) => cells.split('|').map((cell) => cell.trim()));
  }

  for (const [release, tag] of Object.entries(published)) {
    it(`${release} is recognized by Quay ${tag}, and upgraded as the page says`, async () => {
      const quay = `registry.redhat.io/quay/quay-rhel8:${tag}`;
      const configuration = 'EXTERNAL_TLS_TERMINATION: true\n';
      await using fixture = await makeFixture({ age: layoutOf(release), images: { quay }, configuration });
      const { from, to, level, blockers, migration } = await planFixture(fixture, latest);
      const wanted = tag.startsWith('v3.12.') ? 'patch' : 'minor';
      expect([from, to, level, blockers]).to.deep.equal([release, '2.0.11', wanted, []]);
      const rows = await rowsOf(release);
      expect(rows.map(([database]) => database)).to.deep.equal([migration ? 'PostgreSQL' : 'SQLite']);
      expect(rows[0]?.at(-1)).not.to.include('refused');
    });
  }

  it('have the images that their units name', () => {
    for (const release of ['1.3.10', '2.0.7'] as const)
      expect(imagesOf(release)).to.deep.include(imagesOfVersion(release));
  });

  it('include all releases with known images', () => {
    expect(Object.keys(published)).to.include.members(knownVersions());
  });
});
