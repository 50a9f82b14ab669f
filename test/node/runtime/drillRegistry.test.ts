import { existsSync } from 'node:fs';
import { mkdir, readFile, readlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { drillFile } from '../../../lib/node/machine/host.ts';
import {
  runDrill,
  bootUnitFile,
  bootUnitLink,
  nextBootFile,
  requestsFile,
  startArguments,
  type DrillPlan,
} from '../../../lib/node/runtime/drillRegistry.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { hasPeer, run } from '../../support/peers.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

describe('runDrill', () => {
  let root: string;
  let context: TestContext;
  const plan = (seconds: number, registries: string[] = []): DrillPlan => ({
    node: 'worker-0',
    until: Math.ceil(Date.now() / 1000) + seconds,
    registries,
  });
  const start = (own: DrillPlan, afterReboot = false) =>
    runDrill({ root, environment: {} }, own, { afterReboot }, context);
  const put = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  };
  const has = (path: string): boolean => existsSync(join(root, path));
  const untilThere = async (): Promise<string> => {
    await context.untilLogged('every registry is redirected');
    return readFile(join(root, drillFile), 'utf8');
  };

  beforeEach(async () => {
    root = await makeFolder();
    context = makeContext();
  });
  afterEach(() => removeFolder(root));

  it('redirects every table of the configuration, known registries and usual ends, and logs each request', async () => {
    await put(
      '/etc/containers/registries.conf',
      'unqualified-search-registries = ["docker.io"]\n[[registry]]\nprefix = "quay.io/site/app"\nlocation = ' +
        '"quay.io/site/app"\n',
    );
    await put(
      '/etc/containers/registries.conf.d/50-mirror.conf',
      '[[registry]]\nlocation = "registry.redhat.io"\nblocked = true\n[[registry.mirror]]\nlocation = ' +
        '"mirror.site.example:5000/rh"\n',
    );
    // Container tools read no file of another name.
    await put('/etc/containers/registries.conf.d/50-mirror.conf.rpmsave', '[[registry]]\nlocation = "old.example"\n');
    const running = start(plan(60, ['image-registry.openshift-image-registry.svc:5000']));
    const text = await untilThere();
    const prefixes = [...text.matchAll(/^prefix = "(.*)"$/gm)].map((match) => match[1]);
    const wanted = ['docker.io', 'quay.io/site/app', 'registry.redhat.io', 'mirror.site.example:5000'];
    expect(prefixes).to.include.members([
      ...wanted,
      'image-registry.openshift-image-registry.svc:5000',
      '*.io',
      '*.com',
      '*.svc',
      '*.example',
    ]);
    expect(text).not.to.contain('mirror]]').and.not.to.contain('old.example');
    const [, location = ''] = /prefix = "quay.io\/site\/app"\nlocation = "(.*)"/.exec(text) ?? [];
    const [host = '', path = ''] = location.split('/');
    const ask = async (rest: string): Promise<number> => (await fetch(`http://${host}/v2/${rest}`)).status;
    expect(await ask('')).to.equal(200);
    expect(await ask(`${path}/manifests/v1`)).to.equal(404);
    expect(await ask('r999/manifests/v1')).to.equal(404);
    expect(await ask(`${path}/manifests/sha256:${'a'.repeat(64)}`)).to.equal(404);
    context.interrupt();
    expect(await running).to.equal('interrupted');
    expect(has(drillFile)).to.equal(false);
    const lines = (await readFile(join(root, requestsFile), 'utf8')).trim().split('\n');
    const images = lines.map((line) => (JSON.parse(line) as { image: string }).image);
    expect(images).to.deep.equal(['quay.io/site/app:v1', `quay.io/site/app@sha256:${'a'.repeat(64)}`]);
  });

  it('ends with its plan, and removes the announcement of a reboot', async () => {
    // Shorter, it may be over before it has begun.
    const running = start(plan(2));
    await untilThere();
    await put(nextBootFile, '');
    expect(await running).to.equal('over');
    expect([has(drillFile), has(nextBootFile)]).to.deep.equal([false, false]);
  });

  it('continues once after a reboot that was announced, and not after another one', async () => {
    expect(await start(plan(60), true)).to.equal('over');
    await put(nextBootFile, '');
    const running = start(plan(60), true);
    await untilThere();
    expect(has(nextBootFile)).to.equal(false);
    context.interrupt();
    await running;
    expect(await start(plan(60), true)).to.equal('over');
    await put(nextBootFile, '');
    expect(await start(plan(-60), true)).to.equal('over');
    expect(has(drillFile)).to.equal(false);
  });

  it('has a unit for the next boot on the disk before the drop-in, which systemd accepts', async function () {
    const running = start(plan(60, ['quay.io']));
    await untilThere();
    const text = await readFile(join(root, bootUnitFile), 'utf8');
    expect(await readlink(join(root, bootUnitLink))).to.equal(bootUnitFile);
    context.interrupt();
    await running;
    expect(text).to.match(/^Before=crio.service kubelet.service$/m);
    expect(startArguments(plan(60))).to.include('--collect');
    if (!hasPeer('systemd-analyze')) return this.skip();
    const { stderr } = await run('systemd-analyze', ['verify', '--man=no', join(root, bootUnitFile)]);
    expect(stderr.split('\n').filter((line) => line.includes('oc-upgrade-bundle'))).to.deep.equal([]);
  });
});
