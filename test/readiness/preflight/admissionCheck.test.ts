import { expect } from 'chai';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { PreflightSite } from '../../support/release/preflightSite.ts';

describe('the preflight of admission', () => {
  const site = new PreflightSite();
  const { start, find, messageOf } = site;
  afterEach(() => site.close());

  it('finds admission that changes images, and blocks it where the pods of the platform are', async () => {
    const rewritten = (namespaces: readonly string[]): Promise<void> =>
      start({
        admit: (object) => {
          const { spec, metadata } = object as { spec?: { containers?: Json[] }; metadata: { namespace?: string } };
          if (object['kind'] !== 'Pod' || !namespaces.includes(metadata.namespace ?? '')) return object;
          const containers = spec?.containers?.map((each) => ({ ...each, image: 'mirror.local/x:1' })) ?? [];
          return { ...object, spec: { ...spec, containers } };
        },
      });
    const own = 'openshift-machine-config-operator';
    await rewritten(['default', own]);
    site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: own } });
    expect(await find()).to.deep.equal([`blocker admission pod/* -n ${own}`, 'warning admission pod/* -n default']);
    expect(await messageOf('warning admission pod/* -n default')).to.contain(' becomes mirror.local/x:1');
    await rewritten(['shop']);
    site.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: own } });
    expect(await find()).to.deep.equal([]);
  });

  it('asks the cluster whether it makes every pod pull', async () => {
    await start({
      admit: (object) => {
        if (object['kind'] !== 'Pod') return object;
        const spec = object['spec'] as { containers: Json[] };
        const containers = spec.containers.map((each) => ({ ...each, imagePullPolicy: 'Always' }));
        return { ...object, spec: { ...spec, containers } };
      },
    });
    expect(await find()).to.deep.equal(['blocker pull-policy pod/*']);
    expect(site.server.find('v1', 'Pod', 'oc-disconnected-preflight', 'default')).to.equal(undefined);
  });
});
