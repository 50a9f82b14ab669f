import { expect } from 'chai';
import type { Image } from '../../../lib/content/copy/copy.ts';
import { CopyTally } from '../../../lib/content/copy/tally.ts';
import { parseManifest, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import type { TransferEvent } from '../../../lib/context.ts';
import { repositoryOf } from '../../fakes/registry/content.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeNoiseLayer } from '../../support/content/layers.ts';

describe('CopyTally', () => {
  const contents = new TestContent();
  const [base, own] = [makeNoiseLayer('base', 1000), makeNoiseLayer('own', 300)];
  const roots = [base, own].map((layer, index) =>
    contents.addImage('app', { architecture: 'amd64', layers: index === 0 ? [base] : [base, layer] }),
  );
  const images = roots.map((root, index) => imageOf(`image ${index}`, root));
  const configs = images.map(({ root, manifests }) => manifests.get(root.digest)!.manifest.config!);
  /** The bytes of both images: the base once. */
  const all = base.size + own.size + configs.reduce((sum, { size }) => sum + size, 0);

  function imageOf(name: string, root: Descriptor, more: Partial<Image> = {}): Image {
    const { bytes } = repositoryOf(contents.content, 'app').manifests.get(root.digest)!;
    const manifests = new Map([[root.digest, { descriptor: root, bytes, manifest: parseManifest(bytes, name) }]]);
    return { name, source: contents.sourceOf('app'), root, manifests, ...more };
  }

  let events: TransferEvent[];
  const open = (...copies: Image[][]): CopyTally => new CopyTally(copies, (event) => events.push(event));
  const lastPlan = () => events.findLast(({ kind }) => kind === 'plan');
  const moved = (digest: Digest, bytes: number): TransferEvent => ({ kind: 'bytes', digest, bytes });
  const of = (kind: 'stored' | 'mounted' | 'skipped', { digest, size }: { digest: Digest; size: number }) =>
    ({ kind, digest, size }) as const;
  beforeEach(() => {
    events = [];
  });

  it('plans each blob of a destination once, and again for another destination', () => {
    open(images);
    expect(events).to.deep.equal([{ kind: 'plan', images: 2, blobs: 4, bytes: all, present: 0 }]);
    const attachment = imageOf('signature', roots[0]!, { isAttachment: true });
    open(images, [attachment]);
    const bytes = all + base.size + configs[0]!.size;
    expect(lastPlan()).to.deep.equal({ kind: 'plan', images: 2, blobs: 6, bytes, present: 0 });
  });

  it('forwards every event', () => {
    const listen = open(images).listenTo(0);
    const given: TransferEvent[] = [moved(base.digest, 10), of('stored', base), { kind: 'image', name: 'image 0' }];
    for (const event of given) listen(event);
    expect(events.slice(1)).to.deep.equal(given);
  });

  it('counts a blob that arrives twice once, and blobs that never arrive as skipped', () => {
    const tally = open(images);
    const listen = tally.listenTo(0);
    for (const event of [moved(base.digest, 600), moved(base.digest, 400), of('stored', base), of('stored', base)])
      listen(event);
    listen(of('mounted', own));
    // A manifest is no blob.
    listen(of('stored', roots[0]!));
    expect(tally.counts()).to.deep.equal({ blobs: { copied: 1, mounted: 1, skipped: 2 }, bytes: 1000 });
  });

  it('takes all content below a manifest that is there for present, except for bytes that moved', () => {
    const tally = open(images);
    const listen = tally.listenTo(0);
    listen(of('skipped', roots[0]!));
    expect(lastPlan()).to.deep.include({ present: base.size + configs[0]!.size });
    listen(moved(own.digest, 100));
    listen(of('skipped', roots[1]!));
    expect(lastPlan()).to.deep.include({ present: all - own.size });
    listen(of('mounted', configs[1]!));
    expect(lastPlan()).to.deep.include({ present: all - own.size });
  });

  it('keeps destinations apart', () => {
    const tally = open([images[0]!], [images[0]!]);
    tally.listenTo(0)(of('mounted', base));
    expect(lastPlan()).to.deep.include({ present: base.size });
    tally.listenTo(1)(of('mounted', base));
    expect(lastPlan()).to.deep.include({ present: 2 * base.size });
    expect(tally.counts().blobs).to.deep.equal({ copied: 0, mounted: 2, skipped: 2 });
  });
});
