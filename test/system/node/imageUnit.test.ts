import { mkdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf, parseReference } from '../../../lib/content/oci/reference.ts';
import { fieldsOf, listOf, textsOf } from '../../../lib/fields.ts';
import { mirrorFile, nodeStateFolder } from '../../../lib/node/machine/host.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import { cleaningSet } from '../../../lib/update/install/uninstall.ts';
import { imageUnitFile, imageUnitName } from '../../../lib/update/mirror/mirrorUnit.ts';
import { SystemdNode } from '../../fakes/cluster/systemdNode.ts';
import { requireRoot } from '../../support/archive/storeReader.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { until } from '../../support/until.ts';

const serving = new URL('../../../lib/update/agent/imageServing.ts', import.meta.url).href;
const contexts = new URL('../../support/context.ts', import.meta.url).href;
const link = `/etc/systemd/system/multi-user.target.wants/${imageUnitName}`;

describe('the unit with which a node serves its own images, with systemd', function () {
  requirePeer(this, 'unshare', 'systemd-analyze', 'skopeo');
  let folder: string;
  let made: TestBundle;
  let node: SystemdNode;
  let images: readonly string[];

  before(async function () {
    await requireRoot(this);
    folder = await makeFolder();
    made = await makeBundle({ layerSize: 1000 });
    images = [made.result.metadata.release, ...made.result.metadata.images];
    await mkdir(join(folder, 'node'));
    node = await SystemdNode.make('worker-0', join(folder, 'node'), { '/etc/containers/registries.conf': '' }, true);
    await node.boot();
    await keepCopy();
  });
  after(async () => {
    await node.close();
    await made.remove();
    await removeFolder(folder);
  });
  afterEach(async function () {
    if (this.currentTest?.state === 'failed') console.error(await node.console);
  });

  /** Gives the node what its agent keeps of a verified bundle. */
  const keepCopy = async (): Promise<void> => {
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    const trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
    const cache = new BundleCache(join(folder, 'state'), trust);
    const context = makeContext();
    const found = { path: made.path, device: made.folder };
    const verified = await cache.verify(found, digestOf(await readFile(made.path)), context);
    const copy = await cache.keep(verified, context);
    await copy?.bundle[Symbol.asyncDispose]();
    await verified.bundle[Symbol.asyncDispose]();
    await inPod('sh', '-c', `cp -a '${cache.folder}'/* '${join(node.root, nodeStateFolder)}'`);
  };
  /** Runs a program as a privileged pod of the node does. */
  const inPod = async (...command: readonly string[]): Promise<void> => {
    const [program = '', ...args] = [...node.podCommand, ...command];
    await runSuccessfully(program, args);
  };
  /** Starts or stops in a process of its own, as each new pod of an agent. */
  const agent = (call: string): Promise<void> => {
    const script =
      `import { ImageServing } from '${serving}'; import { makeContext } from '${contexts}';\n` +
      `const host = { root: ${JSON.stringify(node.root)}, environment: process.env };\n` +
      `await new ImageServing(host, 'ab').${call};`;
    return inPod(process.execPath, '--input-type=module', '--eval', script);
  };
  const start = (): Promise<void> => agent(`start(${JSON.stringify(images)}, makeContext())`);
  const show = async (property: string): Promise<string> =>
    (await node.tryRun('systemctl', 'show', '--value', `--property=${property}`, imageUnitName)).trim();
  /** Pulls an image with all its layers as CRI-O does, by its name. Returns the digest of what came. */
  const pull = async (image = images[1] ?? ''): Promise<string> => {
    await node.tryRun('rm', '-rf', '/var/pulled');
    await node.tryRun('skopeo', 'copy', '--insecure-policy', `docker://${image}`, 'dir:/var/pulled');
    return digestOf(Buffer.from((await node.read('/var/pulled/manifest.json')) ?? ''));
  };
  const untilPulled = (): Promise<void> => until(async () => (await pull()) === parseReference(images[1] ?? '').digest);
  const traces = async (): Promise<string[]> => {
    const found = [mirrorFile, imageUnitFile, link].map(async (path) => ((await node.has(path)) ? [path] : []));
    const listening = await node.tryRun('ss', '-Htln', 'sport = :9691');
    return [...(await Promise.all(found)).flat(), listening.trim()].filter((each) => each !== '');
  };

  it('gives each image to the runtime, and is back after a kill and after a power cut', async () => {
    expect(await pull()).to.equal(digestOf(Buffer.from('')));
    await start();
    await untilPulled();
    for (const image of images) expect(await pull(image), image).to.equal(parseReference(image).digest);
    expect([await show('ActiveState'), await show('UnitFileState')]).to.deep.equal(['active', 'enabled']);
    const killed = await show('MainPID');
    await node.tryRun('systemctl', 'kill', '--signal=KILL', imageUnitName);
    await until(async () => !['0', killed].includes(await show('MainPID')));
    await untilPulled();
    expect(await show('NRestarts')).to.equal('1');
    await node.cutPower();
    await node.boot();
    await untilPulled();
    expect(await show('Before')).to.contain('crio.service');
  });

  it('goes when an agent stops it, and comes back with the next update', async () => {
    await start();
    await untilPulled();
    expect(await traces()).to.have.length(4);
    await agent('stop(makeContext())');
    expect(await traces()).to.deep.equal([]);
    expect(await show('LoadState')).to.equal('not-found');
    expect(await node.read('/var/log/crio')).to.match(/reloaded free\n$/);
    await start();
    await untilPulled();
  });

  it('goes with the installation', async () => {
    await start();
    await untilPulled();
    const [agents] = agentObjects({ image: 'i', executables: {}, admission: undefined, rules: true }).slice(-1);
    const set = cleaningSet(agents ?? expect.fail('there is no DaemonSet'), { removePins: false });
    const pod = fieldsOf(fieldsOf(fieldsOf(set['spec'])['template'])['spec']);
    const script = textsOf(listOf(pod['containers'])[0]?.['command'])[2] ?? '';
    await inPod('bash', '-c', script.replaceAll('/host', node.root).replace('exec sleep infinity', ''));
    expect(await traces()).to.deep.equal([]);
    expect(await node.has(nodeStateFolder)).to.equal(false);
    expect(await show('LoadState')).to.equal('not-found');
  });
});
