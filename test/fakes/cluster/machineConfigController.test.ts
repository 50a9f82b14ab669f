import { expect } from 'chai';
import { startApiServer, type TestApiServer } from '../kubernetes/apiServer.ts';
import { MachineConfigController, type ControllerBuild, type Stream } from './machineConfigController.ts';
import { platformImage } from './site.ts';

const release = `quay.io/openshift-release-dev/ocp-release@sha256:${'5'.repeat(64)}`;
const commit = 'd20efd9b9bdb278b533916ecc7c1e451e68cc3b8';
const build: ControllerBuild = { version: '5.0.0', commit, image: platformImage('c'), hasStreams: true };
const nine: Stream = { name: 'rhel-9', osImage: platformImage('1'), osExtensionsImage: platformImage('2') };
const ten: Stream = { name: 'rhel-10', osImage: platformImage('3'), osExtensionsImage: platformImage('4') };
const systems = [nine, ten].flatMap(({ osImage, osExtensionsImage }) => [osImage, osExtensionsImage]);

// Each statement is what machine-config-controller of release-5.0 (d20efd9b9) did on a real API server without a
// network.
describe('the stand-in for machine-config-controller', () => {
  let server: TestApiServer;
  let controller: MachineConfigController;
  const names = (): string[] => {
    const made = server.find('machineconfiguration.openshift.io/v1', 'OSImageStream', 'cluster');
    return (made?.['status'] as { availableStreams: Stream[] }).availableStreams.map(({ name }) => name);
  };
  const describeStreams = (hash: string): void => {
    const annotations = {
      'machineconfiguration.openshift.io/release-image-version': hash,
      'machineconfiguration.openshift.io/release-payload-image': release,
    };
    const status = { availableStreams: [ten, nine], defaultStream: 'rhel-9' };
    const object = { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'OSImageStream' };
    server.put({ ...object, metadata: { name: 'cluster', annotations }, spec: { defaultStream: 'rhel-9' }, status });
  };
  const putSecret = (): void => {
    const metadata = { name: 'pull-secret', namespace: 'openshift-config' };
    server.put({ apiVersion: 'v1', kind: 'Secret', metadata, data: {} });
  };
  const desire = (version: string): void => {
    const object = { apiVersion: 'config.openshift.io/v1', kind: 'ClusterVersion', metadata: { name: 'version' } };
    server.put({ ...object, status: { desired: { version, image: release } } });
  };
  beforeEach(async () => {
    server = await startApiServer({ openshift: '5.0.0' });
    controller = new MachineConfigController(server);
    controller.streams = [nine, ten];
    desire('5.0.0');
    putSecret();
  });
  afterEach(() => server.stop());

  it('blocks without an object and without a registry, and at each further try', () => {
    controller.deploy(build);
    expect(controller.running).to.equal(false);
    expect(controller.attempt()).to.equal('blocked');
    expect(controller.lines.at(-1)).to.include('unable to retrieve any OSImageStream from the configured sources');
  });

  it('continues without a request with an object for its commit and release image', () => {
    controller.deploy({ ...build, hasStreams: false });
    controller.deploy(build);
    describeStreams(commit);
    expect([controller.attempt(), controller.running]).to.deep.equal(['taken', true]);
    expect(controller.requests).to.equal(1);
  });

  it('inspects and blocks with an object for another commit', () => {
    controller.deploy(build);
    describeStreams('0'.repeat(40));
    expect(controller.attempt()).to.equal('blocked');
    expect(controller.requests).to.equal(2);
  });

  it('continues at its next try when a mirror has the release image and all operating system images', () => {
    controller.deploy(build);
    controller.registry = { release: true, images: systems };
    expect(controller.attempt()).to.equal('built');
    expect(names()).to.deep.equal(['rhel-9', 'rhel-10']);
  });

  it('continues without rhel-10 with a mirror that lacks the release image, and keeps that object', () => {
    controller.registry = { release: false, images: systems };
    controller.deploy(build);
    expect(names()).to.deep.equal(['rhel-9']);
    controller.registry = { release: true, images: systems };
    expect(controller.attempt()).to.equal('taken');
    expect(names()).to.deep.equal(['rhel-9']);
  });

  it('takes a complete cache without a request if its build reads one, and blocks with half of it', () => {
    const cache = (content: object): void => {
      const metadata = {
        name: 'machine-config-image-inspection-cache',
        namespace: 'openshift-machine-config-operator',
      };
      server.put({ apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { 'cache.json': JSON.stringify(content) } });
    };
    cache({ release: true, images: [] });
    controller.deploy({ ...build, readsCache: true });
    expect(controller.running).to.equal(false);
    cache({ release: true, images: systems });
    expect(controller.attempt()).to.equal('built');
    expect(controller.requests).to.equal(1);
  });

  it('blocks without a request if there is no pull secret', () => {
    server.objects.delete(
      {
        kind: server.kinds.find(({ kind }) => kind === 'Secret') as never,
        namespace: 'openshift-config',
        name: 'pull-secret',
      },
      {},
      false,
    );
    controller.registry = { release: true, images: systems };
    controller.deploy(build);
    expect([controller.running, controller.requests]).to.deep.equal([false, 0]);
  });

  it('defers for another version than its own, and starts the others', () => {
    desire('5.0.1');
    controller.deploy(build);
    expect(controller.running).to.equal(true);
    expect(controller.lines.join('\n')).to.include('OSImageStream rebuild deferred: ClusterVersion targets 5.0.1');
  });
});
