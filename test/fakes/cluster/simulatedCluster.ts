import type { KeyObject } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Digest } from '../../../lib/content/oci/reference.ts';
import { exportPublicKey } from '../../../lib/release/sigstore/envelope.ts';
import { agentObjects } from '../../../lib/update/install/agentObjects.ts';
import { gatherTrust, noTrust, type AgentTrust } from '../../../lib/update/install/agentTrust.ts';
import { readReport, reportKind } from '../../../lib/update/record/nodeReport.ts';
import {
  upgradeBundleApi,
  type NodeProgress,
  type Phase,
  type UpgradeBundle,
} from '../../../lib/update/record/upgradeBundle.ts';
import { reportKeyField, reportKeyFolder, reportMap } from '../../../lib/update/report/reportKey.ts';
import { makeAuthority, type Authority } from '../../support/certificates.ts';
import type { TestBundle } from '../../support/content/bundle.ts';
import { makeReportKey } from '../../support/content/updateReport.ts';
import { makeContext } from '../../support/context.ts';
import { findFreePort } from '../../support/freePort.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import type { Attempt } from '../kubernetes/apiAccess.ts';
import { mergePatch, type Json } from '../kubernetes/apiPatch.ts';
import { readRights } from '../kubernetes/apiRights.ts';
import { startApiServer, type TestApiServer } from '../kubernetes/apiServer.ts';
import { readPod, type AgentPod } from './agentPod.ts';
import { SimulatedNode } from './simulatedNode.ts';
import { node as makeNode, platformImage } from './site.ts';
import { UpdatingSite } from './updatingSite.ts';

const token = '0123456789abcdef0123456789abcdef';
const nodeClaim = 'authentication.kubernetes.io/node-name';
const namespace = 'oc-upgrade-bundle';

/** The token and the name of a user with all rights. */
export const administrator = 'administrator';

/** The name of a test’s UpgradeBundle. */
export const bundleName = '4.19.4-x86-64';

/** Returns whether OpenShift’s role cluster-reader, or that of every user, allows a request of a controller. */
function isReader({ user, verb, resource }: Attempt): boolean {
  if (verb === 'create' && resource === 'selfsubjectaccessreviews') return true;
  const isHidden = ['secrets', 'nodes/proxy'].includes(resource);
  return user.endsWith(':controller') && ['get', 'list', 'watch'].includes(verb) && !isHidden;
}

/** Gathers the trust of an installation in the key of a bundle. */
export function gatherTrustIn({ key, keyFile }: TestBundle): Promise<AgentTrust> {
  const wanted = { fingerprints: [key.fingerprint], keyrings: [keyFile], allowUnsigned: false };
  return gatherTrust(wanted, noTrust, makeContext());
}

/**
 * A simulated OpenShift cluster on this machine. An API server in this process enforces the roles and policies of
 * agents and controllers. The operators of an updating site run here too, and nodes are processes.
 */
export class SimulatedCluster {
  readonly api: TestApiServer;
  readonly nodes = new Map<string, SimulatedNode>();
  readonly site: UpdatingSite;
  /** The requests of agents that were denied. */
  readonly denied: readonly string[];
  /** The key that signs reports, if the installation allows them. */
  readonly reportKey: KeyObject | undefined;
  readonly #authority: Authority;
  readonly #folder: string;
  readonly #port: number;
  readonly #addresses: string;
  readonly #pod: AgentPod;
  readonly #tokens: Map<string, string>;
  #count = 0;

  private constructor(parts: {
    api: TestApiServer;
    denied: readonly string[];
    reportKey: KeyObject | undefined;
    authority: Authority;
    folder: string;
    port: number;
    addresses: string;
    pod: AgentPod;
    tokens: Map<string, string>;
  }) {
    this.api = parts.api;
    this.site = new UpdatingSite(parts.api);
    // The real agents report here.
    for (const name of ['master-0', 'worker-0', 'worker-1']) this.site.silent.add(name);
    this.denied = parts.denied;
    this.reportKey = parts.reportKey;
    this.#authority = parts.authority;
    this.#folder = parts.folder;
    this.#port = parts.port;
    this.#addresses = parts.addresses;
    this.#pod = parts.pod;
    this.#tokens = parts.tokens;
  }

  /**
   * Starts a cluster, by default 4.19.3, with all objects of an installation and with the nodes master-0, worker-0 and
   * worker-1. Their agents do not run yet, and have the trust of the installation. Without `controlled`, the test holds
   * the Lease and sets the phase. `addresses`: the beginning of the addresses of agents, which end with 1, 2 and so on.
   */
  static async start({
    controlled = true,
    openshift = '4.19.3',
    trust = noTrust,
    addresses = '127.0.1.',
    reports = false,
  } = {}): Promise<SimulatedCluster> {
    const authority = await makeAuthority();
    const { certificate: cert, key } = await authority.issue();
    const image = platformImage('d');
    const objects = agentObjects({ image, executables: {}, trust, admission: undefined, rules: true, reports });
    const denied: string[] = [];
    const mayDo = readRights(objects);
    const allow = (attempt: Attempt): boolean => {
      if (attempt.user === administrator || mayDo(attempt) || (reports && isReader(attempt))) return true;
      denied.push(`${attempt.verb} ${attempt.resource}.${attempt.group} ${attempt.namespace}/${attempt.name}`);
      return false;
    };
    const tokens = new Map([[administrator, administrator]]);
    const claims = (token: string) => ({ [nodeClaim]: [token.split(' ')[1] ?? ''] });
    const access = { tokens, claims, allow, policies: true };
    const api = await startApiServer({ openshift, tls: { cert, key }, ...access });
    api.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'openshift-cluster-version' } });
    for (const object of objects) api.put({ ...object });
    const reportKey = reports ? makeReportKey() : undefined;
    const [agents] = objects.slice(-1);
    const pod = readPod(agents ?? {});
    const place = { folder: await makeFolder(), port: await findFreePort(), addresses };
    const parts = { reportKey, api, denied, authority, ...place, pod, tokens };
    const cluster = new SimulatedCluster(parts);
    if (reportKey) api.put({ ...reportMap, data: { [reportKeyField]: exportPublicKey(reportKey).toString() } });
    if (!controlled) {
      const renewTime = new Date(Date.now() + 3_600_000).toISOString().replace('Z', '000Z');
      api.put({
        apiVersion: 'coordination.k8s.io/v1',
        kind: 'Lease',
        metadata: { name: 'controller', namespace },
        spec: { holderIdentity: 'nobody', leaseDurationSeconds: 3600, acquireTime: renewTime, renewTime },
      });
    }
    return cluster;
  }

  /** Adds a node with the pod of its agent, and starts the agent. The node may have an additional store. */
  async addNode(
    name: string,
    options: readonly string[] = [],
    { additionalStore = false } = {},
  ): Promise<SimulatedNode> {
    const role = name.startsWith('master') ? 'master' : 'worker';
    this.site.silent.add(name);
    const address = `${this.#addresses}${(this.#count += 1)}`;
    const folder = join(this.#folder, name);
    await mkdir(folder);
    const accounts = ['agent', ...(role === 'master' ? ['controller'] : [])];
    for (const account of accounts)
      this.#tokens.set(`${account} ${name}`, `system:serviceaccount:${namespace}:${account}`);
    const node = await SimulatedNode.make(
      {
        name,
        address,
        port: this.#port,
        api: this.api.host,
        accounts,
        token,
        files: new Map([...this.#pod.files, ...this.#reportFiles()]),
        additionalStore,
        options: [...this.#pod.args, ...options],
        authority: this.#authority.certificate,
      },
      folder,
    );
    if (!this.api.find('v1', 'Node', name)) this.api.put(makeNode(name, role));
    this.api.put({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: `agent-${name}`, namespace, labels: { 'app.kubernetes.io/name': namespace } },
      spec: { nodeName: name, containers: [{ name: 'agent', ports: [{ name: 'bundle', containerPort: this.#port }] }] },
      status: { podIP: address, phase: 'Running' },
    });
    this.nodes.set(name, node);
    node.start();
    return node;
  }

  /** Returns the files of the Secret of reports, which only pods of controllers have. */
  #reportFiles(): [path: string, content: string][] {
    if (!this.reportKey) return [];
    const pem = this.reportKey.export({ type: 'pkcs8', format: 'pem' });
    return [[join(reportKeyFolder, reportKeyField), pem]];
  }

  /** Allows a bundle, as an administrator who applies its .yaml file does. */
  allow(digest: Digest, spec: Json = {}, name = bundleName): void {
    const { group, version } = upgradeBundleApi;
    this.api.put({
      apiVersion: `${group}/${version}`,
      kind: 'UpgradeBundle',
      metadata: { name },
      spec: { bundle: { digest }, hold: false, ...spec },
    });
  }

  /** Returns the UpgradeBundle in its present state. */
  bundle(name = bundleName): UpgradeBundle | undefined {
    const { group, version } = upgradeBundleApi;
    return this.api.find(`${group}/${version}`, 'UpgradeBundle', name) as UpgradeBundle | undefined;
  }

  /** Returns the report of a node. */
  progress(node: string): NodeProgress | undefined {
    const uid = this.bundle()?.metadata.uid;
    const lease = this.api.find(reportKind.apiVersion, reportKind.kind, `agent-${node}`, reportKind.namespace);
    const report = lease && readReport(lease)?.report;
    return report?.bundle === uid ? report?.progress : undefined;
  }

  /** Returns the phase of the update. */
  phase(name = bundleName): Phase | undefined {
    return this.bundle(name)?.status?.phase;
  }

  /** Returns a condition of it, as `status reason: message`. */
  condition(type: string, name = bundleName): string {
    const conditions = (this.bundle(name)?.status?.conditions ?? []) as Record<string, string>[];
    const { status = '', reason = '', message = '' } = conditions.find((each) => each['type'] === type) ?? {};
    return `${status} ${reason}: ${message}`;
  }

  /** Returns the names of all objects of a kind. */
  names(kind: string): string[] {
    const found = this.api.kinds.find((each) => each.kind === kind);
    return found ? this.api.objects.list(found, '').map(({ metadata }) => metadata.name) : [];
  }

  /** Changes fields of an object, as a user with oc does. */
  edit(apiVersion: string, kind: string, name: string, fields: Json): void {
    const object = this.api.find(apiVersion, kind, name);
    const found = this.api.kinds.find((each) => each.kind === kind);
    if (!object || !found) throw new Error(`there is no ${kind} ${name}`);
    const writing = { manager: 'somebody', dryRun: false, status: 'status' in fields };
    const place = { kind: found, namespace: '', name };
    this.api.objects.replace(place, mergePatch(object, fields) as Json, writing);
  }

  /** Waits until a condition is true. After the timeout, throws an error with the state of the update. */
  async until(holds: () => unknown): Promise<void> {
    const end = Date.now() + 240_000;
    while (!(await holds())) {
      if (Date.now() > end) throw new Error(`it never came to that: ${JSON.stringify(this.bundle()?.status)}`);
      await sleep(50);
    }
  }

  /** Writes to the status, as the controller does. */
  direct(status: Json): void {
    const { apiVersion, kind, metadata } = this.bundle() ?? { apiVersion: '', kind: '', metadata: { name: '' } };
    const found = this.api.kinds.find((each) => each.kind === kind);
    if (!found) throw new Error('there is no UpgradeBundle');
    const place = { kind: found, namespace: '', name: metadata.name };
    const body = { apiVersion, kind, metadata: { name: metadata.name }, status };
    this.api.objects.apply(place, body, { manager: 'controller', dryRun: false, status: true }, true);
  }

  /** Disconnects the API server. Returns a function that connects it again. */
  cut(): () => void {
    this.api.fault(/./, { noAnswer: 'reset' });
    this.api.dropConnections();
    return () => {
      this.api.clearFaults();
    };
  }

  /** The output of all agents, for the message of a failed test. */
  get output(): string {
    return [...this.nodes.values()].map(({ name, output }) => `=== ${name}\n${output.slice(-3000)}`).join('\n');
  }

  /** Runs a scenario. If it fails, prints the output of all agents and the state of the update first. */
  async play(scenario: () => Promise<void>, name = bundleName): Promise<void> {
    try {
      await scenario();
    } catch (error) {
      console.error(`${this.output}\n${JSON.stringify(this.bundle(name)?.status, null, 1)}`);
      throw error;
    }
  }

  /** Stops everything. */
  async close(): Promise<void> {
    this.site.stop();
    for (const node of this.nodes.values()) await node.close();
    await this.api.stop();
    await this.#authority.remove();
    await rm(this.#folder, { recursive: true, force: true });
    await removeFolder(this.#folder);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }
}
