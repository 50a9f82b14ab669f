import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { mirrorStateFile } from '../../../lib/node/machine/host.ts';
import {
  listMirrorStates,
  limitMirrorState,
  readMirrorState,
  formatNodeReport,
  readReport,
} from '../../../lib/update/record/nodeReport.ts';
import type { NodeProgress } from '../../../lib/update/record/upgradeBundle.ts';
import { startCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';

const state = { versions: ['4.20.3'], requests: 2, lacking: [] };

describe('the states of mirrors', () => {
  it('are those in the reports of agents, none for a user who may not read them', async () => {
    let isAllowed = true;
    const allow = ({ resource }: { resource: string }): boolean => isAllowed || resource !== 'leases';
    await using connected = await startCluster({ tokens: new Map([['t', 'me']]), allow });
    const { server, cluster } = connected;
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'oc-upgrade-bundle-reports' } });
    const phase = { phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
    server.put(formatNodeReport({ bundle: '', progress: { name: 'master-0', ...phase }, mirror: state }));
    server.put(formatNodeReport({ bundle: '', progress: { name: 'worker-0', ...phase } }));
    expect(await listMirrorStates(cluster)).to.deep.equal([{ node: 'master-0', ...state }]);
    isAllowed = false;
    expect(await listMirrorStates(cluster)).to.deep.equal([]);
    server.fault(/leases/, { answer: { status: 400 } });
    await failureOf(listMirrorStates(cluster));
  });

  it('are unknown on a node without a mirror, and if the file is damaged', async () => {
    const root = await mkdtemp(join(tmpdir(), 'state-'));
    const read = () => readMirrorState({ root, environment: {} });
    try {
      expect(await read()).to.equal(undefined);
      await mkdir(dirname(join(root, mirrorStateFile)), { recursive: true });
      await writeFile(join(root, mirrorStateFile), JSON.stringify(state));
      expect(await read()).to.deep.equal(state);
      await writeFile(join(root, mirrorStateFile), '{"versions": [');
      expect(await read()).to.equal(undefined);
    } finally {
      await rm(root, { recursive: true });
    }
  });
});

describe('the state of a mirror', () => {
  it('fits into the report of a node, also with many long names', () => {
    const versions = Array.from({ length: 30 }, (_, index) => `4.20.${index}`);
    const sizes = Object.fromEntries(versions.map((version) => [version, 1]));
    const lacking = versions.map((version) => `${version}@${'x'.repeat(1000)}`);
    const mirror = limitMirrorState({ versions, sizes, lacking, requests: 1 });
    const report = readReport(formatNodeReport({ bundle: '', progress, mirror }))?.report;
    expect(report?.mirror).to.deep.equal(mirror);
    expect(mirror.versions).to.deep.equal(versions.slice(0, 20));
    expect(Object.keys(mirror.sizes ?? {})).to.deep.equal(mirror.versions);
    expect(mirror.lacking.map((image) => image.split('@')[0])).to.deep.equal(versions.slice(10));
  });
});

const progress: NodeProgress = {
  name: 'a',
  phase: 'Failed',
  imagesLoaded: 1,
  imagesTotal: 2,
  bytes: 3,
  message: 'why',
};

describe('the report of a node', () => {
  it('is read as it was written, except for its labels', () => {
    const mirror = { versions: ['4.20.3'], requests: 3, lacking: ['a/b@sha256:c'] };
    const report = { bundle: 'u', progress, origin: 'http://10.0.0.1:8080', mirror };
    const lease = formatNodeReport({ ...report, offers: `sha256:${'a'.repeat(64)}` });
    expect(readReport(lease)?.report).to.deep.equal(report);
    expect(readReport(lease)?.node).to.equal('a');
    expect(readReport(lease)?.renewed).to.match(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  });

  it('fits into a Lease, with any name of the node and any message', () => {
    const lease = formatNodeReport({
      bundle: 'u',
      progress: { ...progress, name: 'n'.repeat(253), message: 'm'.repeat(9000) },
    });
    expect(lease.metadata.name).to.have.length.within(10, 253);
    expect(readReport(lease)?.report?.progress.name).to.have.length(253);
    expect(readReport(lease)?.report?.progress.message).to.have.length(4000);
  });

  it('is missing if it has a value that no status may have', () => {
    const lease = formatNodeReport({ bundle: 'u', progress });
    const [annotation = ['', '']] = Object.entries(lease.metadata.annotations ?? {});
    const [key, text] = annotation;
    const read = (changed: string) =>
      readReport({ ...lease, metadata: { ...lease.metadata, annotations: { [key]: changed } } })?.report;
    expect(read(text)).not.to.equal(undefined);
    for (const [right, wrong] of [
      ['"imagesLoaded":1', '"imagesLoaded":3'],
      ['"bytes":3', '"bytes":-1'],
      ['"bytes":3', '"bytes":"3"'],
      ['"Failed"', '"Lost"'],
      ['"why"', `"${'m'.repeat(40_000)}"`],
      ['"progress":', '"proposal":{"version":"4.20.3;x","arch":"x86_64"},"progress":'],
      ['"progress":', '"mirror":{"versions":[],"requests":-1,"lacking":[]},"progress":'],
      ['"progress":', '"backup":{"made":{"path":"/etc"}},"progress":'],
      ['{"bundle"', '{"other"'],
      ['{', ''],
    ] as const)
      expect(read(text.replace(right, wrong)), wrong).to.equal(undefined);
    expect(readReport({ apiVersion: '', kind: '', metadata: { name: 'x' } })).to.equal(undefined);
  });

  it('is read without the proposal of a bundle whose version can name no object', () => {
    const read = (version: string) =>
      readReport(formatNodeReport({ bundle: '', progress, proposal: { version, arch: 'x86_64' } }))?.report;
    expect(read('4.20.3')).to.deep.equal({ bundle: '', progress, proposal: { version: '4.20.3', arch: 'x86_64' } });
    for (const version of ['4.20.3+a', '4.20.3-EC.1', `4.20.3-${'a'.repeat(80)}`])
      expect(read(version), version).to.deep.equal({ bundle: '', progress });
  });

  it('has no fields that are not stated, because the API server refuses a status with them', () => {
    const lease = formatNodeReport({ bundle: 'u', progress: { ...progress, other: 1 } as NodeProgress });
    expect(readReport(lease)?.report).to.deep.equal({ bundle: 'u', progress });
  });

  it('is of the node that holds its Lease, and of no other one that it names', () => {
    const own = formatNodeReport({ bundle: 'u', progress });
    const other = formatNodeReport({ bundle: 'u', progress: { ...progress, name: 'master-0' } });
    expect(
      readReport({ ...own, metadata: { ...own.metadata, annotations: other.metadata.annotations } }),
    ).to.deep.include({ node: 'a', report: undefined });
    expect(readReport({ ...own, spec: other['spec'] })).to.equal(undefined);
    expect(readReport({ ...other, metadata: own.metadata })).to.equal(undefined);
    expect(readReport({ ...own, spec: {} })).to.equal(undefined);
  });
});
