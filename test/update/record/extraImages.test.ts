import { expect } from 'chai';
import { withoutExtraImages } from '../../../lib/update/record/extraImages.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import { makeFacts, release, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';

const [etcd, allowed, other] = [
  platformImage('a'),
  `quay.io/site/tool@sha256:${'8'.repeat(64)}`,
  `quay.io/site/other@sha256:${'9'.repeat(64)}`,
];
const digest = `sha256:${'8'.repeat(64)}`;

describe('extra images of a bundle, on a cluster', () => {
  const facts = makeFacts({
    components: { etcd },
    images: [release, etcd, allowed, other],
    extraImages: [allowed, other],
  });
  const spec = { bundle: {}, hold: false } as const;

  it('are left out unless their digest is allowed', () => {
    const none = withoutExtraImages(facts, { spec });
    expect(none.metadata.images).to.deep.equal([release, etcd]);
    expect([none.metadata.extraImages, none.leftOut]).to.deep.equal([[], [allowed, other]]);
    const some = withoutExtraImages(facts, { spec: { ...spec, allowExtraImages: [digest] } });
    expect(some.metadata.images).to.deep.equal([release, etcd, allowed]);
    expect([some.metadata.extraImages, some.leftOut]).to.deep.equal([[allowed], [other]]);
  });

  it('are images that the signed payload does not name, even if the bundle does not call them extra', () => {
    const hidden = { ...facts, metadata: { ...facts.metadata, extraImages: [] } };
    expect(withoutExtraImages(hidden, { spec }).metadata.images).to.deep.equal([release, etcd]);
    // The digest of a component under another name is not part of the release.
    const moved = `quay.io/evil/etcd@${etcd.split('@')[1] ?? ''}`;
    const renamed = { ...facts, metadata: { ...facts.metadata, images: [release, etcd, moved] } };
    expect(withoutExtraImages(renamed, { spec }).leftOut).to.deep.equal([moved]);
  });

  it('are not pinned unless they are allowed, and the status says how to allow them', async () => {
    await using rollout = await RolloutSite.start();
    rollout.facts = facts;
    rollout.server.put(upgradeBundle(undefined, { hold: true, allowExtraImages: [digest] }));
    await rollout.control();
    await rollout.untilPhase('Held');
    const pinned = rollout
      .all('PinnedImageSet')
      .flatMap(({ spec: own }) => (own as { pinnedImages: { name: string }[] }).pinnedImages);
    expect(new Set(pinned.map(({ name }) => name))).to.deep.equal(new Set([release, etcd, allowed]));
    expect(rollout.condition('ExtraImagesAllowed')).to.equal(
      `False LeftOut: the release signature does not cover ${other}: they are not loaded. To allow them, add ` +
        'their digests to spec.allowExtraImages, or use oc adm-upgrade-bundle apply',
    );
  });
});
