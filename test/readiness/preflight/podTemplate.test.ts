import { expect } from 'chai';
import { pod, podSpec, workload } from '../../fakes/cluster/site.ts';
import { PreflightSite, plan } from '../../support/release/preflightSite.ts';

describe('the preflight of workloads', () => {
  const site = new PreflightSite();
  const { start, find, messageOf } = site;
  afterEach(() => site.close());

  it('names the workloads that pull at every start, by the uppermost object that sets it and its owner', async () => {
    await start();
    const always = { template: { spec: podSpec({ imagePullPolicy: 'Always' }) } };
    const metadata = {
      ownerReferences: [{ apiVersion: 'apps/v1', kind: 'Deployment', name: 'web', uid: 'x', controller: true }],
    };
    site.server.put(workload('Deployment', 'web', 'shop', always));
    site.server.put(workload('ReplicaSet', 'web-1', 'shop', always, metadata));
    site.server.put(workload('ReplicaSet', 'web-0', 'shop', { ...always, replicas: 0 }, metadata));
    site.server.put(pod('web-1-x', 'shop', podSpec({ imagePullPolicy: 'Always' }), 'ReplicaSet/web-1'));
    site.server.put(workload('StatefulSet', 'etcd', 'openshift-etcd', always));
    site.server.put(workload('DaemonSet', 'asleep', 'shop', { ...always, replicas: 0 }));
    expect(await find()).to.deep.equal([
      'blocker pull-policy statefulset/etcd -n openshift-etcd',
      'warning pull-policy deployment/web -n shop',
      'info pull-policy daemonset/asleep -n shop',
    ]);
    expect(await messageOf('warning pull-policy deployment/web -n shop')).to.equal(
      'container main pulls from a registry at every start (pull policy: Always)',
    );
  });

  it('sees init and ephemeral containers, jobs and cron jobs, and ignores ended pods', async () => {
    await start();
    const container = { name: 'x', image: 'quay.io/site/tool:1', imagePullPolicy: 'Always' };
    site.server.put(pod('debugged', 'shop', { ephemeralContainers: [container] }));
    site.server.put(pod('initial', 'shop', { initContainers: [container] }));
    site.server.put({ ...pod('done', 'shop', { initContainers: [container] }), status: { phase: 'Succeeded' } });
    site.server.put({
      ...workload('Job', 'over', 'shop', { template: { spec: podSpec(container) } }),
      status: { conditions: [{ type: 'Complete', status: 'True' }] },
    });
    site.server.put({
      ...workload('Job', 'nightly', 'shop', { jobTemplate: { spec: { template: { spec: podSpec(container) } } } }),
      kind: 'CronJob',
    });
    const found = await find();
    expect(found.filter((line) => line.includes('pull-policy'))).to.deep.equal([
      'warning pull-policy pod/debugged -n shop',
      'warning pull-policy pod/initial -n shop',
      'warning pull-policy cronjob/nightly -n shop',
    ]);
    expect(found.filter((line) => line.includes('tags'))).to.have.length(3);
    expect(await messageOf('warning pull-policy pod/debugged -n shop')).to.match(/^ephemeral container x pulls /);
    expect(await messageOf('info tags pod/initial -n shop')).to.equal(
      'init container x names an image by tag: quay.io/site/tool:1',
    );
  });

  it('finds tags in place of digests', async () => {
    await start();
    const image = 'quay.io/site/tool:1';
    site.server.put(workload('Deployment', 'x', 'openshift-ingress', { template: { spec: podSpec({ image }) } }));
    site.server.put(workload('Deployment', 'y', 'shop', { template: { spec: podSpec({ image: 'tool' }) } }));
    const found = await find();
    expect(found).to.include('warning tags deployment/x -n openshift-ingress');
    expect(found).to.include('info tags deployment/y -n shop');
  });

  it('reads the manifests of the release that is to come', async () => {
    await start();
    const object = {
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: {
        name: 'new',
        namespace: 'openshift-new',
        annotations: { 'include.release.openshift.io/self-managed-high-availability': 'true' },
      },
      // Here the object has no defaults.
      spec: { template: { spec: { containers: [{ name: 'a', image: 'quay.io/x/y' }] } } },
    };
    const manifests = new Map([
      ...plan.manifests,
      ['0000_50_new.yaml', Buffer.from(JSON.stringify(object))],
      ['0000_51_bad.yaml', Buffer.from('kind: Pod\n  : [')],
    ]);
    expect(await find({ ...plan, manifests })).to.deep.equal([
      'blocker pull-policy deployment/new -n openshift-new',
      'warning bundle file/0000_51_bad.yaml',
      'warning tags deployment/new -n openshift-new',
    ]);
    const message = await messageOf('blocker pull-policy deployment/new -n openshift-new', { ...plan, manifests });
    expect(message).to.match(/^4\.19\.4 brings it \(0000_50_new\.yaml\), and container a pulls from a registry/);
  });
});
