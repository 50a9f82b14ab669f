import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { BundleMetadata } from '../../bundle/metadata.ts';
import type { Context } from '../../context.ts';
import { isPluginError, messageOf } from '../../errors.ts';
import { nameSome } from '../../failures.ts';
import { Connections } from '../../content/http/connections.ts';
import type { Cluster } from '../../cluster/client.ts';
import type { StoredObject } from '../../cluster/fields.ts';
import { parseReference } from '../../content/oci/reference.ts';
import { issueMirrorCertificates } from './mirrorCertificates.ts';
import { listAddresses } from './mirrorSite.ts';

/** The pause between two checks of the certificate, in milliseconds. */
const renewalPause = 3600_000;

/** The mirrors of a cluster, as the leading controller sees them. */
export class MirrorControl {
  readonly #folder: string;
  readonly #context: Context;
  #checkedAt = -Infinity;
  #addresses = '';

  /** `folder` has the files of the Secret with the certificate of the mirrors, if the cluster has mirrors. */
  constructor(folder: string, context: Context) {
    this.#folder = folder;
    this.#context = context;
  }

  /** Renews the certificate of the mirrors in time, and when control plane nodes come or go. Throws the errors of the cluster. */
  async renew(cluster: Cluster, nodes: readonly StoredObject[]): Promise<void> {
    const addresses = listAddresses(nodes);
    const isSame = addresses.join() === this.#addresses;
    if (isSame && performance.now() < this.#checkedAt + renewalPause) return;
    if (addresses.length === 0 || !(await this.#read('ca.crt'))) return;
    const options = { mayCreate: false, now: new Date() };
    const issued = await issueMirrorCertificates(cluster, { addresses, networks: [] }, options);
    if (issued && issued.written.length > 0) this.#context.log('info', 'the certificate of the mirrors was renewed');
    if (issued && issued.forbidden.length > 0)
      this.#context.log('warn', `the CA of the mirrors does not permit ${issued.forbidden.join(', ')}`);
    if (this.#addresses !== '' && !isSame)
      this.#context.log(
        'warn',
        'the control plane nodes have changed: install the mirrors again to add their addresses',
      );
    this.#checkedAt = performance.now();
    this.#addresses = addresses.join();
  }

  /**
   * Asks each control plane node for each image of a bundle, as the machine config controller and container runtimes
   * will do. A mirror serves complete images only. Returns what a node lacks; undefined if all are ready, or if the
   * cluster has no mirrors.
   */
  async findLack(nodes: readonly StoredObject[], { release, images }: BundleMetadata): Promise<string | undefined> {
    const [authority, port] = [await this.#read('ca.crt'), await this.#read('port')];
    if (authority === undefined || port === undefined) return undefined;
    const connections = new Connections({ certificates: { for: () => Promise.resolve({ ca: [authority] }) } });
    const wanted = [...new Set([release, ...images])];
    try {
      const lacks = await Promise.all(
        listAddresses(nodes).map((address) => this.#askMirror(connections, `https://${address}:${port}`, wanted)),
      );
      const found = lacks.filter((lack) => lack !== undefined);
      return found.length === 0 ? undefined : found.join('; ');
    } finally {
      connections.close();
    }
  }

  async #askMirror(connections: Connections, origin: string, images: readonly string[]): Promise<string | undefined> {
    const missing: string[] = [];
    try {
      for (const image of images) {
        const { repository, digest } = parseReference(image);
        const url = new URL(`/v2/${repository}/manifests/${String(digest)}`, origin);
        const request = { method: 'HEAD', url, headers: { accept: '*/*' }, signal: this.#context.signal };
        const { status, body } = await connections.exchange(request);
        body.resume();
        if (status !== 200) missing.push(image);
      }
    } catch (error) {
      if (!isPluginError(error) || error.code === 'interrupted') throw error;
      return `the mirror ${origin} does not answer: ${messageOf(error)}`;
    }
    return missing.length === 0 ? undefined : `the mirror ${origin} lacks ${nameSome(missing, 2)}`;
  }

  async #read(name: string): Promise<string | undefined> {
    return await readFile(join(this.#folder, name), 'utf8').catch(() => undefined);
  }
}
