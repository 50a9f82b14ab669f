import { execFile } from 'node:child_process';
import fs from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect } from 'chai';
import { mediaTypes } from '../../../lib/content/oci/descriptor.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { putImage, type SmallImage } from '../../support/content/smallImage.ts';
import { emptyContent, repositoryOf, startRegistry, type RegistryOptions, type TestRegistry } from './registry.ts';

const run = promisify(execFile);
const login = { username: 'user', password: 'secret' };

describe('startRegistry with real clients', () => {
  let registry: TestRegistry;
  let image: SmallImage;
  let folder: string;

  async function start(options: RegistryOptions): Promise<void> {
    registry = await startRegistry({ content: emptyContent(), ...options });
    image = putImage(registry.content, 'team/app', '1.0');
  }

  before(async () => {
    folder = await fs.mkdtemp(path.join(os.tmpdir(), 'registry-'));
  });
  afterEach(async () => {
    await registry.stop();
  });
  after(async () => {
    await fs.rm(folder, { recursive: true, force: true });
  });

  /** Creates a certificate for 127.0.0.1 with openssl. */
  async function makeCertificate(): Promise<{ key: Buffer; cert: Buffer; file: string }> {
    const [key, cert] = [path.join(folder, 'key.pem'), path.join(folder, 'cert.pem')];
    const names = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1'];
    const kind = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
    await run('openssl', ['req', '-x509', ...kind, ...names, '-keyout', key, '-out', cert]);
    return { key: await fs.readFile(key), cert: await fs.readFile(cert), file: cert };
  }

  it('lets curl read over TLS', async () => {
    const { file, ...tls } = await makeCertificate();
    await start({ tls });
    const url = `${registry.url}/v2/team/app/blobs/${image.layer}`;
    const out = path.join(folder, 'layer');
    await run('curl', ['-sS', '--fail', '--cacert', file, '--retry', '0', '-o', out, url]);
    expect(digestOf(await fs.readFile(out))).to.equal(image.layer);
    const refused = await run('curl', ['-sS', '--fail', url]).catch((error: unknown) => error as { code: number });
    expect(refused).to.include({ code: 60 });
  });

  it('lets skopeo copy from it, to it and back, with a login', async function () {
    const skopeo = async (...words: string[]): Promise<unknown> => await run('skopeo', words);
    await skopeo('--version').catch(() => {
      console.warn('      skopeo is not installed');
      this.skip();
    });
    await start({ bearer: login });
    const child = repositoryOf(registry.content, 'team/app').manifests.get(image.manifest);
    const list = Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: mediaTypes.ociIndex,
        manifests: [
          {
            mediaType: mediaTypes.ociManifest,
            digest: image.manifest,
            size: child?.bytes.length,
            platform: { os: 'linux', architecture: 'amd64' },
          },
        ],
      }),
    );
    repositoryOf(registry.content, 'team/app').manifests.set(digestOf(list), {
      mediaType: mediaTypes.ociIndex,
      bytes: list,
    });
    repositoryOf(registry.content, 'team/app').tags.set('list', digestOf(list));
    const [here, there] = [`docker://${registry.host}/team/app:list`, `docker://${registry.host}/team/copy:new`];
    const to = ['--preserve-digests', '--all', '--src-tls-verify=false', '--src-creds=user:secret'];
    await skopeo('copy', ...to, '--dest-tls-verify=false', '--dest-creds=user:secret', here, there);
    expect(registry.content.repositories.get('team/copy')?.tags.get('new')).to.equal(digestOf(list));
    expect(registry.hasBlob('team/copy', image.layer)).to.equal(true);
    await skopeo('copy', ...to, there, `dir:${folder}/back`);
    expect(digestOf(await fs.readFile(path.join(folder, 'back', 'manifest.json')))).to.equal(digestOf(list));
    expect(registry.requests.filter(({ status }) => status >= 400 && status !== 401 && status !== 404)).to.have.length(
      0,
    );
  });
});
