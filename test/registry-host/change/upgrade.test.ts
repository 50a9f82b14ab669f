import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { makeRegistryBundle, type TestRegistryBundle } from '../../fakes/mirror-registry/mirrorRegistryBundle.ts';
import { installCertificates } from '../../fakes/mirror-registry/mirrorRegistryCertificates.ts';
import { startMirrorRegistry, type RunningRegistry } from '../../fakes/mirror-registry/mirrorRegistryRun.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import { executeProgram } from '../../support/program/execution.ts';

describe('plan and upgrade', function () {
  let folder: string;
  let bundle: TestRegistryBundle;
  let registry: RunningRegistry;
  before(async function () {
    folder = await mkdtemp(join(tmpdir(), 'plan-'));
    requirePeer(this, 'docker-registry', 'openssl', 'curl');
    bundle = await makeRegistryBundle(folder);
  });
  after(() => rm(folder, { recursive: true, force: true }));
  beforeEach(async () => {
    registry = await startMirrorRegistry();
  });
  afterEach(() => registry.stop());

  /** Returns the exit codes and outputs of `plan` and `upgrade`. */
  async function callBoth(...args: string[]): Promise<{ codes: number[]; said: string[] }> {
    const results = [];
    for (const command of ['plan', 'upgrade'])
      results.push(await registry.call(command, ['--detailed-exitcode', ...args]));
    return { codes: results.map(({ code }) => code), said: results.map(({ stdout, stderr }) => stdout + stderr) };
  }

  it('see an image that was imported under the name of the right one', async () => {
    const args = [`--bundle=${bundle.path}`];
    expect((await registry.call('status')).stdout).to.match(
      /^Mirror registry 2\.0\.7 with Quay 3\.12\.10, SQLite, system/,
    );
    expect((await registry.call('plan', args)).stdout).to.match(/the image of quay; U on the volume/);
    expect((await registry.call('upgrade', args)).code).to.equal(0);
    expect((await callBoth(...args)).codes).to.deep.equal([0, 0]);
    const right = registry.host.images.get(bundle.quay);
    registry.host.images.set(bundle.quay, 'imported');
    const { codes, said } = await callBoth(...args);
    expect(codes, said.join('\n')).to.deep.equal([2, 2]);
    expect(said[0]).to.include('another image of that name');
    expect(registry.host.images.get(bundle.quay)).to.equal(right);
  });

  it('print the plan as JSON, and certs the planned renewal', async () => {
    const json = async (command: string, ...args: string[]): Promise<Record<string, unknown>> =>
      JSON.parse((await registry.call(command, [...args, '-o', 'json'])).stdout) as Record<string, unknown>;
    expect(await json('plan', `--bundle=${bundle.path}`)).to.include({ from: '2.0.7', to: '2.0.11', level: 'patch' });
    expect(await json('plan')).to.include({ level: 'certificates' });
    expect(await json('certs renew', '--dry-run', '--force')).to.have.property('files').that.is.not.empty;
    expect(await json('certs renew', '--no-restart', '--force')).to.have.property('files').that.is.not.empty;
    expect(await json('certs trust')).to.have.property('outputVersion', 1);
    const { code, stderr } = await registry.call('plan', ['--timer', '-o', 'json']);
    expect([code, stderr.split('\n')[0]]).to.deep.equal([2, 'error (usage): --timer excludes --output']);
  });

  it('state the downtime by numbers of the host, the result of a failure, and the way back', async () => {
    const args = [`--bundle=${bundle.path}`];
    const asked = await registry.call('plan', args);
    expect(asked.stdout, asked.stderr)
      .to.match(/How long is it down\? [\d.]+ \w+ of database .* Not measured on this host yet; the limit is 300 s/)
      .and.to.match(/What if it fails\? .* The backup needs [\d.]+ \w+, and [\d.]+ \w+ are free\./)
      .and.to.match(/Can I go back\? .*'rollback'.* have to be pushed again/);
    expect((await registry.call('upgrade', args)).code).to.equal(0);
    const again = await registry.call('plan', [`--bundle=${bundle.respun}`, '-o', 'json']);
    const { forecast } = JSON.parse(again.stdout) as { forecast: { lastOutage: number } };
    expect(forecast.lastOutage).to.be.greaterThan(0);
  });

  it('note an image that may be another only if podman could not be asked', async () => {
    const args = [`--bundle=${bundle.path}`];
    expect((await registry.call('upgrade', args)).code).to.equal(0);
    await rm(registry.at('.oc-mirror-registry/state.json'));
    expect((await registry.call('plan', args)).stdout).to.equal(
      'The mirror registry is up to date: there is nothing to do.\n',
    );
    await chmod(join(registry.fixture.root, 'programs/podman'), 0o644);
    expect((await registry.call('plan', args)).stdout).to.include('podman was not asked');
  });

  it('both report a certificate of your own that expires soon, from --renew-before on', async () => {
    const [cert, key] = [join(folder, 'own.cert'), join(folder, 'own.key')];
    await runSuccessfully('openssl', [
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-days',
      '80',
      '-subj',
      '/CN=localhost',
      '-addext',
      'subjectAltName=DNS:localhost',
      '-keyout',
      key,
      '-out',
      cert,
    ]);
    expect((await registry.call('certs renew', [`--ssl-cert=${cert}`, `--ssl-key=${key}`])).code).to.equal(0);
    const near = await callBoth();
    expect(near.codes, near.said.join('\n')).to.deep.equal([2, 2]);
    for (const said of near.said) {
      expect(said)
        .to.match(/DUE: .*expires on .*, in \d+ days/)
        .and.not.to.include('nothing to do');
    }
    expect((await callBoth('--renew-before=50')).codes).to.deep.equal([0, 0]);
  });

  it('both refuse a certificate that no client accepts and that cannot be renewed, and say so in the past tense', async () => {
    await installCertificates(registry.fixture, { host: 'localhost', days: -1 });
    await rm(registry.at('quay-rootCA/rootCA.key'));
    const { codes, said } = await callBoth();
    expect(codes, said.join('\n')).to.deep.equal([1, 1]);
    for (const each of said) expect(each).not.to.include('nothing to do');
    expect(said[0])
      .to.include('BLOCKED')
      .and.to.match(/DUE: .* expired on/);
    expect(said[1]).to.include('expired on');
  });

  it('push a bundle into the registry of this host, whose authority only this host trusts', async () => {
    const { fixture, host } = registry;
    const repository = `localhost:${host.port}/openshift/mirror-registry-bundle`;
    const where = [`--root=${fixture.root}`, `--user-home=${fixture.home}`];
    const pushed = await executeProgram('oc-adm_mirror_registry', [
      'bundle',
      'push',
      bundle.path,
      `--to=${repository}`,
      ...where,
    ]);
    expect(pushed.code, pushed.stderr).to.equal(0);
    expect((await registry.call('plan', [`--bundle=${repository}`])).stdout).to.include(bundle.quay);
    const foreign = await executeProgram('oc-adm_mirror_registry', [
      'bundle',
      'push',
      bundle.path,
      `--to=${repository}`,
      `--root=${folder}`,
    ]);
    expect(foreign.code).to.equal(1);
  });

  it('name an option that does not exist as it was typed', async () => {
    const { code, stderr } = await registry.call('status', ['--no-restart']);
    expect([code, stderr.split('\n')[0]]).to.deep.equal([2, 'error (usage): unknown option --no-restart']);
  });
});
