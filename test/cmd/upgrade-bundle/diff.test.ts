import { join } from 'node:path';
import { expect } from 'chai';
import type { ReleaseDiff } from '../../../lib/bundle/diff.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { addRelease, openWorkshop, runProgram, type Workshop } from '../../support/content/creation.ts';
import { makeContext } from '../../support/context.ts';
import type { Execution } from '../../support/program/execution.ts';

describe('oc adm-upgrade-bundle diff', () => {
  let workshop: Workshop;
  let before: string;
  let after: string;
  const components = ['cluster-version-operator', 'etcd', 'machine-config-operator', 'machine-os-content'];
  const own = (grown: string) => (name: string) => (name === grown ? 31_000 : 30_000);
  const at = (name: string): string => join(workshop.folder, name);

  beforeEach(async () => {
    workshop = await openWorkshop({ release: { components: [...components, 'oauth-proxy'], layerSize: own('etcd') } });
    const options = { components: [...components, 'hyperkube'], layerSize: own('none') };
    const old = await addRelease(workshop, { version: '4.12.3', ...options });
    before = await workshop.make({ output: at('before'), version: old.version });
    after = await workshop.make({ output: at('after') });
  });
  afterEach(() => workshop.close());

  const diff = (...args: string[]): Promise<Execution> => runProgram(workshop.folder, 'diff', args);
  const compare = async (...args: string[]): Promise<ReleaseDiff> => {
    const { code, stdout, stderr } = await diff(...args, '-o', 'json');
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout) as ReleaseDiff;
  };

  it('lists the components that differ, and counts the content of a delta bundle as new', async () => {
    const result = await compare(before, after);
    expect([result.from.version, result.to.version, result.unchanged]).to.deep.equal(['4.12.3', '4.12.4', 0]);
    const kinds = Map.groupBy(result.images, ({ kind }) => kind);
    const namesOf = (kind: string) => result.images.filter((image) => image.kind === kind).map(({ name }) => name);
    expect([...kinds.keys()].sort()).to.deep.equal(['added', 'changed', 'removed']);
    expect([namesOf('added'), namesOf('removed'), namesOf('changed')]).to.deep.equal([
      ['oauth-proxy'],
      ['hyperkube'],
      components,
    ]);
    const named = new Map(result.images.map((image) => [image.name, image]));
    const [etcd, proxy] = [named.get('etcd'), named.get('oauth-proxy')];
    expect(etcd?.newSize).to.be.within(31_000, etcd?.toSize ?? 0);
    expect(etcd?.fromSize).to.be.below(etcd?.toSize ?? 0);
    // Only its configuration is new.
    expect(named.get('machine-os-content')?.newSize).to.be.within(1, 5_000);
    expect(proxy).to.not.have.property('fromSize');

    const delta = await openBundle(await workshop.make({ base: before }), makeContext());
    await delta[Symbol.asyncDispose]();
    const { blobs, base } = delta.metadata;
    expect(result.added.blobs).to.equal(blobs.length);
    expect(result.added.bytes).to.equal(blobs.reduce((sum, { size }) => sum + size, 0));
    expect(result.shared.blobs).to.equal(base?.blobs.length);
    expect(result.from.blobs).to.equal(result.shared.blobs + result.removed.blobs);
    // A delta has all manifests.
    expect((await compare(before, delta.path)).added).to.deep.equal(result.added);
  });

  it('compares a version in a registry with a bundle, as it compares two bundles', async () => {
    const { release } = workshop;
    const repository = `--release-repository=${release.registry}/${release.releaseRepository}`;
    const { from: bundle, ...local } = await compare(before, after);
    const { from, ...remote } = await compare('4.12.3', after, repository, '--insecure');
    expect(remote).to.deep.equal(local);
    expect({ ...from, name: before }).to.deep.equal(bundle);
    expect((await compare(after, release.pullspec, '--insecure')).images).to.deep.equal([]);
  });

  it('exits with 1 for a difference if that is asked for', async () => {
    for (const [args, code] of [
      [[before, after], 0],
      [[before, after, '--exit-code'], 1],
      [[after, after, '--exit-code'], 0],
    ] as const)
      expect((await diff(...args)).code, args.join(' ')).to.equal(code);
  });

  it('prints words, and a page without anything from elsewhere', async () => {
    const { stdout } = await diff(before, after);
    expect(stdout)
      .to.match(/^ {2}Components +4 changed, 1 removed, 1 added, 0 unchanged$/m)
      .and.match(/^etcd +changed +[\d.]+ KiB +[\d.]+ KiB +[\d.]+ KiB +[0-9a-f]{12}/m)
      .and.match(/^hyperkube +removed +0 B +[\d.]+ KiB +- +[0-9a-f]{12}$/m);
    const page = (await diff(before, after, '-o', 'html')).stdout;
    expect(page).to.contain('<h1>OpenShift 4.12.3 to 4.12.4 for x86_64</h1>').and.contain('6 of 6 components differ');
    expect(page).not.to.match(/(?:src|href)=/);
  });

  it('lists the accepted forms for a text that is neither a bundle nor a release', async () => {
    const { code, stderr } = await diff(before, 'nothing');
    expect(code).to.equal(1);
    expect(stderr)
      .to.match(/^error \([a-z-]+\): there is no nothing$/m)
      .and.match(/^hint: Name a bundle, a device/m);
    expect((await diff(before)).code).to.equal(2);
  });
});
