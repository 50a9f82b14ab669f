import { expect } from 'chai';
import { formatManifest } from '../../../lib/config/manifest.ts';
import * as objects from '../../../lib/update/mirror/mirrorObjects.ts';
import { expectGolden } from '../../support/program/golden.ts';

const plan: objects.MirrorPlan = {
  port: 9690,
  content: 'all',
  addresses: ['192.0.2.5', '192.0.2.11'],
  roles: ['master', 'worker'],
  sources: ['quay.io/openshift-release-dev/ocp-release', 'quay.io/openshift-release-dev/ocp-v4.0-art-dev'],
  siteMirrors: [
    { source: 'quay.io/openshift-release-dev', mirrors: ['registry.example.com/a'], policy: 'NeverContactSource' },
  ],
  trustedAuthorities: undefined,
};

describe('the objects of mirrors', () => {
  it('are equal to the golden file, with the broader mirrors of the site kept', async () => {
    const list = [
      ...objects.mirrorAccess({ ...plan, hasPolicies: true }),
      objects.authorityMap(plan, 'CA\n'),
      objects.trustingConfig,
      objects.mirrorPolicy({ mirrorsToo: false, siteFiles: [] }),
      ...objects.authorityConfigs(plan, 'CA\n'),
      objects.digestMirrorSet(plan),
    ];
    await expectGolden('cluster/mirrors.yaml', list.map((object) => formatManifest(object)).join('---\n'));
  });
});

describe('digestMirrorSet', () => {
  it('keeps the mirrors of the site for the same source behind ours, so that no merge puts them between', () => {
    const [source = ''] = plan.sources;
    const siteMirrors = [{ source, mirrors: ['10.0.0.5:5000/a', 'registry.example.com/b'] }];
    const { spec } = objects.digestMirrorSet({ ...plan, siteMirrors });
    const path = 'openshift-release-dev/ocp-release';
    const own = ['localhost', ...plan.addresses].map((host) => `${host}:9690/${path}`);
    expect(spec).to.have.deep.nested.property('imageDigestMirrors[0]', {
      source,
      mirrors: [...own, '10.0.0.5:5000/a', 'registry.example.com/b'],
    });
  });

  it('names mirrors of metadata behind those of the site, because Podman tries no other one after them', () => {
    const { spec } = objects.digestMirrorSet({ ...plan, content: 'metadata' });
    const path = 'openshift-release-dev/ocp-release';
    const own = ['localhost', ...plan.addresses].map((host) => `${host}:9690/${path}`);
    expect(spec).to.have.deep.nested.property('imageDigestMirrors[0].mirrors', [
      'registry.example.com/a/ocp-release',
      ...own,
    ]);
  });
});
