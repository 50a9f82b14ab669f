import { expect } from 'chai';
import { parseReference, repositoryIn } from '../../../lib/content/oci/reference.ts';
import { runPreflight } from '../../../lib/readiness/preflight/preflight.ts';
import {
  hasMirrors,
  mirrorSetsOf,
  surveyCluster,
  keepsBundles,
  keptAnnotation,
} from '../../../lib/readiness/preflight/survey.ts';
import { furnish, platformImage } from '../../fakes/cluster/site.ts';
import type { Attempt } from '../../fakes/kubernetes/apiAccess.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';
import { PreflightSite, plan } from '../../support/release/preflightSite.ts';

describe('surveyCluster', () => {
  const site = new PreflightSite();
  const { start, run, find, messageOf } = site;
  afterEach(() => site.close());

  it('continues without the objects that it may not read, and reports them', async () => {
    const allow = ({ resource, verb }: Attempt) =>
      !['machineconfigpools', 'nodes/proxy'].includes(resource) && !(resource === 'pods' && verb === 'create');
    await start({ tokens: new Map([['t', 'bob']]), allow });
    expect(await find(plan)).to.deep.equal([
      'warning rights machineconfigpool/',
      ...['master-0', 'worker-0', 'worker-1'].map((name) => `info space node/${name}`),
      'info pull-policy pod/*',
      'info rights node/',
    ]);
    expect(await messageOf('warning rights machineconfigpool/')).to.equal(
      'you may not list machineconfigpools.machineconfiguration.openshift.io: nothing is known about them',
    );
    expect(await messageOf('info rights node/')).to.equal(
      'you may not get nodes --subresource=proxy: the free space of nodes is unknown',
    );
    await start({ tokens: new Map([['t', 'bob']]), allow: ({ resource }) => resource !== 'clusterversions' });
    expect((await failureOf(run(), 'denied')).message).to.contain('list clusterversions.config.openshift.io');
  });
});

const image = platformImage('a');
const internal = 'api-int.site.example.com:22625/openshift/release';
const other = 'mirror.example.com:8443/openshift/release';

describe('a cluster with an InternalReleaseImage', () => {
  let connected: StartedCluster;
  beforeEach(async () => {
    connected = await startCluster({ openshift: '4.22.3' });
    furnish(connected.server);
  });
  afterEach(() => connected.close());

  function putMirrors(...mirrors: readonly string[]): void {
    connected.server.put({
      apiVersion: 'config.openshift.io/v1',
      kind: 'ImageDigestMirrorSet',
      metadata: { name: 'image-digest-mirror' },
      spec: { imageDigestMirrors: [{ source: repositoryIn(image), mirrors }] },
    });
  }
  const putNode = (name: string, status: 'True' | 'False'): void =>
    void connected.server.put({
      apiVersion: 'machineconfiguration.openshift.io/v1',
      kind: 'MachineConfigNode',
      metadata: { name },
      status: {
        conditions: [
          { type: 'Updating', status: 'True' },
          { type: 'InternalReleaseImageDegraded', status, message: 'the registry does not answer' },
        ],
        internalReleaseImage: { releases: [{ name: 'ocp-release-bundle-4.22.3', image }] },
      },
    });
  const find = async (): Promise<string[]> => {
    const { findings } = await runPreflight(connected.cluster, undefined, connected.context);
    return findings
      .filter(({ message }) => /22625|InternalReleaseImage/.test(message))
      .map(({ severity, subject, message }) => `${severity} ${subject.kind}/${subject.name}: ${message}`);
  };

  it('has no mirror for another release', async () => {
    putMirrors(internal, 'localhost:22625/openshift/release');
    const survey = await surveyCluster(connected.cluster);
    expect(hasMirrors({ images: [image] }, survey)).to.equal(false);
    const names = mirrorSetsOf(survey)
      .locationsOf(parseReference(image))
      .map(({ registry }) => registry);
    expect(names).to.deep.equal([parseReference(image).registry]);
    putMirrors(internal, other);
    expect(hasMirrors({ images: [image] }, await surveyCluster(connected.cluster))).to.equal(true);
  });

  it('gets the releases that the control plane nodes serve', async () => {
    expect(await find()).to.deep.equal([]);
    putMirrors(internal);
    expect(await find()).to.deep.equal([
      'info InternalReleaseImage/cluster: the control plane nodes serve releases of the installer on port 22625',
    ]);
    putNode('master-0', 'False');
    expect(await find()).to.deep.equal([
      'info InternalReleaseImage/cluster: the control plane nodes serve ocp-release-bundle-4.22.3 on port 22625',
    ]);
  });

  it('is warned of a node whose registry is degraded', async () => {
    putNode('master-0', 'False');
    putNode('master-1', 'True');
    expect((await find())[0]).to.equal(
      'warning MachineConfigNode/master-1: its registry of InternalReleaseImage is degraded: the registry does ' +
        'not answer',
    );
  });
});

describe('keepsBundles', () => {
  const set = (name: string, annotations: Record<string, string>) => ({
    apiVersion: 'config.openshift.io/v1',
    kind: 'ImageDigestMirrorSet',
    metadata: { name, annotations },
  });

  it('is true of our mirrors, unless they keep only metadata', () => {
    expect(keepsBundles(set('oc-upgrade-bundle', {}))).to.equal(true);
    expect(keepsBundles(set('oc-upgrade-bundle', { [keptAnnotation]: 'metadata' }))).to.equal(false);
    expect(keepsBundles(set('another', {}))).to.equal(false);
  });
});
