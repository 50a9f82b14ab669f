import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runSuccessfully } from './peers.ts';

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
  /** Whether it expired yesterday. */
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

const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];

/** Creates a CA with the openssl command. */
export async function makeAuthority(name = 'Test authority'): Promise<Authority> {
  const folder = await mkdtemp(join(tmpdir(), 'authority-'));
  const own = files(folder, 'ca');
  await runSuccessfully('openssl', [
    ...['req', '-x509', ...newKey, '-days', '2', '-subj', `/CN=${name}`],
    ...['-addext', 'basicConstraints=critical,CA:TRUE', '-addext', 'keyUsage=critical,keyCertSign,cRLSign'],
    ...['-keyout', own.keyFile, '-out', own.certificateFile],
  ]);
  let issued = 0;
  const remove = (): Promise<void> => rm(folder, { recursive: true, force: true });
  return {
    ...(await read(own)),
    issue: (options = {}) => {
      issued += 1;
      return issueCertificate(folder, `issued-${issued}`, options);
    },
    remove,
    [Symbol.asyncDispose]: remove,
  };
}

async function issueCertificate(folder: string, name: string, options: CertificateOptions): Promise<Certificate> {
  const { hosts = ['localhost', '127.0.0.1', '::1'], expired = false, client = false } = options;
  const authority = files(folder, 'ca');
  const own = files(folder, name);
  const request = join(folder, `${name}.csr`);
  const extensions = join(folder, `${name}.ext`);
  const names = hosts.map((host) => `${isIP(host) ? 'IP' : 'DNS'}:${host}`).join(',');
  await writeFile(extensions, `subjectAltName=${names}\nextendedKeyUsage=${client ? 'clientAuth' : 'serverAuth'}\n`);
  await runSuccessfully('openssl', [
    ...['req', '-new', ...newKey, '-subj', `/CN=${hosts[0] ?? 'localhost'}`],
    ...['-keyout', own.keyFile, '-out', request],
  ]);
  await runSuccessfully('openssl', [
    ...['x509', '-req', '-in', request, '-CA', authority.certificateFile, '-CAkey', authority.keyFile],
    ...['-CAcreateserial', '-days', expired ? '-1' : '2', '-extfile', extensions, '-out', own.certificateFile],
  ]);
  return read(own);
}

function files(folder: string, name: string): Pick<Certificate, 'certificateFile' | 'keyFile'> {
  return { certificateFile: join(folder, `${name}.crt`), keyFile: join(folder, `${name}.key`) };
}

async function read(at: Pick<Certificate, 'certificateFile' | 'keyFile'>): Promise<Certificate> {
  const [certificate, key] = await Promise.all([readFile(at.certificateFile, 'utf8'), readFile(at.keyFile, 'utf8')]);
  return { certificate, key, ...at };
}
