import { mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { type Finding, formatSubject } from '../../../../lib/cluster/finding.ts';
import type { StoredObject } from '../../../../lib/cluster/objects/storedObject.ts';
import { readDisks } from '../../../../lib/readiness/nodes/nodeDisks.ts';
import type { Preflight } from '../../../../lib/readiness/preflight/preflight.ts';
import { readLoadState } from '../../../../lib/update/controller/loadState.ts';
import { findObstacles } from '../../../../lib/update/controller/readiness.ts';
import type { NodeProgress } from '../../../../lib/update/record/upgradeBundle.ts';
import { makeAuthority, type Authority } from '../../../support/certificates.ts';
import { connectTo } from '../../../support/cluster.ts';
import { makeBundle, type TestBundle } from '../../../support/content/bundle.ts';
import { runProgram } from '../../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../../support/kubeconfig.ts';
import type { Execution } from '../../../support/program/execution.ts';
import { startApiServer, type TestApiServer } from '../../kubernetes/apiServer.ts';
import { makeFacts } from '../updatingSite.ts';
import { furnishZooSite, readZoo } from './zooSite.ts';

const [running, next] = ['4.20.2', '4.20.3'];
const gibibyte = 1024 ** 3;
const sites = await readZoo();

describe('the zoo of clusters', () => {
  let bundle: TestBundle;
  let folder: string;
  let executable: string;
  let authority: Authority;

  before(async () => {
    authority = await makeAuthority();
    bundle = await makeBundle({ version: next, previous: [running] });
    folder = await mkdtemp(join(tmpdir(), 'zoo-'));
    executable = join(folder, 'executable');
    // As large as an executable that includes Node.js, but empty.
    await using file = await open(executable, 'w');
    const header = Buffer.alloc(20);
    header.write('\x7fELF', 'latin1');
    header.writeUInt16LE(62, 18);
    await file.write(header);
    await file.truncate(21 * 1024 * 1024);
  });
  after(async () => {
    await bundle.remove();
    await authority.remove();
    await rm(folder, { recursive: true });
  });

  for (const site of sites) {
    describe(`${site.name}: ${site.about}`, () => {
      const { boot, update, gate, install, says = [] } = site.expected;
      const both = typeof boot === 'string' || typeof update === 'string' ? update : [...boot, ...update];
      let server: TestApiServer;
      let kubeconfigs: KubeconfigFolder;

      before(async () => {
        const { certificate: cert, key } = await authority.issue();
        const tls = { cert, key, ca: authority.certificate, requestCert: true, rejectUnauthorized: false };
        server = await startApiServer({
          openshift: running,
          ...(site.access === 'expired' && { tls, tokens: new Map() }),
        });
        furnishZooSite(server, site);
        kubeconfigs = await makeKubeconfigFolder();
        const data = Buffer.from(authority.certificate).toString('base64');
        const cluster = { server: server.url, ...(site.access && { 'certificate-authority-data': data }) };
        const { certificateFile, keyFile } = await authority.issue({ client: true, expired: true });
        const user = { 'client-certificate': certificateFile, 'client-key': keyFile };
        await kubeconfigs.write({ cluster, ...(site.access && { user }) });
      });
      after(async () => {
        await server.stop();
        await kubeconfigs.remove();
      });
      const run = (command: string, ...args: string[]): Promise<Execution> =>
        runProgram(folder, command, [...args, `--kubeconfig=${join(kubeconfigs.folder, 'config')}`]);
      const expectFindings = async (expected: readonly string[] | string, ...args: string[]): Promise<void> => {
        const { code, stdout, stderr } = await run('preflight', ...args, '-o', 'json');
        if (typeof expected === 'string') {
          expect(stderr).to.match(new RegExp(`^error \\(${expected}\\)`, 'm'));
          expect(code).to.equal(1);
          return;
        }
        expect(stdout, stderr).not.to.equal('');
        expectFound((JSON.parse(stdout) as Preflight).findings, expected);
        expect(code).to.equal(expected.some(isBlocker) ? 1 : 0);
      };

      it('has the findings of preflight', () => expectFindings(boot));

      it('has the findings of preflight of a bundle', async () => {
        const trust = [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
        await expectFindings(both, bundle.path, ...trust);
      });

      // The controller needs no kubeconfig.
      if (site.access === undefined)
        it('opens the gate of the controller, unless it must not', async () => {
          const expected = gate ?? (typeof both === 'string' ? [] : both.filter(isBlocker));
          expectFound(await askGate(server), expected);
        });

      it('lets the agents be installed, or says why not', async () => {
        const { code, stderr } = await run('install', '--dry-run=client', `--executable=${executable}`);
        expect(/^error \(([a-z-]+)\)/m.exec(stderr)?.[1]).to.equal(install);
        expect(code).to.equal(install === undefined ? 0 : 1);
        for (const words of says) expect(stderr).to.contain(words);
      });
    });
  }

  it('has a public description of each site', () => {
    for (const { name, source } of sites) expect(source, name).to.match(/^https:\/\//);
    expect(sites.length).to.be.at.least(20);
  });
});

const isBlocker = (finding: string): boolean => finding.startsWith('blocker ');

/** Compares findings with what must be found. Findings that only inform may be more. */
function expectFound(findings: readonly Finding[], expected: readonly string[]): void {
  const wanted = expected.map((text) => {
    const [, brief = text, words = ''] = /^(.*?): (.*)$/.exec(text) ?? [];
    return { brief, words };
  });
  const found = findings.map(({ severity, check, subject, message }) => {
    const name = subject.name === '' ? subject.kind.toLowerCase() : formatSubject(subject);
    return { brief: `${severity} ${check} ${name}`, severity, message };
  });
  const shown = found.map(({ brief, message }) => `${brief}: ${message}`).join('\n');
  for (const { brief, words } of wanted) {
    const own = found.filter((each) => each.brief === brief && each.message.includes(words));
    expect(own, `${brief} (${words}) of\n${shown}`).to.have.length(1);
  }
  const others = found.filter(({ brief }) => !wanted.some((each) => each.brief === brief));
  expect(others.filter(({ severity }) => severity !== 'info')).to.deep.equal([]);
}

/** Asks the gate of the controller about a bundle of 16 GiB that no node has loaded. */
async function askGate(server: TestApiServer): Promise<Finding[]> {
  await using connected = await connectTo(server);
  const { cluster } = connected;
  const list = (apiVersion: string, kind: string): Promise<StoredObject[]> =>
    cluster.list(apiVersion, kind).catch(() => []);
  const machines = 'machineconfiguration.openshift.io/v1';
  const [clusterVersion] = await list('config.openshift.io/v1', 'ClusterVersion');
  const nodes = await list('v1', 'Node');
  const site = {
    clusterVersion: clusterVersion ?? expect.fail(),
    operators: await list('config.openshift.io/v1', 'ClusterOperator'),
    pools: await list(machines, 'MachineConfigPool'),
    poolNodes: await list(machines, 'MachineConfigNode'),
    nodes,
    pinnedSets: [],
    osImageStreams: [],
    controllerPods: [],
  };
  const facts = { ...makeFacts({ version: next, previous: [running] }), bytes: 16 * gibibyte };
  const { nodes: loads, base } = readLoadState({ spec: { bundle: {}, hold: false } }, nodes, new Map());
  const reported = loads.map((each) => ({ ...each, ...readReport(server.nodeStats.get(each.name)) }));
  return await findObstacles(cluster, site, facts, { nodes: reported, base });
}

/** What the agent of a node reports about its file systems, which the kubelet reports too. */
function readReport(summary: object | undefined): Pick<NodeProgress, 'free' | 'size' | 'system'> {
  const { images, system } = readDisks(summary) ?? expect.fail();
  return { ...images, ...(system?.size !== undefined && { system: { free: system.free, size: system.size } }) };
}
