import { copyFile, mkdir, readFile, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { join } from 'node:path';
import { createConstrainedAuthority, createServerCertificate } from '../../lib/certificates/issuing.ts';
import { digestOf } from '../../lib/content/oci/reference.ts';
import { replicaPath } from '../../lib/node/transfer/replica.ts';
import { mirrorPort } from '../../lib/update/mirror/mirrorUnit.ts';

/**
 * Writes what `mirror-serve` reads on a control plane node: the copy of a bundle in `retained`, and the certificate for
 * some names and addresses in `certificates`. Its CA is in ca.crt. Returns the options that name the folders.
 */
export async function makeMirror(folder: string, bundle: string, hosts: readonly string[]): Promise<readonly string[]> {
  const [retained, certificates] = [join(folder, 'retained'), join(folder, 'certificates')];
  for (const each of [retained, certificates]) await mkdir(each);
  const copy = replicaPath(retained, digestOf(await readFile(bundle)));
  await copyFile(bundle, copy);
  await writeFile(copy.replace(/tar$/, 'json'), '{}');
  const validity = { now: new Date(), days: 30 };
  const addresses = hosts.filter((host) => isIP(host) === 4).map((host) => `${host}/32`);
  const names = ['localhost', ...hosts.filter((host) => isIP(host) === 0)];
  const permitted = { names, networks: ['127.0.0.0/8', '::1/128', ...addresses] };
  const authority = await createConstrainedAuthority('oc-upgrade-bundle mirror', permitted, validity);
  const request = { hosts: ['localhost', '127.0.0.1', '::1', ...hosts], authority, ...validity };
  const { certificate, key } = await createServerCertificate('oc-upgrade-bundle mirror', request);
  await writeFile(join(certificates, 'tls.crt'), certificate);
  await writeFile(join(certificates, 'tls.key'), key);
  await writeFile(join(folder, 'ca.crt'), authority.certificate);
  return [`--download-dir=${retained}`, `--certificate-dir=${certificates}`];
}

/** Trusts the CA of makeMirror for the mirrors of some hosts, as `install --mirror` does, for a user with this home. */
export async function trustMirror(home: string, authority: string, hosts: readonly string[]): Promise<void> {
  for (const host of hosts) {
    const place = join(home, `.config/containers/certs.d/${host}:${mirrorPort}`);
    await mkdir(place, { recursive: true });
    await copyFile(authority, join(place, 'ca.crt'));
  }
}
