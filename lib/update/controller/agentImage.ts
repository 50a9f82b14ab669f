import type { Context } from '../../context.ts';
import { isDigest } from '../../oci/digest.ts';
import { digestIn } from '../../oci/reference.ts';
import type { Cluster } from '../../kubernetes/client.ts';
import { machineConfigDaemon, readDaemonImage } from '../../preflight/agentImage.ts';
import { agentNamespace } from '../upgradeBundle.ts';

/**
 * Keeps agents and controllers on the image of the machine config daemon. An update replaces that image: the old one is
 * in no later bundle, and nothing pins it. The controllers are changed last, because that ends this process.
 */
export class AgentImage {
  readonly #cluster: Cluster;
  readonly #interval: number;
  readonly #context: Context;
  #checked = -Infinity;

  /** `interval`: milliseconds between two checks. */
  constructor(cluster: Cluster, interval: number, context: Context) {
    this.#cluster = cluster;
    this.#interval = interval;
    this.#context = context;
  }

  /** Compares the images if the interval is over, and changes images that differ. Throws the errors of the cluster. */
  async follow(): Promise<void> {
    if (performance.now() < this.#checked + this.#interval) return;
    const daemon = await this.#cluster.read(machineConfigDaemon);
    const image = daemon && readDaemonImage(daemon);
    if (image !== undefined && isDigest(digestIn(image)))
      for (const name of ['agent', 'controller']) await this.#change(name, image);
    this.#checked = performance.now();
  }

  async #change(name: string, image: string): Promise<void> {
    const reference = { apiVersion: 'apps/v1', kind: 'DaemonSet', metadata: { name, namespace: agentNamespace } };
    const set = await this.#cluster.read(reference);
    const present = set && readDaemonImage(set);
    if (present === undefined || present === image) return;
    this.#context.log('info', `${name}: now in the image of the machine config daemon, ${image}`);
    const spec = { template: { spec: { containers: [{ name, image }] } } };
    await this.#cluster.apply({ ...reference, spec }, { manager: 'controller', force: true });
  }
}
