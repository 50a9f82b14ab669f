import { readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { runSuccessfully } from '../../support/peers.ts';
import type { Fixture } from './mirrorRegistry.ts';

/** The host and the validity of the installer’s certificates. */
export interface InstalledCertificates {
  /** The value from the installer’s command line, without a port. */
  readonly host?: string;
  readonly days?: number;
  readonly caDays?: number;
  /** Without key identifiers, as OpenSSL 1.1.1 created CAs. */
  readonly old?: boolean;
  /** The size of the server’s key. */
  readonly bits?: number;
  /** The name of the server’s certificate, which is the same for all installers. */
  readonly name?: string;
}

const keys = new Map<string, Promise<string>>();

/**
 * Returns an RSA key. All fixtures of a run share one for each owner and size, because creating one takes longer than
 * the rest of a fixture.
 */
function makeKey(owner: 'authority' | 'server', bits: number): Promise<string> {
  const name = `${owner} ${bits}`;
  const key = keys.get(name) ?? runSuccessfully('openssl', ['genrsa', String(bits)]);
  keys.set(name, key);
  return key;
}

type File = readonly [path: string, content: string, mode: number];

/** The files of each kind of certificates. All fixtures of a run share them, as they share the keys. */
const installed = new Map<string, Promise<readonly File[]>>();

/** Creates certificates in a fixture as the installers of all versions do, with the same options of openssl. */
export async function installCertificates(fixture: Fixture, options: InstalledCertificates = {}): Promise<void> {
  const kind = JSON.stringify(options);
  const made = installed.get(kind);
  if (made === undefined) {
    const making = makeCertificates(fixture, options).then(() => readCertificates(fixture));
    installed.set(kind, making);
    await making;
    return;
  }
  for (const [path, content, mode] of await made) await fixture.write(`${fixture.quayRoot}/${path}`, content, mode);
}

async function readCertificates(fixture: Fixture): Promise<File[]> {
  const home = join(fixture.root, fixture.quayRoot);
  const files = ['openssl.cnf', 'ssl.key', 'ssl.csr', 'ssl.cert'].map((name) => `quay-config/${name}`);
  const own = (await readdir(join(home, 'quay-rootCA'))).map((name) => `quay-rootCA/${name}`);
  const read = [...files, ...own].map(async (path): Promise<File> => {
    const { mode } = await stat(join(home, path));
    return [path, await readFile(join(home, path), 'utf8'), mode & 0o777];
  });
  return Promise.all(read);
}

async function makeCertificates(fixture: Fixture, options: InstalledCertificates): Promise<void> {
  const {
    host = 'registry.example.com',
    days = 356,
    caDays = 1024,
    old = false,
    bits = 2048,
    name = 'quay-enterprise',
  } = options;
  const config = join(fixture.root, fixture.quayRoot, 'quay-config');
  const root = join(fixture.root, fixture.quayRoot, 'quay-rootCA');
  await fixture.write(
    `${fixture.quayRoot}/quay-config/openssl.cnf`,
    `[req]
default_bits = 4096
default_md = sha256
distinguished_name = req_distinguished_name
x509_extensions = v3_req
prompt = no
[req_distinguished_name]
C = US
ST = VA
L = New York
O = Quay
OU = Division
CN = ${host}
[v3_req]
keyUsage = keyEncipherment, dataEncipherment, keyCertSign
extendedKeyUsage = serverAuth
subjectAltName = @alt_names
${old ? 'subjectKeyIdentifier = none\nauthorityKeyIdentifier = none\n' : ''}[alt_names]
DNS = ${host}
`,
  );
  const openssl = (...args: string[]): Promise<string> => runSuccessfully('openssl', args);
  const cnf = join(config, 'openssl.cnf');
  const [rootKey, rootPem] = [join(root, 'rootCA.key'), join(root, 'rootCA.pem')];
  const [key, csr, cert] = [join(config, 'ssl.key'), join(config, 'ssl.csr'), join(config, 'ssl.cert')];
  await fixture.write(`${fixture.quayRoot}/quay-rootCA/rootCA.key`, await makeKey('authority', 2048), 0o600);
  await openssl(
    'req',
    '-x509',
    '-new',
    '-config',
    cnf,
    '-nodes',
    '-key',
    rootKey,
    '-sha256',
    '-days',
    String(caDays),
    '-out',
    rootPem,
    '-addext',
    'basicConstraints=critical,CA:TRUE,pathlen:1',
  );
  await fixture.write(`${fixture.quayRoot}/quay-config/ssl.key`, await makeKey('server', bits), 0o644);
  await openssl('req', '-new', '-key', key, '-out', csr, '-subj', `/CN=${name}`, '-config', cnf);
  await openssl(
    'x509',
    '-req',
    '-in',
    csr,
    '-CA',
    rootPem,
    '-CAkey',
    rootKey,
    '-CAcreateserial',
    '-out',
    cert,
    '-days',
    String(days),
    '-extensions',
    'v3_req',
    '-extfile',
    cnf,
  );
  await writeFile(cert, (await readFile(cert, 'utf8')) + (await readFile(rootPem, 'utf8')), { mode: 0o644 });
}

/** Copies an administrator’s certificate into a fixture, and keeps the installer’s CA. */
export async function installOwnCertificate(fixture: Fixture, host = 'registry.example.com'): Promise<void> {
  const config = join(fixture.root, fixture.quayRoot, 'quay-config');
  await rm(join(config, 'ssl.cert'), { force: true });
  await runSuccessfully('openssl', [
    'req',
    '-x509',
    '-newkey',
    'rsa:2048',
    '-nodes',
    '-days',
    '10',
    '-subj',
    `/O=Quay/CN=${host}`,
    '-addext',
    `subjectAltName=DNS:${host}`,
    '-keyout',
    join(config, 'ssl.key'),
    '-out',
    join(config, 'ssl.cert'),
  ]);
}
