import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { authorityExtensions, hostExtensions, makeCertificate, usages, type TestCertificate } from './x509.ts';

/** A certificate and its key, as PEM and as files. */
export interface Certificate {
  readonly certificate: string;
  readonly key: string;
  readonly certificateFile: string;
  readonly keyFile: string;
}

/** The subject of a certificate. */
export interface CertificateOptions {
  /** The names and addresses. The first is also the common name. */
  readonly hosts?: readonly string[];
  /** Whether it has expired. */
  readonly expired?: boolean;
  /** Whether it is for a client instead of a server. */
  readonly client?: boolean;
}

/** A CA of one test, in a temporary folder. */
export interface Authority extends Certificate, AsyncDisposable {
  issue(options?: CertificateOptions): Promise<Certificate>;
  /** Removes the folder with all issued certificates. */
  remove(): Promise<void>;
}

/** Creates a CA. */
export async function makeAuthority(name = 'Test authority'): Promise<Authority> {
  const folder = await mkdtemp(join(tmpdir(), 'authority-'));
  const authority = await makeCertificate({ name: `CN=${name}`, extensions: authorityExtensions() });
  let issued = 0;
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true });
  return {
    ...(await write(authority, join(folder, 'ca'))),
    issue: async ({ hosts = ['localhost', '127.0.0.1', '::1'], expired = false, client = false } = {}) => {
      const own = await makeCertificate({
        name: `CN=${hosts[0] ?? 'localhost'}`,
        by: authority,
        until: expired ? -1 : undefined,
        extensions: hostExtensions(hosts, client ? usages.client : usages.server),
      });
      issued += 1;
      return write(own, join(folder, `issued-${issued}`));
    },
    remove,
    [Symbol.asyncDispose]: remove,
  };
}

async function write({ pem, key: privateKey }: TestCertificate, path: string): Promise<Certificate> {
  const key = privateKey.export({ type: 'pkcs8', format: 'pem' });
  const [certificateFile, keyFile] = [`${path}.crt`, `${path}.key`];
  await Promise.all([writeFile(certificateFile, pem), writeFile(keyFile, key, { mode: 0o600 })]);
  return { certificate: pem, key, certificateFile, keyFile };
}
