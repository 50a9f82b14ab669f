import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Cluster } from '#cluster/client';
import { type StoredObject, listServed } from '#cluster/objects';
import { Connections } from '#content/http';
import { attachmentTag, parseReference } from '#content/oci';
import type { Context } from '#context';
import { asFailure, nameSome } from '#errors';
import { fieldsAt, listOf } from '#fields';
import { isOwnMirrorSet, ownMirrorSet } from '#readiness/preflight';
import { listSystemImages, type OSImageStreams } from '#release/payload';
import type { BundleFacts } from '../record/bundleFacts.ts';
import { contentFile, parseMirrorContent } from '../record/mirrorContent.ts';
import { hasUpdatedNodes } from '../record/poolRollout.ts';
import { issueMirrorCertificates, warnOfForbidden } from './mirrorCertificates.ts';
import { extendMirror } from './mirrorInstallation.ts';
import { hasAuthorityConfig, mirrorSet, readMirrorSet } from './mirrorObjects.ts';
import { listAddresses, type KnownSite } from './mirrorSite.ts';

/** The pause between two checks of the certificate, in milliseconds. */
const renewalPause = 3600_000;

/** The object from which the machine config controller takes the CAs of registries. */
const controllerConfig = {
  apiVersion: 'machineconfiguration.openshift.io/v1',
  kind: 'ControllerConfig',
  metadata: { name: 'machine-config-controller' },
};

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

  /**
   * Renews the certificate of the mirrors in time, and when control plane nodes come or go. Adds the addresses of new
   * ones to the mirrors once all pools are up to date. Throws the errors of the cluster.
   */
  async renew(cluster: Cluster, { nodes, pools }: KnownSite): Promise<void> {
    const present = listAddresses(nodes);
    // Their order changes with each reboot.
    const known = present.toSorted().join();
    const isSame = known === this.#addresses;
    if (isSame && performance.now() < this.#checkedAt + renewalPause) return;
    if (present.length === 0 || !(await this.#read('ca.crt'))) return;
    const sets = await listServed(cluster, mirrorSet.apiVersion, mirrorSet.kind);
    const former = readMirrorSet(sets.find(isOwnMirrorSet))?.addresses;
    const addresses = [...new Set([...present, ...(former ?? [])])];
    const options = { mayCreate: false, now: new Date() };
    const issued = await issueMirrorCertificates(cluster, { addresses, networks: [] }, options);
    if (issued && issued.written.length > 0) this.#context.log('info', 'the certificate of the mirrors was renewed');
    warnOfForbidden(issued?.forbidden ?? [], this.#context);
    const added = present.filter((each) => !former?.includes(each) && !issued?.forbidden.includes(each));
    if (issued && former && added.length > 0) {
      if (!pools.every(hasUpdatedNodes)) return;
      const configured = { nodes, pools: pools.filter(hasAuthorityConfig) };
      try {
        await extendMirror(cluster, configured, issued, this.#context);
        this.#context.log('info', `nodes pull from the mirrors of ${added.join(', ')}, too`);
      } catch (error) {
        // Clusters before OpenShift 4.17 would reboot, so that the controller has no right to do it.
        const words = `install the mirrors again to add ${added.join(', ')}: ${asFailure(error).message}`;
        this.#context.log('warn', words);
      }
    }
    this.#checkedAt = performance.now();
    this.#addresses = known;
  }

  /**
   * Finds what keeps nodes and the machine config controller from the images of a bundle: the configuration of the
   * cluster, and images that a control plane node lacks. A mirror serves complete images only; of metadata, the images
   * that the machine config controller reads. Returns undefined if nothing does, or if the cluster has no mirrors.
   * Throws the errors of the cluster.
   */
  async findLack(
    cluster: Cluster,
    { nodes, pools }: KnownSite,
    { metadata, streams }: Pick<BundleFacts, 'metadata' | 'streams'>,
  ): Promise<string | undefined> {
    const [authority, port] = [await this.#read('ca.crt'), await this.#read('port')];
    if (authority === undefined || port === undefined) return undefined;
    const keepsAll = parseMirrorContent(await this.#read(contentFile)) === 'all';
    const images = keepsAll ? metadata.images : listRead(metadata.release, streams);
    const connections = new Connections({ certificates: { for: () => Promise.resolve({ ca: [authority] }) } });
    try {
      const origins = listAddresses(nodes).map((address) => `https://${address}:${port}`);
      const states = await Promise.all(origins.map((origin) => this.#askMirror(connections, origin, images)));
      const signed = new Set(states.flatMap((state) => [...(state.signed ?? [])]));
      const lacks = states.flatMap(({ lack, signed: own }, index) => {
        const unsigned = own ? [...signed].filter((image) => !own.has(image)) : [];
        const words = unsigned.length === 0 ? [] : [`lacks signatures of ${nameSome(unsigned, 2)}`];
        return [...(lack === undefined ? [] : [lack]), ...words].map((each) => `the mirror ${origins[index]} ${each}`);
      });
      const obstacles = [...(await findUnconfigured(cluster, pools, authority)), ...lacks];
      return obstacles.length === 0 ? undefined : obstacles.join('; ');
    } finally {
      connections.close();
    }
  }

  /**
   * Asks for images and their signatures. A runtime fails if it asks for a signature and the response is not 200 or
   * 404.
   */
  async #askMirror(connections: Connections, origin: string, images: readonly string[]): Promise<MirrorAnswer> {
    const missing: string[] = [];
    const signed = new Set<string>();
    const ask = async (repository: string, reference: string): Promise<number> => {
      const url = new URL(`/v2/${repository}/manifests/${reference}`, origin);
      const request = { method: 'HEAD', url, headers: { accept: '*/*' }, signal: this.#context.signal };
      const { status, body } = await connections.exchange(request);
      body.resume();
      return status;
    };
    try {
      for (const image of images) {
        const { repository, digest } = parseReference(image);
        if (digest === undefined || (await ask(repository, digest)) !== 200) missing.push(image);
        const status = digest && (await ask(repository, attachmentTag(digest)));
        if (status === 200) signed.add(image);
        else if (status !== 404) return { lack: `responds with ${status} for the signature of ${image}` };
      }
    } catch (error) {
      return { lack: `does not answer: ${asFailure(error).message}` };
    }
    return { signed, lack: missing.length === 0 ? undefined : `lacks ${nameSome(missing, 2)}` };
  }

  async #read(name: string): Promise<string | undefined> {
    return await readFile(join(this.#folder, name), 'utf8').catch(() => undefined);
  }
}

/** Lists the images that the machine config controller of a release reads. Before 4.23 it reads none. */
function listRead(release: string, streams: OSImageStreams | undefined): string[] {
  if (!streams) return [];
  return [release, ...listSystemImages(streams)];
}

/** What a mirror lacks, and the images that have a signature there, if it was asked for all. */
interface MirrorAnswer {
  readonly lack: string | undefined;
  readonly signed?: ReadonlySet<string>;
}

/** Finds what is missing in the configuration, which the site or a restore of etcd may have changed since. */
async function findUnconfigured(
  cluster: Cluster,
  pools: readonly StoredObject[],
  authority: string,
): Promise<readonly string[]> {
  const sets = await listServed(cluster, mirrorSet.apiVersion, mirrorSet.kind);
  const config = await cluster.read(controllerConfig);
  const trusted = listOf(fieldsAt(config, 'spec')['imageRegistryBundleUserData']).map(({ data }) =>
    Buffer.from(String(data), 'base64').toString(),
  );
  const bare = pools.filter((pool) => !hasAuthorityConfig(pool)).map(({ metadata }) => metadata.name);
  return [
    ...(sets.some(isOwnMirrorSet) ? [] : [`there is no ImageDigestMirrorSet ${ownMirrorSet}`]),
    ...(trusted.some((each) => each.includes(authority.trim())) ? [] : ['the ControllerConfig lacks their CA']),
    ...(bare.length === 0 ? [] : [`nodes of the pools ${nameSome(bare)} lack their CA`]),
  ];
}
