import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { upgradeBundle } from '../../../cmd/upgrade-bundle/commands.ts';
import { type Bundle } from '../../../lib/bundle/open/bundle.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { mirrorFile } from '../../../lib/node/machine/host.ts';
import { startMirror, type Mirror } from '../../../lib/node/runtime/mirror.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { requirePeer, run } from '../../support/peers.ts';
import { executableOf } from '../../support/program/executables.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';
import { expectOutput } from '../../support/program/outputs.ts';
import { until } from '../../support/until.ts';

const program = executableOf('oc-adm_upgrade_bundle');

describe('startMirror', function () {
  let made: TestBundle;
  let root: string;
  let bundle: Bundle;
  const context = makeContext();
  before(async () => {
    made = await makeBundle();
  });
  after(() => made.remove());
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), 'mirror-'));
    bundle = await openBundle(made.path, context);
  });
  afterEach(async () => {
    await bundle[Symbol.asyncDispose]();
    await rm(root, { recursive: true });
  });
  const start = (...also: string[]): Promise<Mirror> => {
    return startMirror(bundle, { host: { root, environment: {} }, port: 0, also, tags: new Map() }, context);
  };
  const inspect = (image: string) => {
    return run('skopeo', ['--registries-conf', join(root, mirrorFile), 'inspect', '--raw', `docker://${image}`]);
  };

  it('answers in place of the registries, counts answers and failures, and leaves nothing behind', async function () {
    requirePeer(this, 'skopeo');
    const mirror = await start('nowhere.invalid');
    try {
      const found = await inspect(made.release.pullspec);
      expect(found.code, found.stderr).to.equal(0);
      expect((await inspect('nowhere.invalid/some/operator:v1')).code).not.to.equal(0);
      const requests = mirror.requests();
      expect(requests.find(({ path }) => path.endsWith(made.release.digest))).to.include({
        status: 200,
        method: 'GET',
      });
      expect(requests.find(({ path }) => path === '/v2/some/operator/manifests/v1')).to.include({ status: 404 });
      expect(requests.every(({ client }) => client.length > 0)).to.equal(true);
      expect(context.lines.join()).to.match(/info: NOT answered: GET \/v2\/some\/operator\/manifests\/v1 → 404/);
    } finally {
      await mirror.close();
    }
    expect(existsSync(join(root, mirrorFile))).to.equal(false);
  });

  it('refuses a second mirror of the same repository', async () => {
    const path = '/etc/containers/registries.conf.d/010-site.conf';
    const text = `[[registry]]\nlocation = "quay.io/${made.release.releaseRepository}"\n`;
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), text);
    const error = await failureOf(start(), 'conflict');
    expect(error.message).to.contain(path);
    expect(await readFile(join(root, path), 'utf8')).to.equal(text);
    expect(existsSync(join(root, mirrorFile))).to.equal(false);
  });

  it('says what to do on a node that pulls from the mirrors of the cluster', async () => {
    const source = `quay.io/${made.release.releaseRepository}`;
    const mirrors = ['registry.example.com/a', 'localhost:9690/a'].map(
      (mirror) => `[[registry.mirror]]\nlocation = "${mirror}"\npull-from-mirror = "digest-only"\n`,
    );
    const text = `[[registry]]\nprefix = ""\nlocation = "${source}"\n${mirrors.join('')}`;
    const authority = join(root, '/etc/containers/certs.d/localhost:9690/ca.crt');
    await mkdir(dirname(authority), { recursive: true });
    await writeFile(join(root, '/etc/containers/registries.conf'), text);
    expect((await failureOf(start(), 'conflict')).hint).to.include('remove it first');
    await writeFile(authority, 'CA');
    const error = await failureOf(start(), 'conflict');
    expect(error.message).to.equal(
      `this node pulls ${source} from the mirrors of the cluster already (localhost:9690, …)`,
    );
    expect(error.hint).to.include('oc adm-upgrade-bundle apply').and.to.include('oc adm-upgrade-bundle status');
    expect(existsSync(join(root, mirrorFile))).to.equal(false);
  });

  it('prints the counts when it is ended, and removes its file', async () => {
    const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
    const child = spawn(process.execPath, [program, 'mirror', made.path, `--root=${root}`, '-o', 'json', ...trust]);
    let [stdout, stderr] = ['', ''];
    child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
    const ended = once(child, 'close');
    const ready = new Promise<string>((resolve) => {
      child.stderr.on('data', (chunk: Buffer) => {
        const url = /http:\/\/127\.0\.0\.1:\d+(?= stands)/.exec((stderr += chunk.toString()))?.[0];
        if (url !== undefined) resolve(url);
      });
    });
    const url = await Promise.race([ready, ended.then(() => '')]);
    expect(url, stderr).not.to.equal('');
    for (const _ of [1, 2]) await fetch(`${url}/v2/a/b/manifests/v1`, { headers: { 'user-agent': 'test/1' } });
    child.kill('SIGTERM');
    await ended;
    expect(JSON.parse(stdout)).to.deep.equal([
      { outputVersion: 1, method: 'GET', path: '/v2/a/b/manifests/v1', status: 404, client: 'test/1', count: 2 },
    ]);
    expectOutput(upgradeBundle, ['mirror', '-o', 'json'], stdout);
    expect(existsSync(join(root, mirrorFile))).to.equal(false);
  });

  it('says that no image was requested', async () => {
    const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
    const interruption = new AbortController();
    const options = { signal: interruption.signal };
    const running = executeProgram('oc-adm_upgrade_bundle', ['mirror', made.path, `--root=${root}`, ...trust], options);
    await until(() => existsSync(join(root, mirrorFile)));
    interruption.abort();
    const { code, stdout, stderr } = await running;
    expect(code, stderr).to.equal(0);
    expect(stdout).to.equal('No image was requested\n');
  });
});
