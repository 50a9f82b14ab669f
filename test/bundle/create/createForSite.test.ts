import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { formatSiteReport } from '../../../lib/config/siteReport.ts';
import type { SiteReport } from '../../../lib/config/siteTypes.ts';
import { openBundle } from '../../../lib/bundle/open.ts';
import { openComplete } from '../../../lib/bundle/complete.ts';
import type { BundleMetadata } from '../../../lib/bundle/metadata.ts';
import { hexOf } from '../../../lib/oci/digest.ts';
import { openWorkshop, type Workshop } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { buildRelease, type TestRelease } from '../../support/release/release.ts';

describe('create --for', () => {
  let workshop: Workshop;
  let running: TestRelease;
  let report: SiteReport;
  before(async () => {
    workshop = await openWorkshop();
    const { host: registry, content } = workshop.registry;
    running = buildRelease({ components: 4, registry, version: '4.12.3' });
    running.addTo(content);
    const [etcd, ...others] = [...running.images.values()];
    const gone = 'f'.repeat(64);
    report = {
      ...{ formatVersion: 1, created: '2026-11-01T00:00:00Z', tool: 'test/1', version: '4.12.3', arch: 'x86_64' },
      ...{ channel: 'stable-4.12', operators: [], findings: [] },
      history: [{ version: '4.12.3', state: 'Completed', image: running.pullspec }],
      nodes: [{ name: 'worker-0', architecture: 'amd64', free: 2 ** 34 }],
      heldImages: {
        // One image is of the site itself.
        [`${registry}/${running.componentRepository}`]: [etcd, ...others]
          .slice(1)
          .flatMap((each) => hexOf(each?.digest ?? 'sha256:')),
        [`${registry}/site/tool`]: [gone],
      },
    };
  });
  after(() => workshop.close());

  const create = async (
    options: Record<string, string | true>,
  ): Promise<{ metadata: BundleMetadata; path: string }> => {
    const path = await workshop.make(options);
    const bundle = await openBundle(path, makeContext());
    await bundle.close();
    return { metadata: bundle.metadata, path };
  };

  it('leaves out what all nodes of the site have, and says how much', async () => {
    const file = await workshop.write('site.json', formatSiteReport(report));
    const { code, stdout, stderr } = await workshop.create({ for: file });
    expect(code, stderr).to.equal(0);
    expect(stdout).to.match(/Left out +[\d.]+ \w+ in \d+ blobs that 4\.12\.3 has/);
    expect(stderr).to.match(/worker-0 of the site has 16 GiB free, and needs 17 GiB for the bundle/);
    const { metadata, path } = await create({ for: file });
    expect(metadata.base).to.deep.include({ version: '4.12.3', release: running.pullspec });
    const whole = await create({ 'include-held': true, for: file });
    expect(whole.metadata.base).to.equal(undefined);
    expect(metadata.size).to.be.lessThan(whole.metadata.size);
    const left = metadata.base?.blobs.map(({ digest }) => digest) ?? [];
    expect(left.length).to.be.greaterThan(0);
    expect(whole.metadata.blobs.map(({ digest }) => digest)).to.include.members(left);
    expect((await readFile(path)).length).to.equal(metadata.size);
  });

  it('makes a bundle that a site without these blobs refuses, with their names', async () => {
    const file = await workshop.write('site.json', formatSiteReport(report));
    const { path, metadata } = await create({ for: file, output: `${workshop.folder}/other` });
    const error = await failureOf(openComplete(path, { bases: [] }, makeContext()), 'incomplete');
    expect(error.message).to.include(metadata.base?.blobs[0]?.digest);
    expect(error.message).to.include('(4.12.3)');
  });

  it('leaves out nothing of its own release', async () => {
    const own = {
      ...report,
      version: '4.12.4',
      history: [{ version: '4.12.4', state: 'Completed', image: workshop.release.pullspec }],
    };
    const file = await workshop.write('own.json', formatSiteReport(own));
    expect((await create({ for: file, output: `${workshop.folder}/own` })).metadata.base).to.equal(undefined);
  });
});
