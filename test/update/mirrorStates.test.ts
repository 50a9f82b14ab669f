import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect } from 'chai';
import { mirrorStateFile } from '../../lib/node/machine/host.ts';
import { listMirrorStates, readMirrorState, formatNodeReport } from '../../lib/update/record/nodeReport.ts';
import { startCluster } from '../support/cluster.ts';
import { failureOf } from '../support/program/failure.ts';

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
