import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { createConstrainedAuthority, createServerCertificate, isWithin } from '#certificates';
import type { Cluster, WriteOptions } from '#cluster/client';
import type { Written, KubernetesObject } from '#config/manifest';
import type { Context } from '#context';
import { fieldsAt } from '#fields';
import { parseMirrorContent, type MirrorContent } from '../record/mirrorContent.ts';
import { agentNamespace } from '../record/upgradeBundle.ts';

/** The Secret with the CA of the mirrors and its key. Only administrators and the controller read it. */
export const authoritySecret = { name: 'mirror-ca', namespace: agentNamespace } as const;

/** The Secret with the certificate of the mirrors, which the controllers’ pods mount. */
export const servingSecret = { name: 'mirror-serving', namespace: agentNamespace } as const;

const validity = { authority: 3650, serving: 365 };
const loopback = ['127.0.0.0/8', '::1/128'];

/** The hosts of the mirrors, and the settings that are in the Secret with their certificate. */
export interface MirrorNames {
  readonly addresses: readonly string[];
  /** The networks for which the CA may issue certificates, in addition to the addresses themselves. */
  readonly networks: readonly string[];
  /** The port; by default as before. */
  readonly port?: number;
  /** The bytes that the retained bundles may take on a node, 0 for no quota; by default as before. */
  readonly quota?: number | undefined;
  /** What the mirrors keep; by default as before. */
  readonly content?: MirrorContent;
}

/** The result of issuing certificates. */
export interface IssuedCertificates {
  /** The certificate of the CA, in PEM. */
  readonly authority: string;
  /** The Secrets that were written. */
  readonly written: readonly KubernetesObject[];
  /** The addresses for which the CA may issue no certificate. */
  readonly forbidden: readonly string[];
}

/**
 * Creates the CA of the mirrors if there is none. Issues their certificate if it is missing, if two thirds of its time
 * are over, or if the addresses, the port, the quota or the content have changed. `mayCreate`: whether to create the
 * CA; otherwise returns undefined if there is none. The CA never changes, so nodes keep their trust.
 */
export async function issueMirrorCertificates(
  cluster: Cluster,
  { addresses, networks: machines, port, quota, content }: MirrorNames,
  { mayCreate, now, ...options }: WriteOptions & { readonly mayCreate: boolean; readonly now: Date },
): Promise<IssuedCertificates | undefined> {
  const written: KubernetesObject[] = [];
  const write = async (metadata: MirrorSecret, data: Readonly<Record<string, string>>): Promise<void> => {
    const object = { apiVersion: 'v1', kind: 'Secret', metadata } as const;
    const encoded = Object.entries(data).map(([key, text]) => [key, Buffer.from(text).toString('base64')] as const);
    const secret: Written<'Secret'> = { ...object, type: 'Opaque', data: Object.fromEntries(encoded) };
    await cluster.apply(secret, { ...options, force: true });
    written.push(object);
  };
  let root = await readSecret(cluster, authoritySecret);
  if (!root['tls.key']) {
    if (!mayCreate) return undefined;
    const own = addresses.filter((each) => isIP(each) !== 0).map((each) => `${each}/32`);
    const networks = [...new Set([...machines, ...own, ...loopback])];
    const names = ['localhost', ...addresses.filter((each) => isIP(each) === 0)];
    const subject = 'oc-upgrade-bundle mirror';
    const created = await createConstrainedAuthority(subject, { names, networks }, { now, days: validity.authority });
    const pair = { 'tls.crt': created.certificate, 'tls.key': created.key };
    const data = { ...pair, networks: networks.join(' '), names: names.join(' ') };
    await write(authoritySecret, data);
    root = data;
  }
  const { 'tls.crt': authority = '', 'tls.key': key = '', networks = '', names = 'localhost' } = root;
  const allowed = networks.split(' ').filter((each) => each !== '');
  const isNamed = (host: string): boolean =>
    names.split(' ').some((name) => host === name || host.endsWith(`.${name}`));
  const forbidden = addresses.filter((host) => !(isIP(host) === 0 ? isNamed(host) : isWithin(host, allowed)));
  const hosts = ['localhost', '127.0.0.1', '::1', ...addresses.filter((each) => !forbidden.includes(each))];
  const present = await readSecret(cluster, servingSecret);
  const before = {
    port: present['port'] ?? '',
    quota: present['quota'] ?? '',
    content: parseMirrorContent(present['content']),
  };
  const settings = {
    port: String(port ?? before.port),
    quota: quota === 0 ? '' : String(quota ?? before.quota),
    content: content ?? before.content,
  };
  if (!isDeepStrictEqual(settings, before) || isDue(present['tls.crt'], hosts, now)) {
    const request = { hosts, authority: { certificate: authority, key }, now, days: validity.serving };
    const leaf = await createServerCertificate('oc-upgrade-bundle mirror', request);
    const pair = { 'tls.crt': leaf.certificate, 'tls.key': leaf.key };
    await write(servingSecret, { ...pair, 'ca.crt': authority, ...settings });
  }
  return { authority, written, forbidden };
}

/** Warns of the addresses for which the CA may issue no certificate: nodes do not pull from there. */
export function warnOfForbidden(addresses: readonly string[], context: Pick<Context, 'log'>): void {
  if (addresses.length === 0) return;
  const words = `the CA of the mirrors does not permit ${addresses.join(', ')}, so no node pulls from there`;
  context.log('warn', `${words}. For a CA that permits them, remove the mirrors and install them again`);
}

type MirrorSecret = typeof authoritySecret | typeof servingSecret;

function isDue(pem: string | undefined, hosts: readonly string[], now: Date): boolean {
  if (pem === undefined) return true;
  const certificate = new X509Certificate(pem);
  const [from, to] = [certificate.validFromDate.getTime(), certificate.validToDate.getTime()];
  if (now.getTime() > from + ((to - from) * 2) / 3) return true;
  return hosts.some((host) => (isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host)) === undefined);
}

/** Reads the texts of a Secret of the mirrors. There are none if it does not exist. */
export async function readSecret(
  cluster: Cluster,
  metadata: MirrorSecret,
): Promise<Readonly<Partial<Record<string, string>>>> {
  const data = fieldsAt(await cluster.read({ apiVersion: 'v1', kind: 'Secret', metadata }), 'data');
  const texts = Object.entries(data).map(
    ([key, text]) => [key, Buffer.from(String(text), 'base64').toString()] as const,
  );
  return Object.fromEntries(texts);
}
