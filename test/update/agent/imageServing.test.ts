import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { mirrorFile } from '../../../lib/node/machine/host.ts';
import { BundleCache } from '../../../lib/update/agent/bundleCache.ts';
import { ImageServing } from '../../../lib/update/agent/imageServing.ts';
import { runMirrorServer } from '../../../lib/update/mirror/mirrorServer.ts';
import { imageUnitFile, imageUnitName } from '../../../lib/update/mirror/mirrorUnit.ts';
import { makeBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeRecordedHost, type RecordedHost } from '../../support/program/recordedHost.ts';

const repository = 'quay.io/openshift-release-dev/ocp-release';
const images = [`${repository}@sha256:1`, `${repository}@sha256:2`];

describe('a node that serves its own images', () => {
  let folder: string;
  let root: string;
  let recorded: RecordedHost;
  const host = () => recorded.host;
  const calls = () => recorded.calls();
  const write = async (path: string, text: string): Promise<void> => {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
  };

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'serving-'));
    recorded = await makeRecordedHost(folder);
    ({ root } = recorded.host);
  });
  afterEach(async () => {
    recorded.close();
    await rm(folder, { recursive: true });
  });

  it('redirects its runtime to a unit that starts before it, once, and takes both away', async () => {
    const serving = new ImageServing(host(), 'ab');
    await serving.start(images, makeContext());
    const started = ['daemon-reload', `enable ${imageUnitName}`, `restart ${imageUnitName}`, 'reload crio'];
    expect(await calls()).to.deep.equal(started);
    const unit = await readFile(join(root, imageUnitFile), 'utf8');
    expect(unit)
      .to.contain("mirror-serve --listen=127.0.0.1:9691 --plain-http'")
      .and.to.match(/^Before=crio.service/m);
    expect(await readFile(join(root, mirrorFile), 'utf8')).to.contain(
      `prefix = "${repository}"\nlocation = "${repository}"\n[[registry.mirror]]\nlocation = ` +
        '"127.0.0.1:9691/openshift-release-dev/ocp-release"',
    );
    await serving.start(images, makeContext());
    expect(await calls()).to.have.length(started.length);
    // Another process of the agent ends it.
    await new ImageServing(host(), 'ab').stop(makeContext());
    expect([existsSync(join(root, imageUnitFile)), existsSync(join(root, mirrorFile))]).to.deep.equal([false, false]);
    expect((await calls()).slice(started.length)).to.deep.equal([
      'reload crio',
      `disable --now ${imageUnitName}`,
      'daemon-reload',
    ]);
    await serving.stop(makeContext());
    expect(await calls()).to.have.length(started.length + 3);
  });

  it('leaves the mirrors of the site as they are', async () => {
    await write(
      '/etc/containers/registries.conf',
      `[[registry]]\nprefix = "${repository}"\nlocation = "m.example.com/r"\n`,
    );
    const serving = new ImageServing(host(), 'ab');
    expect(await serving.canServe(images)).to.equal(false);
    await failureOf(serving.start(images, makeContext()), 'conflict');
    expect([existsSync(join(root, imageUnitFile)), await calls()]).to.deep.equal([false, []]);
  });

  it('redirects no runtime if it cannot write the unit', async () => {
    await rm(join(root, dirname(imageUnitFile)), { recursive: true });
    await write(dirname(imageUnitFile), '');
    await failureOf(new ImageServing(host(), 'ab').start(images, makeContext()), 'not-writable');
    expect(existsSync(join(root, mirrorFile))).to.equal(false);
  });

  const allow = (name: string) =>
    'imagePullCredentialsVerificationPolicy: ' +
    `NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist:\n- ${name}\n`;
  const policies = [
    [undefined, 'imagePullCredentialsVerificationPolicy: NeverVerifyPreloadedImages\n'],
    ['AlwaysVerify', 'kind: KubeletConfiguration\nimagePullCredentialsVerificationPolicy: AlwaysVerify\n'],
    ['NeverVerifyAllowlistedImages', '{"imagePullCredentialsVerificationPolicy": "NeverVerifyAllowlistedImages"}'],
    ['NeverVerifyAllowlistedImages', allow('quay.io/openshift')],
    [undefined, allow(repository)],
    [undefined, allow('quay.io/openshift-release-dev/*')],
    [undefined, '[: not a document'],
  ] as const;
  it('is needed if the policy of the kubelet refuses images that it has not pulled', async () => {
    const serving = new ImageServing(host(), 'ab');
    expect(await serving.findPolicy(images)).to.equal(undefined);
    for (const [policy, text] of policies) {
      await write('/etc/kubernetes/kubelet.conf', text);
      expect(await serving.findPolicy(images), text).to.equal(policy);
    }
    await write('/etc/kubernetes/kubelet.conf', policies[1][1]);
    await write('/etc/openshift/kubelet.conf.d/10.conf', policies[0][1]);
    expect(await serving.findPolicy(images)).to.equal(undefined);
  });

  it('serves the copies of its agent by plain HTTP', async () => {
    await using made = await makeBundle({ layerSize: 1000 });
    const context = makeContext();
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    const trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
    const cache = new BundleCache(join(folder, 'state'), trust);
    const digest = digestOf(await readFile(made.path));
    const verified = await cache.verify({ path: made.path, device: made.folder }, digest, context);
    const copy = await cache.keep(verified, context);
    await copy?.bundle[Symbol.asyncDispose]();
    await verified.bundle[Symbol.asyncDispose]();
    const listening = Promise.withResolvers<string>();
    const options = { host: '127.0.0.1', port: 0, folder: cache.folder, certificates: undefined, interval: 10 };
    const done = runMirrorServer({ ...options, onListening: listening.resolve }, context);
    const url = await listening.promise;
    const answer = await fetch(`${url}/v2/openshift-release-dev/ocp-release/manifests/${made.release.digest}`);
    expect([answer.status, digestOf(Buffer.from(await answer.arrayBuffer()))]).to.deep.equal([
      200,
      made.release.digest,
    ]);
    context.interrupt();
    await done;
  });
});
