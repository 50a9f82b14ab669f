import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ClockReading } from '../../../lib/update/controller/observation.ts';
import { controlRollout } from '../../../lib/update/controller/rollout.ts';
import type { BundleFacts } from '../../../lib/update/record/bundleFacts.ts';
import type { UpgradeBundle } from '../../../lib/update/record/upgradeBundle.ts';
import { makeAuthority } from '../../support/certificates.ts';
import { connectTo } from '../../support/cluster.ts';
import { makeContext } from '../../support/context.ts';
import type { ApiObject } from '../kubernetes/apiObjects.ts';
import type { Json } from '../kubernetes/apiPatch.ts';
import { startApiServer, type ApiServerOptions, type TestApiServer } from '../kubernetes/apiServer.ts';
import { startRegistry, type TestRegistry } from '../registry/registry.ts';
import { makeFacts, upgradeBundle, UpdatingSite } from './updatingSite.ts';

/** A running controller of a site. */
export interface TestController {
  readonly lines: readonly string[];
  /** Stops the controller in an orderly way, so that it releases its Lease. */
  stop(): Promise<void>;
  /** Stops the controller as a power failure of its node does: cuts its connections, and logs nothing more. */
  crash(): void;
}

/** A site that updates, and its controllers. */
export class RolloutSite {
  readonly server: TestApiServer;
  readonly site: UpdatingSite;
  /** The facts of the bundle for controllers; undefined if no node has the bundle. */
  facts: BundleFacts | undefined = makeFacts();
  /** The clocks that controllers read; by default those of the server and of this process. */
  clock: ClockReading | undefined;
  /** The error of reading the facts. */
  unreadable: Error | undefined;
  readonly #token: boolean;
  #mirrorFolder: string | undefined;
  readonly #ends: (() => Promise<void>)[] = [];

  private constructor(server: TestApiServer, token: boolean) {
    this.server = server;
    this.#token = token;
    this.site = new UpdatingSite(server);
  }

  static async start(options: ApiServerOptions = {}): Promise<RolloutSite> {
    const server = await startApiServer({ openshift: '4.19.3', ...options });
    return new RolloutSite(server, options.tokens !== undefined);
  }

  /** Gives the control plane node a mirror without images, for the controllers that start later. */
  async addMirror(): Promise<TestRegistry> {
    const authority = await makeAuthority();
    const { certificate: cert, key } = await authority.issue();
    const mirror = await startRegistry({ tls: { cert, key } });
    this.#ends.push(
      () => authority.remove(),
      () => mirror.stop(),
    );
    this.#mirrorFolder = dirname(authority.certificateFile);
    await writeFile(join(this.#mirrorFolder, 'port'), new URL(mirror.url).port);
    this.configureMirror(authority.certificate);
    this.edit('Node', 'master-0', { status: { addresses: [{ type: 'InternalIP', address: '127.0.0.1' }] } });
    return mirror;
  }

  /** Configures the mirrors in the cluster as `install` and the machine config operator do. */
  configureMirror(certificate: string): void {
    const set = { apiVersion: 'config.openshift.io/v1', kind: 'ImageDigestMirrorSet' };
    this.server.put({ ...set, metadata: { name: 'oc-upgrade-bundle' }, spec: {} });
    const data = Buffer.from(`# the CA\n${certificate}`).toString('base64');
    const config = { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'ControllerConfig' };
    const spec = { imageRegistryBundleUserData: [{ file: 'localhost..9690', data }] };
    this.server.put({ ...config, metadata: { name: 'machine-config-controller' }, spec });
    for (const { metadata } of this.all('MachineConfigPool')) {
      const source = [{ name: `98-${metadata.name}-oc-upgrade-bundle-mirror` }];
      this.edit('MachineConfigPool', metadata.name, { status: { configuration: { source } } });
    }
  }

  /** Starts a controller. The identity is the name of a node. */
  async control(identity = 'master-0'): Promise<TestController> {
    const connected = await connectTo(this.server, this.#token ? { user: { token: 't' } } : {});
    const context = makeContext();
    const options = {
      identity,
      namespace: 'oc-upgrade-bundle',
      interval: 150,
      lease: { duration: 1000, retryPeriod: 50 },
      ...(this.#mirrorFolder !== undefined && { mirrorFolder: this.#mirrorFolder }),
      clock: () => Promise.resolve(this.clock ?? { now: Date.now(), own: Date.now(), isSynchronized: undefined }),
      readBundle: () => (this.unreadable ? Promise.reject(this.unreadable) : Promise.resolve(this.facts)),
    };
    const running = controlRollout(connected.cluster, options, context);
    const stop = async (): Promise<void> => {
      context.interrupt();
      await running;
      await connected.close();
    };
    this.#ends.push(stop);
    return {
      lines: context.lines,
      stop,
      crash: () => {
        connected.context.interrupt();
        context.interrupt();
      },
    };
  }

  /** Stops everything. */
  async close(): Promise<void> {
    await Promise.all(this.#ends.map((end) => end()));
    this.site.stop();
    await this.server.stop();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  /** Returns an UpgradeBundle in its present state; by default the only one. */
  bundle(name?: string): UpgradeBundle | undefined {
    const kind = this.server.kinds.find((known) => known.kind === 'UpgradeBundle');
    const found = kind ? this.server.objects.list(kind, '') : [];
    return found.find(({ metadata }) => name === undefined || metadata.name === name) as UpgradeBundle;
  }

  /** Returns a condition of it, as `status reason: message`. */
  condition(type: string, name?: string): string {
    const conditions = (this.bundle(name)?.status?.conditions ?? []) as Record<string, string>[];
    const { status = '', reason = '', message = '' } = conditions.find((each) => each['type'] === type) ?? {};
    return `${status} ${reason}: ${message}`;
  }

  /** Waits until a condition is true. After the timeout, throws an error with the present state. */
  async until(holds: () => boolean): Promise<void> {
    for (let tries = 0; !holds(); tries += 1) {
      if (tries > 4000) throw new Error(`${this.phases.join(' ')} ${JSON.stringify(this.bundle()?.status)}`);
      await sleep(5);
    }
  }

  async untilPhase(phase: string, name?: string): Promise<void> {
    await this.until(() => this.bundle(name)?.status?.phase === phase);
  }

  /** The phases in the events, in order. */
  get phases(): string[] {
    return this.all('Event')
      .filter(({ source }) => (source as Json)['component'] === 'oc-upgrade-bundle')
      .sort((a, b) => Number(a.metadata.resourceVersion) - Number(b.metadata.resourceVersion))
      .map(({ reason }) => String(reason));
  }

  all(kind: string): ApiObject[] {
    const found = this.server.kinds.find((known) => known.kind === kind);
    return found ? this.server.objects.list(found, '') : [];
  }

  /** Changes an object as a user with oc does: merges the top-level fields. */
  edit(kind: string, name: string, changes: Record<string, Json>): void {
    const object = this.all(kind).find(({ metadata }) => metadata.name === name);
    if (!object) throw new Error(`there is no ${kind} ${name}`);
    const merged = Object.entries(changes).map(([field, value]) => [field, { ...(object[field] as Json), ...value }]);
    this.replace({ ...object, ...(Object.fromEntries(merged) as Json) }, 'status' in changes);
  }

  replace(object: ApiObject, status = false): void {
    const kind = this.server.kinds.find((known) => known.kind === object.kind);
    if (!kind) throw new Error(`the server has no ${object.kind}`);
    const { name, namespace = '' } = object.metadata;
    const { resourceVersion } = this.server.objects.demand({ kind, namespace, name }).metadata;
    const metadata = { ...object.metadata, resourceVersion };
    const place = { kind, namespace, name };
    this.server.objects.replace(place, { ...object, metadata }, { manager: 'somebody', dryRun: false, status });
  }

  /** Has the leading controller collect garbage: the pause of the last pool is of an UpgradeBundle that is gone. */
  async collectGarbage(): Promise<void> {
    const kind = { apiVersion: 'machineconfiguration.openshift.io/v1', kind: 'MachineConfigPool' };
    const annotations = {
      'upgrade-bundle.openshift.io/paused-for': 'gone',
      'upgrade-bundle.openshift.io/before': '{"spec":{"paused":null}}',
    };
    this.server.put({ ...kind, metadata: { name: 'zone', annotations }, spec: { paused: true } });
    // It looks for garbage when it sees another list of records.
    this.server.put(upgradeBundle('another', { bundle: {} }));
    await this.until(() => this.all(kind.kind).every(({ metadata }) => !JSON.stringify(metadata).includes('gone')));
    this.remove(kind.kind, 'zone');
    this.remove('UpgradeBundle', 'another');
  }

  remove(kind: string, name: string, namespace = ''): void {
    const found = this.server.kinds.find((known) => known.kind === kind);
    if (found) this.server.objects.delete({ kind: found, namespace, name }, {}, false);
  }
}
