import { expect } from 'chai';
import { formatSubject } from '../../../lib/cluster/finding.ts';
import { checkHolds } from '../../../lib/readiness/preflight/holds.ts';
import { surveyCluster } from '../../../lib/readiness/preflight/survey.ts';
import { infrastructure, withConditions } from '../../fakes/cluster/site.ts';
import type { Json } from '../../fakes/kubernetes/apiPatch.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

const machines = 'machineconfiguration.openshift.io/v1';
const operatorApi = 'operator.openshift.io/v1';

describe('checkHolds', () => {
  let started: StartedCluster;
  const put = (apiVersion: string, kind: string, name: string, fields: Json = {}, metadata: Json = {}): void => {
    const { kinds } = started.server;
    const [group = '', version = ''] = apiVersion.split('/');
    const namespaced = metadata['namespace'] !== undefined;
    if (!kinds.some((each) => each.kind === kind && each.group === group))
      kinds.push({ group, version, kind, resource: `${kind.toLowerCase()}s`, namespaced, status: true, custom: true });
    started.server.put({ apiVersion, kind, metadata: { name, ...metadata }, ...fields });
  };
  beforeEach(async () => {
    started = await startCluster({ openshift: '4.21.3' });
  });
  afterEach(() => started.close());

  const find = async (running: string, ...path: string[]): Promise<string[]> => {
    const findings = await checkHolds(started.cluster, await surveyCluster(started.cluster), running, path);
    return findings.map(({ severity, check, subject, message }) => {
      return `${severity} ${check} ${formatSubject(subject)} ${message}`;
    });
  };
  const install = (version: string): void => {
    const entry = { state: 'Completed', version, image: 'x', completionTime: '2023-01-01T00:00:00Z' };
    put('config.openshift.io/v1', 'ClusterVersion', 'version', { status: { history: [entry] } });
  };
  const platform = (type: string, topology = 'HighlyAvailable'): void => {
    const made = infrastructure(topology);
    started.server.put({ ...made, status: { ...(made['status'] as Json), platformStatus: { type } } });
  };
  const configure = (spec: Json, status: Json = {}): void =>
    put(operatorApi, 'MachineConfiguration', 'cluster', { spec, status });

  describe('about boot images', () => {
    const subject = 'version machineconfiguration/cluster';
    const since = `${subject} states no boot images, and the cluster was installed as 4.12.9, older than 4.13.0`;
    beforeEach(() => {
      platform('VSphere');
      install('4.12.9');
    });

    it('warns before the update to another minor version than 4.22', async () => {
      expect(await find('4.21.3', '4.22.1', '5.0.2')).to.deep.equal([
        `warning ${since}: this holds the update to 5.0.2`,
      ]);
    });

    it('informs before the update to 4.22, which is possible', async () => {
      expect(await find('4.21.3', '4.22.1')).to.deep.equal([
        `info ${since}: this holds later updates to another minor version`,
      ]);
      expect(await find('4.20.3', '4.21.4')).to.deep.equal([]);
    });

    for (const [name, arrange] of [
      ['was installed with recent ones', () => install('4.13.0')],
      ['has one node', () => platform('VSphere', 'SingleReplica')],
      ['boots bare metal from the release', () => platform('BareMetal')],
      ['enforces nothing', () => configure({ bootImageSkewEnforcement: { mode: 'None' } })],
      [
        'states recent ones',
        () => configure({ bootImageSkewEnforcement: { mode: 'Manual', manual: { ocpVersion: '4.14.0' } } }),
      ],
      [
        'states recent RHCOS',
        () => configure({ bootImageSkewEnforcement: { mode: 'Manual', manual: { rhcosVersion: '9.6.20251023-0' } } }),
      ],
      [
        'states recent RHCOS in the older form',
        () =>
          configure({
            bootImageSkewEnforcement: { mode: 'Manual', manual: { rhcosVersion: '413.92.202305021736-0' } },
          }),
      ],
      [
        'reports recent ones',
        () =>
          configure({}, { bootImageSkewEnforcementStatus: { mode: 'Automatic', automatic: { ocpVersion: '4.22.0' } } }),
      ],
    ] as const)
      it(`finds nothing in a cluster that ${name}`, async () => {
        arrange();
        expect(await find('4.21.3', '4.22.1', '5.0.2')).to.deep.equal([]);
      });

    it('names the boot images that the cluster states or reports', async () => {
      const words = (version: string): string =>
        `warning ${subject} has boot images of ${version}, older than 4.13.0: this holds the update to 5.0.2`;
      configure(
        {},
        { bootImageSkewEnforcementStatus: { mode: 'Manual', manual: { mode: 'OCPVersion', ocpVersion: '4.12.9' } } },
      );
      expect(await find('4.22.1', '5.0.2')).to.deep.equal([words('4.12.9')]);
      configure({ bootImageSkewEnforcement: { mode: 'Manual', manual: { rhcosVersion: '48.84.202208021106-0' } } });
      expect(await find('4.22.1', '5.0.2')).to.deep.equal([words('48.84.202208021106-0')]);
    });

    it('asks which image bare metal hosts boot', async () => {
      platform('BareMetal');
      put('metal3.io/v1alpha1', 'Provisioning', 'provisioning-configuration', {
        spec: { provisioningOSDownloadURL: 'http://x/rhcos.qcow2.gz' },
      });
      expect(await find('4.21.3', '4.22.1', '5.0.2')).to.have.length(1);
    });
  });

  describe('about runc', () => {
    const render = (text: string): void => {
      const files = [
        { path: '/etc/crio/crio.conf.d/00-default', contents: { source: 'data:,default_runtime%20%3D%20%22crun%22' } },
        {
          path: '/etc/crio/crio.conf.d/99-own',
          contents: { source: `data:text/plain;base64,${Buffer.from(text).toString('base64')}` },
        },
      ];
      put(machines, 'MachineConfig', 'rendered-worker-1', { spec: { config: { storage: { files } } } });
    };
    const pool = (stream?: string): void => {
      const spec = { configuration: { name: 'rendered-worker-1' }, ...(stream && { osImageStream: { name: stream } }) };
      started.server.put({ ...withConditions(machines, 'MachineConfigPool', 'worker', { Updated: 'True' }), spec });
    };
    const runc = '[crio.runtime]\ndefault_runtime = "runc"\n';
    beforeEach(() => {
      platform('BareMetal');
      install('4.22.1');
    });

    it('finds a pool of RHEL 10 that runs it', async () => {
      pool('rhel-10');
      render(runc);
      expect(await find('4.22.1', '5.0.2')).to.deep.equal([
        'blocker pools machineconfigpool/worker has runc as its default container runtime, and 5.0.2 has none in the ' +
          'stream rhel-10',
      ]);
    });

    for (const [name, stream, text, to] of [
      ['keeps RHEL 9', 'rhel-9', runc, '5.0.2'],
      ['names no stream in a cluster that was installed as 4', undefined, runc, '5.0.2'],
      ['runs crun', 'rhel-10', '[crio.runtime]\n# default_runtime = "runc"\n', '5.0.2'],
      ['updates within a release that has it', 'rhel-10', runc, '4.22.5'],
    ] as const)
      it(`finds nothing in a pool that ${name}`, async () => {
        pool(stream);
        render(text);
        expect(await find('4.22.1', to)).to.deep.equal([]);
      });
  });

  it('names operators that support no later OpenShift, once, with the update that OLM holds', async () => {
    const operator = (name: string, max: unknown, labels: Json = {}): void =>
      put(
        'operators.coreos.com/v1alpha1',
        'ClusterServiceVersion',
        name,
        {},
        {
          namespace: 'operators',
          labels,
          annotations: { 'olm.properties': JSON.stringify([{ type: 'olm.maxOpenShiftVersion', value: max }]) },
        },
      );
    started.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'operators' } });
    operator('web.v1', '4.21');
    operator('db.v2', 4.22);
    operator('copied.v1', '4.20', { 'olm.copiedFrom': 'other' });
    expect(await find('4.20.9', '4.21.4', '4.22.1')).to.deep.equal([
      'warning operators clusterserviceversion/web.v1 -n operators supports OpenShift up to 4.21: OLM holds ' +
        'the update to 4.22.1',
    ]);
    expect(await find('4.21.3', '4.21.4')).to.deep.equal([]);
  });

  for (const [featureSet, custom, names] of [
    ['TechPreviewNoUpgrade', {}, ''],
    ['CustomNoUpgrade', { customNoUpgrade: { enabled: ['A'], disabled: ['B'] } }, ' (A, B)'],
  ] as const)
    it(`names the feature set ${featureSet}`, async () => {
      put('config.openshift.io/v1', 'FeatureGate', 'cluster', { spec: { featureSet, ...custom } });
      expect(await find('4.20.9', '4.20.10', '4.21.4')).to.deep.equal([
        `warning version featuregate/cluster has the feature set ${featureSet}${names}, which holds the update ` +
          'to 4.21.4',
      ]);
      expect(await find('4.20.9', '4.20.10')).to.deep.equal([]);
    });
});
