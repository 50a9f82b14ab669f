import { readFile, stat } from 'node:fs/promises';
import { basename } from 'node:path';
import { expect } from 'chai';
import type { BundleMetadata } from '../../../lib/bundle/metadata/metadata.ts';
import { openComplete } from '../../../lib/bundle/open/deltaBase.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { formatSiteReport, type SiteReport } from '../../../lib/config/siteReport.ts';
import { hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { exportPublicKey } from '../../../lib/release/sigstore/envelope.ts';
import { requireRoot, storageIn } from '../../support/archive/storeReader.ts';
import { openWorkshop, runProgram, type Workshop } from '../../support/content/creation.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeNoiseLayer } from '../../support/content/layers.ts';
import { makeReportKey, makeUpdateReport, signUpdateReport } from '../../support/content/updateReport.ts';
import { makeContext } from '../../support/context.ts';
import { requirePeer } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';
import { buildRelease, type TestRelease } from '../../support/release/release.ts';

describe('create --for', () => {
  let workshop: Workshop;
  let running: TestRelease;
  let report: SiteReport;
  before(async () => {
    const components = ['cluster-version-operator', 'hyperkube', 'machine-config-operator', 'machine-os-content'];
    workshop = await openWorkshop({ release: { components } });
    const { host: registry, content } = workshop.registry;
    running = buildRelease({ components, registry, version: '4.12.3' });
    running.addTo(content);
    const [etcd, ...others] = [...running.images.values()];
    const gone = 'f'.repeat(64);
    report = {
      formatVersion: 1,
      created: '2026-11-01T00:00:00Z',
      tool: 'test/1',
      version: '4.12.3',
      arch: 'x86_64',
      channel: 'stable-4.12',
      operators: [],
      findings: [],
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
    await bundle[Symbol.asyncDispose]();
    return { metadata: bundle.metadata, path };
  };

  it('leaves out the images that all nodes of the site have, and states their size', async () => {
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
    const images = metadata.base?.images ?? {};
    expect(new Set(Object.values(images).flat())).to.deep.equal(new Set(left));
    expect(Object.keys(images)).to.have.length(3);
    expect(whole.metadata.blobs.map(({ digest }) => digest)).to.include.members(left);
    expect((await readFile(path)).length).to.equal(metadata.size);
  });

  it('takes the signed report of an update too, if the key of the cluster has signed it', async () => {
    const [key, forger] = [makeReportKey(), makeReportKey()];
    const reportOf = (own: typeof key) => {
      const site = { ...report, reportKey: exportPublicKey(own).toString() };
      return signUpdateReport(makeUpdateReport(own, { site }), own);
    };
    const known = await workshop.write('site.pub', exportPublicKey(key).toString());
    const file = await workshop.write('update-report.json', reportOf(key).toString());
    const trusted = await workshop.create({ for: file, 'for-key': known, 'dry-run': 'client' });
    expect(trusted.code, trusted.stderr).to.equal(0);
    expect(trusted.stderr).to.match(/report 3 of cluster c0ffee00\S+, made 2026-11-20T10:00:00Z, \d+ days ago/);
    expect(trusted.stdout).to.match(/left out +[\d.]+ \w+ in \d+ blobs that 4\.12\.3 has/i);
    const claimed = await workshop.create({ for: file, 'dry-run': 'client' });
    expect(claimed.stderr).to.match(/is signed by [0-9a-f]{64}, a key that only the report itself names/);
    const site = formatSiteReport({
      ...report,
      created: '2026-11-25T00:00:00Z',
      reportKey: exportPublicKey(key).toString(),
    });
    const newer = await workshop.write('newer.json', site);
    const old = await workshop.create({ for: file, 'for-key': newer, 'dry-run': 'client' });
    expect(old.stderr).to.match(/is older than the report of the site in --for-key \(2026-11-25T00:00:00Z\)/);
    const forged = await workshop.write('forged.json', reportOf(forger).toString());
    const refused = await workshop.create({ for: forged, 'for-key': known, 'dry-run': 'client' });
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.include('has no signature by a given key');
  });

  it('makes a bundle that a site without these blobs refuses, with their names', async () => {
    const file = await workshop.write('site.json', formatSiteReport(report));
    const { path, metadata } = await create({ for: file, output: `${workshop.folder}/other` });
    const error = await failureOf(openComplete(path, { bases: [] }, makeContext()), 'incomplete');
    expect(error.message).to.include(metadata.base?.blobs[0]?.digest);
    expect(error.message).to.match(/is for a site with 4\.12\.3, and \d+ blobs that its nodes had are not there:/);
    for (const image of Object.keys(metadata.base?.images ?? {})) expect(error.message).to.include(`, in ${image}`);
    expect(error.hint).to.match(/^Create the bundle again from a new report of the site, or name the bundle of/);
  });

  it('makes a bundle that can be verified without the nodes of the site', async () => {
    const file = await workshop.write('site.json', formatSiteReport(report));
    const { path, metadata } = await create({ for: file, output: `${workshop.folder}/alone` });
    const args = [path, `--trust-fingerprint=${workshop.key.fingerprint}`];
    const { code, stdout } = await runProgram(workshop.folder, 'verify', args);
    expect(code, stdout).to.equal(0);
    expect(stdout).to.match(/^Verified: /);
    const count = metadata.base?.blobs.length ?? 0;
    expect(stdout).to.match(
      new RegExp(`for a site with 4\\.12\\.3; ${count} blobs \\(.*\\) that its nodes have were not`),
    );
    // With the bundle of that release, these are checked too.
    const base = await workshop.make({ version: '4.12.3', 'allow-unsigned': true, output: `${workshop.folder}/base` });
    const whole = await runProgram(workshop.folder, 'verify', [...args, `--base=${base}`, '-o', 'json']);
    expect(JSON.parse(whole.stdout)).to.deep.include({ verdict: 'verified', heldBySite: { blobs: 0, bytes: 0 } });
  });

  it('makes no delta if the site has none of the content', async () => {
    const none = { ...report, heldImages: { [`${workshop.registry.host}/site/tool`]: ['f'.repeat(64)] } };
    const file = await workshop.write('none.json', formatSiteReport(none));
    const output = `${workshop.folder}/none`;
    const { path, metadata } = await create({ for: file, output });
    expect([basename(path), metadata.base]).to.deep.equal(['upgrade-4.12.4-x86_64.tar', undefined]);
    expect((await workshop.create({ for: file, output })).stdout).to.match(/^Nothing to do/);
  });

  describe('a site with an operator', function () {
    requirePeer(this, 'skopeo');
    const operator = 'operators/web';
    /** Adds a manifest list, of which nodes have the image of their architecture only. */
    const addOperator = (): Digest => {
      const content = new TestContent();
      const platforms = ['amd64', 'arm64'].map((architecture) =>
        content.addImage(operator, { architecture, layers: [makeNoiseLayer(`web/${architecture}`, 8192)] }),
      );
      const { digest } = content.addList(operator, platforms);
      content.addTo(workshop.registry.content);
      return digest;
    };

    let image: string;
    let metadata: BundleMetadata;
    /** The results without and with the images of the site, and the store after the first. */
    let refused: Execution;
    let loaded: Execution;
    let storeOfRefused: unknown;
    before(async function () {
      await requireRoot(this);
      const list = addOperator();
      const repository = `${workshop.registry.host}/${operator}`;
      image = `${repository}@${list}`;
      const heldImages = { ...report.heldImages, [repository]: [hexOf(list)] };
      const file = await workshop.write('operator.json', formatSiteReport({ ...report, heldImages }));
      const running = await workshop.make({
        version: '4.12.3',
        'allow-unsigned': true,
        'extra-image': image,
        output: `${workshop.folder}/before`,
      });
      let path: string;
      ({ path, metadata } = await create({ for: file, 'extra-image': image, output: `${workshop.folder}/web` }));
      const storage = await storageIn(`${workshop.folder}/store`);
      const options = [`--trust-fingerprint=${workshop.key.fingerprint}`, '--allow-unsigned', '-o', 'json'];
      const load = (bundle: string): Promise<Execution> =>
        runProgram(workshop.folder, 'load', [bundle, ...options], storage);
      refused = await load(path);
      storeOfRefused = await stat(`${workshop.folder}/store/main`).catch(() => undefined);
      expect((await load(running)).code).to.equal(0);
      loaded = await load(path);
    });

    it('leaves out the parts of a manifest list that its nodes have', () => {
      expect(metadata.base?.images?.[image]).to.have.length(4);
    });

    it('makes a bundle that a site without its images refuses, with their names', () => {
      expect(refused.code).to.equal(1);
      expect(refused.stderr).to.match(/is for a site with 4\.12\.3, and \d+ blobs that its nodes had are not there:/);
      expect(refused.stderr).to.include(`, in ${image}`);
    });

    it('makes a bundle of which a site without its images gets nothing', () => {
      expect(storeOfRefused).to.equal(undefined);
    });

    it('makes a bundle that is loaded at the site', () => {
      expect(loaded.code, loaded.stderr).to.equal(0);
      expect(JSON.parse(loaded.stdout)).to.include({ loaded: workshop.release.images.size + 1, skipped: 1 });
    });
  });

  describe('a site whose update is blocked', () => {
    const blockedSite = (): SiteReport => ({
      ...report,
      version: '4.11.9',
      heldImages: {},
      featureGates: { featureSet: 'CustomNoUpgrade', enabled: ['NewOlm'], disabled: [] },
      acknowledgements: [{ name: 'ack-4.11-kube-1.25-api-removals-in-4.12', text: 'Migrate them.' }],
      removedApis: [
        {
          name: 'podsecuritypolicies.v1beta1.policy',
          removedIn: '1.25',
          users: ['system:serviceaccount:app:deployer'],
        },
        { name: 'flowschemas.v1beta3.flowcontrol.apiserver.k8s.io', removedIn: '1.32', users: ['admin'] },
      ],
      operators: [{ name: 'web', channel: 'fast', version: '1.0.3', catalog: 'own', maxOpenShiftVersion: '4.11' }],
      findings: [
        { severity: 'blocker', object: 'node/worker-0', message: 'is not ready' },
        { severity: 'warning', object: 'node/worker-1', message: 'is cordoned' },
        {
          severity: 'warning',
          object: 'clusterversion/version',
          message: 'must not be updated to another minor version: etcd is too old',
        },
      ],
    });
    const warn = async (site: SiteReport): Promise<string> => {
      const file = await workshop.write('blocked.json', formatSiteReport(site));
      const options = { for: file, 'dry-run': true, output: `${workshop.folder}/blocked` } as const;
      return (await workshop.create(options)).stderr;
    };
    const warningsIn = (stderr: string): string[] =>
      stderr.split('\n').flatMap((line) => /^warning: at the site: (.*)/.exec(line)?.[1] ?? []);

    /** The standard error with this site, and with the same site on the minor version of the bundle. */
    let [ofOlder, ofSame] = ['', ''];
    before(async () => {
      const site = blockedSite();
      [ofOlder, ofSame] = [await warn(site), await warn({ ...site, version: '4.12.3' })];
    });

    it('names the blockers of an update to another minor version', () => {
      expect(warningsIn(ofOlder)).to.deep.equal([
        'node/worker-0 is not ready',
        'clusterversion/version must not be updated to another minor version: etcd is too old',
        'the feature set CustomNoUpgrade (NewOlm) prevents updates to another minor version',
        'Kubernetes 1.25 removes the API podsecuritypolicies.v1beta1.policy, which ' +
          'system:serviceaccount:app:deployer used',
        'the update to 4.12.4 requires the acknowledgement ack-4.11-kube-1.25-api-removals-in-4.12: “Migrate them.”',
      ]);
    });

    it('warns of operators that do not support the release', () => {
      expect(ofOlder).to.match(
        /operator web 1\.0\.3 at the site supports OpenShift up to 4\.11, and the bundle has no version/,
      );
    });

    it('names only the blockers of every update if the minor version is the same', () => {
      expect(warningsIn(ofSame)).to.deep.equal(['node/worker-0 is not ready']);
    });
  });

  it('says the same of a bundle that exists', async () => {
    const findings = [{ severity: 'blocker', object: 'node/worker-0', message: 'is not ready' }] as const;
    const acknowledgements = [{ name: 'ack-4.11-kube-1.25-api-removals-in-4.12', text: 'Migrate them.' }];
    const operators = [{ name: 'web', channel: 'fast', version: '1.0.3', catalog: 'own', maxOpenShiftVersion: '4.11' }];
    const nodes = [{ name: 'worker-0', architecture: 'amd64', free: 2 ** 30 }];
    const site = { ...report, version: '4.11.9', heldImages: {}, findings, acknowledgements, operators, nodes };
    const options = {
      for: await workshop.write('again.json', formatSiteReport(site)),
      output: `${workshop.folder}/again`,
    };
    const warningsOf = ({ stderr }: Execution): string[] => stderr.match(/^warning: .*$/gm) ?? [];
    const first = await workshop.create(options);
    const warnings = warningsOf(first);
    for (const words of ['node/worker-0 is not ready', 'operator web 1.0.3', 'acknowledgement', 'worker-0 of the site'])
      expect(warnings.join('\n')).to.include(words);
    const again = await workshop.create(options);
    expect(again.stdout).to.match(/^Nothing to do/);
    expect(warningsOf(again)).to.have.members(warnings);
    const byImage = await workshop.create({
      ...options,
      version: undefined,
      'release-image': workshop.release.pullspec,
    });
    expect(byImage.stdout).to.match(/^Nothing to do/);
    expect(warningsOf(byImage)).to.have.members(warnings);
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
