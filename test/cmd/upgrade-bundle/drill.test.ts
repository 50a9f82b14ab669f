import { expect } from 'chai';
import { formatDrillJunit, formatDrills } from '../../../cmd/upgrade-bundle/drill.ts';
import type { NodeDrill } from '../../../lib/drill/drill.ts';
import { furnish, node, platformImage, workload } from '../../fakes/cluster/site.ts';
import { startApiServer, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';

describe('oc adm-upgrade-bundle drill', () => {
  let server: TestApiServer;
  let kubeconfigs: KubeconfigFolder;
  let denied = '';
  const drill = async (...args: string[]): Promise<Execution> => {
    const kubeconfig = await kubeconfigs.write({ cluster: { server: server.url } });
    return executeProgram('oc-adm_upgrade_bundle', ['drill', `--kubeconfig=${kubeconfig}`, ...args]);
  };
  const writes = (): string[] =>
    server.requests
      .filter(({ method, path }) => method !== 'GET' && !/selfsubject|pods\?dryRun|pods$/.test(path))
      .map(({ path }) => path);

  beforeEach(async () => {
    denied = '';
    server = await startApiServer({ openshift: '4.19.3', allow: ({ resource }) => resource !== denied });
    furnish(server);
    kubeconfigs = await makeKubeconfigFolder();
  });
  afterEach(async () => {
    expect(writes()).to.deep.equal([]);
    await server.stop();
    await kubeconfigs.remove();
  });

  it('needs either a node or a pool', async () => {
    expect((await drill()).code).to.equal(2);
    expect((await drill('worker-0', '--pool=worker')).stderr).to.contain('name either a node or a pool');
    expect((await drill('--pool=other')).stderr).to.contain('there is no pool other');
  });

  it('changes nothing without agents, and says how to install them', async () => {
    const { code, stderr } = await drill('worker-0', '--reboot');
    expect(code).to.equal(1);
    expect(stderr).to.contain('no agent runs on worker-0').and.to.contain('oc adm-upgrade-bundle install');
  });

  it('changes nothing if preflight has a blocker, or if the user lacks a right', async () => {
    server.put(
      workload('Deployment', 'always', 'openshift-dns', {
        template: { spec: { containers: [{ name: 'c', image: platformImage('a'), imagePullPolicy: 'Always' }] } },
      }),
    );
    expect((await drill('worker-0')).stderr).to.match(
      /preflight has a blocker: deployment\/always -n openshift-dns container c pulls/,
    );
    denied = 'pods/eviction';
    expect((await drill('worker-0', '--reboot')).stderr).to.contain('create pods --subresource=eviction -A');
  });

  it('asks for a confirmation before a drill of the only control plane node', async () => {
    const { stderr } = await drill('--pool=master');
    expect(stderr).to.contain('master-0 is the only control plane node').and.to.contain('--yes');
    expect((await drill('master-0', '--yes')).stderr).to.contain('no agent runs on master-0');
    server.put(node('worker-0', 'worker', {}, { unschedulable: true }));
    expect((await drill('worker-0', '--reboot')).stderr).to.contain('cordoned already');
  });
});

const result: NodeDrill = {
  node: 'worker-0',
  result: 'failed',
  reboot: true,
  version: '4.19.3',
  started: '2026-11-22T10:00:00Z',
  ended: '2026-11-22T10:20:00Z',
  seconds: 61.5,
  message: '1 pod does not run again after 900 s',
  pods: [
    {
      namespace: 'shop',
      name: 'web-1',
      owner: 'ReplicaSet/web',
      seconds: undefined,
      message: 'container web: ErrImagePull',
    },
    { namespace: 'openshift-dns', name: 'dns-1', owner: 'DaemonSet/dns', seconds: 61.5 },
  ],
  asked: [
    {
      image: 'quay.io/site/web:1',
      count: 4,
      first: '2026-11-22T10:05:00Z',
      clients: ['cri-o/1.33'],
      pods: [{ namespace: 'shop', name: 'web-1', owner: 'ReplicaSet/web' }],
    },
    { image: 'quay.io/site/<tool>:1', count: 1, first: '2026-11-22T10:06:00Z', clients: ['skopeo/1.9.3'], pods: [] },
  ],
};

describe('the report of a drill', () => {
  it('names pods with owners and times, and the client of each request for an image', () => {
    expect(formatDrills([result]).lines).to.deep.equal([
      'worker-0: failed (OpenShift 4.19.3, a reboot)',
      '1 of 2 pods ran again without a registry, the last after 61.5 s.',
      'Reason: 1 pod does not run again after 900 s.',
      '',
      'POD                  OWNER           RAN AGAIN     REASON',
      'shop/web-1           ReplicaSet/web  does not run  container web: ErrImagePull',
      'openshift-dns/dns-1  DaemonSet/dns   61.5 s',
      '',
      'IMAGE ASKED FOR        TIMES  BY',
      'quay.io/site/web:1         4  shop/web-1 (ReplicaSet/web)',
      'quay.io/site/<tool>:1      1  skopeo/1.9.3',
    ]);
  });

  it('is JUnit with a suite for each node, and a case for each pod', () => {
    const text = formatDrillJunit('site', [result]);
    expect(text).to.contain('<testsuites name="drill site" tests="3" failures="2">');
    expect(text).to.contain(
      '<testcase classname="worker-0.ReplicaSet/web" name="shop/web-1" time="0"><failure type="not running" ' +
        'message="container web: ErrImagePull"/>',
    );
    expect(text).to.contain('<testcase classname="worker-0.DaemonSet/dns" name="openshift-dns/dns-1" time="61.5"/>');
    expect(text).to.contain('quay.io/site/&lt;tool&gt;:1 was asked for 1 times by skopeo/1.9.3');
  });
});
