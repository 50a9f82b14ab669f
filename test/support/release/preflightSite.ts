import type { UpdatePlan } from '../../../lib/bundle/verify/updatePlan.ts';
import { formatSubject, type Finding } from '../../../lib/cluster/finding.ts';
import { runPreflight, type Preflight } from '../../../lib/readiness/preflight/preflight.ts';
import { furnish, platformImage } from '../../fakes/cluster/site.ts';
import { isJson, type Json } from '../../fakes/kubernetes/apiPatch.ts';
import type { ApiServerOptions, TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startCluster, type StartedCluster } from '../cluster.ts';
import { pinningFiles } from './pinning.ts';

/** Returns the manifests of a payload by their names. */
export const manifestsOf = (files: Readonly<Record<string, string>>): Map<string, Buffer> =>
  new Map(Object.entries(files).map(([name, text]) => [name, Buffer.from(text)]));

/** A plan to update from 4.19.3 to 4.19.4. */
export const plan: UpdatePlan = {
  path: 'upgrade-4.19.4-x86_64.tar',
  version: '4.19.4',
  arch: 'x86_64',
  previous: ['4.19.2', '4.19.3'],
  images: [platformImage('a'), platformImage('b')],
  components: {},
  size: 16 * 1024 ** 3,
  release: platformImage('b'),
  manifests: manifestsOf(pinningFiles(true)),
  distrust: undefined,
};

/** A finding in a few words. */
export const brief = ({ severity, check, subject }: Finding): string =>
  `${severity} ${check} ${formatSubject(subject)}`;

/** A healthy cluster of a test, and its preflight. */
export class PreflightSite {
  #connected: StartedCluster | undefined;

  /** Starts the cluster. */
  readonly start = async (options: ApiServerOptions = {}): Promise<void> => {
    await this.close();
    this.#connected = await startCluster({ openshift: '4.19.3', ...options });
    furnish(this.server);
  };

  get connected(): StartedCluster {
    if (this.#connected) return this.#connected;
    throw new Error('the cluster is not started');
  }

  get server(): TestApiServer {
    return this.connected.server;
  }

  readonly run = (update?: UpdatePlan): Promise<Preflight> =>
    runPreflight(this.connected.cluster, update, this.connected.context);

  /** Returns the findings, each in a few words, without those about the images of the bundle. */
  readonly find = async (update?: UpdatePlan): Promise<string[]> => {
    const { findings } = await this.run(update);
    return findings.filter(({ message }) => !message.startsWith('has 1 of the 2')).map(brief);
  };

  /** Returns the message of a finding, or else all findings. */
  readonly messageOf = async (wanted: string, update?: UpdatePlan): Promise<string> => {
    const { findings } = await this.run(update);
    return findings.find((finding) => brief(finding) === wanted)?.message ?? findings.map(brief).join('\n');
  };

  /** Changes fields of an object. */
  readonly change = (apiVersion: string, kind: string, name: string, changes: Json): void => {
    const before = this.server.find(apiVersion, kind, name);
    if (!before) throw new Error(`there is no ${kind} ${name}`);
    const merged = Object.entries(changes).map(([field, value]) => {
      const old = before[field];
      return [field, isJson(old) && isJson(value) ? { ...old, ...value } : value] as const;
    });
    this.server.put({ ...before, ...Object.fromEntries(merged) });
  };

  async close(): Promise<void> {
    await this.#connected?.close();
    this.#connected = undefined;
  }
}
