import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, createServer, getCACertificates, type Server } from 'node:tls';
import { expect } from 'chai';
import { Certificates, type CertificatesOptions } from '../../../lib/content/http/certificates.ts';
import { isPluginError, type ErrorCode } from '../../../lib/errors.ts';
import { makeAuthority, type Authority, type Certificate } from '../../support/certificates.ts';

describe('Certificates', () => {
  let folder: string;
  let authority: Authority;
  let server: Server;
  let own: Certificate;
  let client: Certificate;
  let registry: string;

  before(async () => {
    authority = await makeAuthority();
    own = await authority.issue();
    client = await authority.issue({ hosts: ['technician'], client: true });
    server = createServer(
      { cert: own.certificate, key: own.key, ca: authority.certificate, requestCert: true, rejectUnauthorized: false },
      (socket) => {
        socket.on('error', () => undefined);
        socket.end(String(socket.getPeerX509Certificate()?.subject));
      },
    );
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    registry = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(async () => {
    server.close();
    await authority.remove();
  });
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'certs.d-'));
    await mkdir(join(folder, registry));
  });
  afterEach(() => rm(folder, { recursive: true }));

  // Only the last of the folders exists.
  const certificates = (options: Partial<CertificatesOptions> = {}) =>
    new Certificates({ insecure: false, folders: [join(folder, 'none'), folder], ...options });
  const put = (file: string, name: string) => copyFile(file, join(folder, registry, name));

  /** Returns the subject of the client certificate that the server received. */
  const greet = async (of: Certificates): Promise<string> => {
    const tls = await of.for(registry);
    return await new Promise((resolve, reject) => {
      const port = Number(registry.slice(registry.indexOf(':') + 1));
      const socket = connect({ host: '127.0.0.1', port, ...tls });
      let text = '';
      socket.on('error', reject).on('end', () => {
        resolve(text);
      });
      socket.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
    });
  };
  const expectFailure = async (promise: Promise<unknown>, code: ErrorCode, message: string) => {
    const error: unknown = await promise.catch((thrown: unknown) => thrown);
    if (!isPluginError(error, code)) throw error;
    expect(error.message).to.contain(message);
  };

  it('trusts the authorities of the system and of Node, and no others', async () => {
    const tls = await certificates().for(registry);
    expect(tls.ca).to.include.members([...getCACertificates('default'), ...getCACertificates('system')]);
    expect(tls).to.include({ rejectUnauthorized: true }).and.not.to.have.any.keys('cert', 'key');
    const error: unknown = await greet(certificates()).catch((thrown: unknown) => thrown);
    expect(error).to.have.property('code', 'SELF_SIGNED_CERT_IN_CHAIN');
  });

  it('also trusts the given authority', async () => {
    expect(await greet(certificates({ certificateAuthority: authority.certificateFile }))).to.equal('undefined');
  });

  it('trusts a server’s own certificate if it is given', async () => {
    expect(await greet(certificates({ certificateAuthority: own.certificateFile }))).to.equal('undefined');
  });

  it('trusts the authorities in the folder of the registry, for that registry alone', async () => {
    await put(authority.certificateFile, 'ca.crt');
    const both = certificates();
    expect(await greet(both)).to.equal('undefined');
    const [mine, other] = [await both.for(registry), await both.for('quay.io')];
    expect((mine.ca?.length ?? 0) - (other.ca?.length ?? 0)).to.equal(1);
  });

  it('shows the client certificate in the folder of the registry', async () => {
    await put(authority.certificateFile, 'ca.crt');
    await put(client.certificateFile, 'client.cert');
    await put(client.keyFile, 'client.key');
    expect(await greet(certificates())).to.equal('CN=technician');
  });

  it('takes any certificate when insecure', async () => {
    expect(await greet(certificates({ insecure: true }))).to.equal('undefined');
  });

  it('reads the files of a registry once', async () => {
    const once = certificates();
    const [first, second] = [once.for(registry), once.for(registry)];
    expect(await first).to.equal(await second);
  });

  it('takes the first folder that there is', async () => {
    await mkdir(join(folder, 'none', registry), { recursive: true });
    await put(authority.certificateFile, 'ca.crt');
    const tls = await certificates().for(registry);
    expect(tls.ca).not.to.include(authority.certificate.trim());
  });

  it('names a given authority that is missing or invalid', async () => {
    const missing = join(folder, 'none.crt');
    await expectFailure(certificates({ certificateAuthority: missing }).for(registry), 'not-readable', missing);
    const broken = join(folder, 'broken.crt');
    await writeFile(broken, 'no certificate');
    await expectFailure(
      certificates({ certificateAuthority: broken }).for(registry),
      'invalid-file',
      `${broken} has no certificate in PEM format`,
    );
    await writeFile(broken, `${authority.certificate}-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n`);
    await expectFailure(
      certificates({ certificateAuthority: broken }).for(registry),
      'invalid-file',
      `${broken}: certificate 2 of 2 is malformed`,
    );
  });

  it('names a client certificate without its key, a key without its certificate, and a pair that does not match', async () => {
    await put(client.certificateFile, 'a.cert');
    await expectFailure(certificates().for(registry), 'not-readable', 'a.key');
    await put(authority.keyFile, 'a.key');
    await expectFailure(certificates().for(registry), 'invalid-file', 'a.cert cannot be used');
    await put(client.keyFile, 'a.key');
    await put(client.keyFile, 'b.key');
    await expectFailure(certificates().for(registry), 'invalid-file', 'b.key has no certificate');
  });
});
