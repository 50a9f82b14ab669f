import { once } from 'node:events';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { expect } from 'chai';
import { type Bundle } from '../../lib/bundle/open/bundle.ts';
import { openBundle } from '../../lib/bundle/open/open.ts';
import { checkSigned } from '../../lib/bundle/open/signedBundle.ts';
import { serveBundle, type BundleServer } from '../../lib/bundle/serve.ts';
import { digestOf } from '../../lib/content/oci/reference.ts';
import { makeBundle, type TestBundle } from '../support/content/bundle.ts';
import { startProgram, startServing, type Serving } from '../support/content/creation.ts';
import { manifestsOf, pullByPeer, sizesOf } from '../support/content/peerPull.ts';
import { makeContext, type TestContext } from '../support/context.ts';
import { requirePeer, run, runSuccessfully } from '../support/peers.ts';
import { attachmentTag } from '../support/release/attachments.ts';
import { extraImage } from '../support/release/extraImage.ts';
import { acceptUnsigned } from '../support/release/trust.ts';

const loopback = { host: '127.0.0.1', port: 0 };

interface Served extends BundleServer {
  readonly address: string;
  readonly bundle: Bundle;
}

async function serve(path: string, context: TestContext): Promise<Served> {
  const bundle = await openBundle(path, context);
  const { tags } = await checkSigned(bundle, acceptUnsigned, makeContext());
  const server = await serveBundle(bundle, { ...loopback, tags }, context);
  return { ...server, bundle, address: new URL(server.url).host };
}

async function stop(served: Served): Promise<void> {
  await served.close();
  await served.bundle[Symbol.asyncDispose]();
}

async function tagsOf(url: string, repository: string): Promise<string[]> {
  const { tags } = (await (await fetch(`${url}/v2/${repository}/tags/list`)).json()) as { tags: string[] };
  return tags;
}

describe('serveBundle', () => {
  const extra = extraImage();
  let made: TestBundle;
  before(async () => {
    made = await makeBundle({ extraImages: [extra] });
  });
  after(() => made.remove());

  for (const form of ['tar', 'directory'] as const) {
    describe(`of a ${form}`, () => {
      const context = makeContext();
      let served: Served;
      before(async () => {
        served = await serve(form === 'tar' ? made.path : await made.unpack(), context);
      });
      after(() => stop(served));

      it('offers the original repositories and openshift/release, each with the tags of its images', async () => {
        const { release } = made;
        expect(served.repositories).to.deep.equal([
          'example/site-tool',
          'openshift-release-dev/ocp-release',
          'openshift-release-dev/ocp-v4.0-art-dev',
          'openshift/release',
        ]);
        expect(await (await fetch(`${served.url}/v2/_catalog`)).json()).to.deep.equal({
          repositories: served.repositories,
        });
        expect(await tagsOf(served.url, release.releaseRepository)).to.deep.equal([
          release.tag,
          attachmentTag(release.digest),
        ]);
        const components = await tagsOf(served.url, release.componentRepository);
        const expected = [...release.images].flatMap(([name, { digest }]) => [
          `${release.tag}-${name}`,
          ...(name === 'rhel-coreos-8' ? [] : [attachmentTag(digest)]),
        ]);
        expect(components).to.have.members(expected);
        expect(await tagsOf(served.url, 'openshift/release')).to.have.length(components.length + 2 + 1);
        const other = await fetch(`${served.url}/v2/${extra.repository}/manifests/${release.tag}`);
        expect(other.status).to.equal(404);
        expect((await fetch(`${served.url}/v2/unknown/manifests/${release.tag}`)).status).to.equal(404);
      });

      it('serves blobs before any request for their manifest, and ranges of them', async () => {
        const [blob] = [...made.release.blobs.values()].filter(({ size }) => size > 5000);
        const url = `${served.url}/v2/${made.release.componentRepository}/blobs/${blob?.digest ?? ''}`;
        const whole = Buffer.from(await (await fetch(url)).arrayBuffer());
        expect(digestOf(whole)).to.equal(blob?.digest);
        const part = await fetch(url, { headers: { range: 'bytes=100-299' } });
        expect(part.status).to.equal(206);
        expect(Buffer.from(await part.arrayBuffer()).equals(whole.subarray(100, 300))).to.equal(true);
      });

      it('is read by skopeo and curl', async function () {
        requirePeer(this, 'skopeo', 'curl');
        const { release, folder } = made;
        const insecure = '--tls-verify=false';
        const inspected = await runSuccessfully('skopeo', [
          'inspect',
          insecure,
          `docker://${served.address}/openshift/release:${release.tag}`,
        ]);
        expect(JSON.parse(inspected)).to.have.property('Digest', release.digest);
        for (const pullspec of made.result.metadata.images) {
          const [name = '', digest = ''] = pullspec.replace('quay.io/', '').split('@');
          const target = join(folder, form, digest.slice(7, 19));
          await mkdir(target, { recursive: true });
          await runSuccessfully('skopeo', [
            'copy',
            '--all',
            '--preserve-digests',
            '--src-tls-verify=false',
            `docker://${served.address}/${name}@${digest}`,
            `dir:${target}`,
          ]);
          expect(digestOf(await readFile(join(target, 'manifest.json')))).to.equal(digest);
        }
        const blob = [...release.blobs.values()].find(({ size }) => size > 5000);
        const url = `${served.url}/v2/openshift/release/blobs/${blob?.digest ?? ''}`;
        const last = await run('curl', ['-s', '-w', '%{http_code}', '-o', '/dev/null', '-r', '-200', url]);
        expect(last.stdout).to.equal('206');
      });
    });
  }

  it('serves lists with their children, and their attachments under their own repository', async () => {
    const multi = await makeBundle({ arch: 'multi' });
    const served = await serve(multi.path, makeContext());
    try {
      const { release } = multi;
      expect(await tagsOf(served.url, release.releaseRepository)).to.have.members([
        release.tag,
        ...[release.digest, ...release.children].map((digest) => attachmentTag(digest)),
      ]);
      for (const child of release.children) {
        const { status } = await fetch(`${served.url}/v2/${release.releaseRepository}/manifests/${child}`);
        expect(status).to.equal(200);
      }
    } finally {
      await stop(served);
      await multi.remove();
    }
  });

  it('gives each image in its repository, with its index, configuration and layers, to oci-registry-client', async () => {
    await using multi = await makeBundle({ arch: 'multi', components: 2, extraImages: [extra] });
    const served = await serve(multi.path, makeContext());
    try {
      const pulled: Record<string, number> = {};
      for (const each of [multi.release, extra])
        for (const name of each.content.repositories.keys())
          Object.assign(pulled, await pullByPeer(`${served.url}/${name}`, manifestsOf(each, name)));
      expect(pulled).to.deep.equal({ ...sizesOf(multi.release), ...sizesOf(extra) });
    } finally {
      await stop(served);
    }
  });

  it('serves an incomplete directory, and names the missing image', async () => {
    const context = makeContext();
    const folder = await made.unpack();
    const digest = made.release.images.get('rhel-coreos-8')?.digest ?? '';
    await rm(join(folder, 'v2/openshift/release/manifests', digest));
    const served = await serve(folder, context);
    try {
      expect(context.lines.some((line) => line.startsWith('warn: ') && line.includes(digest))).to.equal(true);
      const manifests = `${served.url}/v2/openshift/release/manifests`;
      expect((await fetch(`${manifests}/${digest}`)).status).to.equal(404);
      expect((await fetch(`${manifests}/${made.release.tag}`)).status).to.equal(200);
    } finally {
      await stop(served);
    }
  });
});

describe('serve', () => {
  let made: TestBundle;
  before(async () => {
    made = await makeBundle();
  });
  after(() => made.remove());

  const start = (...args: string[]): Promise<Serving> =>
    startUntrusting(`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`, ...args);
  const startUntrusting = (...args: string[]): Promise<Serving> => startServing(made.folder, [made.path, ...args]);

  it('prints its address, and succeeds after an interruption', async () => {
    const { address, end } = await start('-v');
    expect(address).to.match(/^127\.0\.0\.1:\d+$/);
    expect((await fetch(`http://${address}/v2/openshift/release/manifests/${made.release.tag}`)).status).to.equal(200);
    const { code, stdout, stderr } = await end();
    expect(code).to.equal(0);
    expect(stdout).to.equal(`${address}\n`);
    expect(stderr).to.contain(
      `skopeo inspect --tls-verify=false docker://${address}/openshift/release:${made.release.tag}`,
    );
    expect(stderr).to.contain(`GET /v2/openshift/release/manifests/${made.release.tag}`);
    expect(stderr).to.contain(`signed by Test release key <release@example.com>, key ${made.key.fingerprint}`);
    expect(stderr).not.to.match(/warning|error/);
  });

  it('ends its process with 0 after SIGTERM', async () => {
    const trust = [`--signature-keyring=${made.keyFile}`, `--trust-fingerprint=${made.key.fingerprint}`];
    const { child, outcome } = startProgram(made.folder, 'serve', [made.path, ...trust]);
    await Promise.race([once(child.stdout ?? child, 'data'), outcome]);
    child.kill('SIGTERM');
    expect((await outcome).code).to.equal(0);
  });

  it('serves nothing that an unknown key signed, unless that is allowed', async () => {
    const refused = await (await startUntrusting()).end();
    expect(refused).to.deep.include({ code: 1, stdout: '' });
    expect(refused.stderr).to.match(
      new RegExp(`^hint: .* Trust ${made.key.fingerprint} only .*\ntry: --trust-fingerprint$`, 'm'),
    );
    const { address, end } = await startUntrusting('--allow-unsigned');
    expect(address).to.match(/^127\.0\.0\.1:\d+$/);
    expect((await end()).stderr).to.match(/warning: .*a key that is not trusted; continuing/);
  });

  it('warns when it can be reached from elsewhere', async () => {
    const { address, end } = await start('--listen=0.0.0.0:0', '--quiet');
    expect(address).to.match(/^0\.0\.0\.0:\d+$/);
    expect((await end()).stderr).to.match(/warning: .*plain HTTP, without a login/);
  });

  it('refuses clients without the token in a file, and refuses a file without a token', async () => {
    const file = join(made.folder, 'token');
    await writeFile(file, 'short\n');
    const refused = await (await start(`--token-file=${file}`)).end();
    expect(refused.code).to.equal(1);
    expect(refused.stderr).to.contain('openssl rand').and.not.to.contain('short');
    const token = '0123456789abcdef';
    await writeFile(file, `${token}\n`);
    const { address, end } = await start(`--token-file=${file}`, '--listen=0.0.0.0:0');
    const url = `http://${address.replace('0.0.0.0', '127.0.0.1')}/bundle.tar`;
    expect((await fetch(url)).status).to.equal(401);
    const headers = { Authorization: `Bearer ${token}`, Range: 'bytes=0-511' };
    const answer = await fetch(url, { headers });
    expect(answer.status).to.equal(206);
    expect(Buffer.from(await answer.arrayBuffer()).toString()).to.match(/^metadata\.json/);
    const { stderr } = await end();
    expect(stderr)
      .to.match(/warning: .*each client that reads the token/)
      .and.not.to.contain(token);
  });

  it('responds to its own and the given host names, and to no others', async () => {
    const { address, end } = await start('--listen=0.0.0.0:0', '--host=registry.example.com');
    const port = Number(address.split(':').at(-1));
    const ask = async (name: string): Promise<string> => {
      const socket = connect(port, '127.0.0.1');
      socket.write(`GET /v2/ HTTP/1.1\r\nHost: ${name}:${port}\r\nConnection: close\r\n\r\n`);
      return (await text(socket)).slice(9, 12);
    };
    expect(await ask('registry.example.com')).to.equal('200');
    expect(await ask(hostname())).to.equal('200');
    expect(await ask('localhost')).to.equal('200');
    expect(await ask('evil.example')).to.equal('421');
    expect((await end()).code).to.equal(0);
  });

  for (const listen of ['nonsense', ':5000', '127.0.0.1:', '127.0.0.1:70000', '::1:5000']) {
    it(`refuses --listen ${listen}`, async () => {
      const { end } = await start(`--listen=${listen}`);
      const { code, stderr } = await end();
      expect(code).to.equal(2);
      expect(stderr).to.contain(listen);
    });
  }
});
