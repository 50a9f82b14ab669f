// Measures what one bundle for a site saves, and the cost of reading a catalog of operators of full size:
// `npm run bench`.
import { join } from 'node:path';
import { formatSiteReport, type SiteReport } from '../../lib/config/siteReport.ts';
import { hexOf, parseDigest, digestIn, repositoryIn } from '../../lib/content/oci/reference.ts';
import { addRelease, openWorkshop, type ProgramOptions, type Workshop } from '../support/content/creation.ts';
import { TestContent } from '../support/content/image.ts';
import { makeNoiseLayer } from '../support/content/layers.ts';
import { addCatalog, catalogFiles, catalogLayers, type TestOperator } from '../support/release/catalogImage.ts';
import { pullspecsOf } from '../support/release/release.ts';
import { addRow } from './measure.ts';

const packages = 250;
const bundlesEach = 32;
/** The CSV of a bundle in the catalog, in characters. */
const csvLength = 40_000;

const components = Array.from({ length: 60 }, (_, index) => `component-${index}`);
/** A third of the components is the same in all releases. All else differs. */
const optionsOf = (version: string, ...previous: string[]) => {
  return { components, common: components.slice(0, 20), layerSize: 131_072, seed: version, version, previous };
};
const workshop = await openWorkshop({ release: optionsOf('4.20.3', '4.19.12') });
try {
  await addRelease(workshop, optionsOf('4.19.12', '4.18.20'));
  const running = await addRelease(workshop, optionsOf('4.18.20'));
  const operator = addOperators(workshop);
  const report: SiteReport = {
    formatVersion: 1,
    created: '2026-11-01T08:00:00Z',
    tool: 'bench',
    version: running.version,
    arch: 'x86_64',
    channel: 'stable-4.18',
    nodes: [],
    operators: [],
    findings: [],
    history: [{ version: running.version, state: 'Completed', image: running.pullspec }],
    heldImages: Object.fromEntries(
      [...Map.groupBy(pullspecsOf(running), repositoryIn)].map(([repository, images]) => [
        repository,
        images.map((image) => hexOf(parseDigest(digestIn(image)))),
      ]),
    ),
  };
  const site = { for: await workshop.write('site.json', formatSiteReport(report)) };
  const both = { version: '4.19.12,4.20.3', ...operator };
  const sizes = {
    'the bundles of 4.19.12, and of 4.20.3 with the operator':
      (await sizeOf('first', { version: '4.19.12' })) + (await sizeOf('second', { version: '4.20.3', ...operator })),
    'one bundle with both and the operator': await sizeOf('full', both),
    'the same for a site that has the images of 4.18.20': await sizeOf('site', { ...both, ...site }),
  };
  for (const [what, size] of Object.entries(sizes))
    addRow({ job: what, own: `${(size / 1e6).toFixed(1)} MB`, peer: '', wall: '', cpu: '' });

  const start = performance.now();
  const { code, stderr, peakMemory } = await workshop.start({ ...operator, 'dry-run': true }).outcome;
  if (code !== 0) throw new Error(stderr);
  const seconds = ((performance.now() - start) / 1000).toFixed(1);
  const job = `create with one of ${packages} operators in ${packages * bundlesEach} versions`;
  addRow({ job, own: `${seconds} s, ${(peakMemory / 1e6).toFixed(0)} MB`, peer: '', wall: '', cpu: '' });
} finally {
  await workshop.close();
}

async function sizeOf(folder: string, changes: ProgramOptions): Promise<number> {
  const { code, stdout, stderr } = await workshop.start({
    ...changes,
    output: join(workshop.folder, folder),
    format: 'json',
  }).outcome;
  if (code !== 0) throw new Error(stderr);
  return (JSON.parse(stdout) as { size: number }).size;
}

/** Adds a catalog of full size. Returns the options for the newest version of one operator, with an image of 1 MB. */
function addOperators({ registry: { host, content } }: Workshop): ProgramOptions {
  const operators = new TestContent();
  const repository = 'operators/web';
  const image = operators.addImage(repository, { architecture: 'amd64', layers: [makeNoiseLayer('web', 1e6)] });
  const versions = Array.from({ length: bundlesEach }, (_, index) => ({
    version: `1.${bundlesEach - index}.0`,
    ...(index < bundlesEach - 1 && { replaces: `1.${bundlesEach - index - 1}.0` }),
  }));
  const all = Array.from({ length: packages }, (_, index): TestOperator => {
    const name = `operator-${index}`;
    const words = Array.from({ length: csvLength / 10 }, (_unused, word) => `${(word * (index + 7)) % 99_991}`);
    const csv = { type: 'olm.csv.metadata', value: { description: words.join(' ').padEnd(csvLength, '.') } };
    return {
      name,
      channels: { stable: versions },
      properties: [csv],
      images: () => [`${host}/${repository}@${image.digest}`],
    };
  });
  addCatalog(operators, 'redhat/redhat-operator-index', catalogLayers(catalogFiles(all)), { tag: 'v4.20' });
  operators.addTo(content);
  return { catalog: `${host}/redhat/redhat-operator-index:v4.20`, operator: 'operator-7' };
}
