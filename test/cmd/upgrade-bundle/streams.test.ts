import { expect } from 'chai';
import { rm } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import type { ReleaseInspection } from '../../../lib/bundle/inspect/release.ts';
import type { VerifyReport } from '../../../lib/bundle/verify/verify.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { operatorCommit, streamRelease } from '../../support/release/streams.ts';

const executable = fileURLToPath(new URL('../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url));
const run = async (...args: string[]): Promise<string> => {
  const { code, stdout, stderr } = await executeProgram(executable, args, { env: process.env });
  expect(code, stderr).to.equal(0);
  return stdout;
};

describe('the operating system streams of a bundle', () => {
  let bundle: TestBundle;
  let trust: string[];
  before(async () => {
    const layerSize = (name: string): number => (name.startsWith('rhel-coreos-10') ? 70_000 : 20_000);
    bundle = await makeBundle({ ...streamRelease, layerSize });
    trust = [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
  });
  after(() => bundle.remove());

  const needs =
    '5.0.1 needs its operating system streams described in the cluster: rhel-10, rhel-9; commit d20efd9b9bdb by its image';

  it('are shown by inspect, with the bytes that a site without nodes of a stream does not need', async () => {
    const text = await run('inspect', bundle.path);
    expect(text).to.include(needs);
    const [stream] = (JSON.parse(await run('inspect', bundle.path, '-o', 'json')) as ReleaseInspection)
      .osImageStreams ?? [undefined];
    expect(stream).to.include({ commit: operatorCommit, commitSource: 'image' });
    const [ten, nine] = stream?.availableStreams.map(({ unique }) => unique) ?? [];
    // Two layers of noise in each of the two images.
    expect(ten).to.be.within(280_000, 300_000);
    expect(nine).to.be.within(80_000, 100_000);
    expect(text).to.match(/rhel-10 has [\d.]+ [Kk]i?B of its own, which a site without rhel-10 nodes does not need/);
    expect(await run('inspect', bundle.path, '-o', 'html')).to.include('described in the cluster');
  });

  it('are named by verify', async () => {
    expect(await run('verify', bundle.path, ...trust)).to.include(needs);
    const report = JSON.parse(await run('verify', bundle.path, ...trust, '-o', 'json')) as VerifyReport;
    expect(report.osImageStreams?.map(({ version, problems }) => [version, problems])).to.deep.equal([['5.0.1', []]]);
  });

  it('are read from a delta bundle without its base, and their problems are shown', async () => {
    const common = streamRelease.components.filter((name) => name !== 'cluster-version-operator');
    await using base = await makeBundle({ ...streamRelease, common, version: '5.0.0' });
    await using delta = await makeBundle({ ...streamRelease, common, base: base.path });
    await rm(base.path);
    expect(await run('inspect', delta.path)).to.include(needs);
    const { 'rhel-coreos-10': _none, ...configs } = streamRelease.configs;
    await using unlabelled = await makeBundle({ ...streamRelease, configs });
    expect(await run('inspect', unlabelled.path)).to.include(
      'not possible without a mirror: the stream rhel-10 has no operating system image',
    );
  });

  it('are not mentioned for a release that does not need them', async () => {
    await using older = await makeBundle({ version: '4.20.3', components: 4 });
    expect(await run('inspect', older.path)).not.to.include('streams');
    expect(JSON.parse(await run('inspect', older.path, '-o', 'json'))).not.to.have.property('osImageStreams');
  });
});
