import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { create } from 'tar';
import { archiveOf, platforms } from '../.config/krew.ts';
import { requirePeer, run, runSuccessfully } from './support/peers.ts';
import { makeFolder, removeFolder } from './support/release/mirrorDirectory.ts';

const script = fileURLToPath(new URL('../.config/krewFiles.ts', import.meta.url));
const names = ['adm-upgrade-bundle', 'adm-release-mirror-config', 'adm-mirror-registry'];

describe('npm run krew', () => {
  let folder: string;
  let archive: string;
  beforeEach(async () => {
    folder = await makeFolder();
    const content = join(folder, 'content');
    await mkdir(content);
    for (const name of ['oc-disconnected', 'LICENSE', 'THIRD-PARTY-NOTICES'])
      await writeFile(join(content, name), '#!/bin/sh\necho "runs as ${0##*/}"\n');
    await chmod(join(content, 'oc-disconnected'), 0o755);
    const own = platforms.find(({ os, cpu }) => os === 'linux' && cpu === process.arch) ?? platforms[0];
    archive = own ? archiveOf(own) : '';
    await create({ cwd: content, file: join(folder, archive), gzip: true }, [
      'oc-disconnected',
      'LICENSE',
      'THIRD-PARTY-NOTICES',
    ]);
    const sum = createHash('sha256').update(await readFile(join(folder, archive)));
    await writeFile(join(folder, 'SHA256SUMS'), `${sum.digest('hex')}  ${archive}\n`);
  });
  afterEach(() => removeFolder(folder));

  it('writes manifests with the address that is given, and adds them to the checksums', async () => {
    await runSuccessfully(process.execPath, [script, folder, 'https://github.com/a/b/releases/download/v1.2.3']);
    await runSuccessfully('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: folder });
    for (const name of names) {
      const text = await readFile(join(folder, `${name}.yaml`), 'utf8');
      expect(text).to.contain(`uri: https://github.com/a/b/releases/download/v1.2.3/${archive}\n`);
      expect(text)
        .to.contain('homepage: https://github.com/a/b\n')
        .and.not.to.match(/example\.com|0{64}/);
      expect(await readFile(join(folder, 'krew-index/plugins', `${name}.yaml`), 'utf8')).to.equal(text);
    }
  });

  it('changes no checksums that are signed, and works if the manifests are signed too', async () => {
    const read = () => readFile(join(folder, 'SHA256SUMS'), 'utf8');
    const before = await read();
    await writeFile(join(folder, 'SHA256SUMS.asc'), 'a signature');
    const refused = await run(process.execPath, [script, folder, 'https://files.site.example.com']);
    expect([refused.code, await read()]).to.deep.equal([1, before]);
    expect(refused.stderr).to.match(/SHA256SUMS\.asc signs other checksums .*\n.* sign: gpg --armor --detach-sign /);
    await rm(join(folder, 'SHA256SUMS.asc'));
    await runSuccessfully(process.execPath, [script, folder, 'https://files.site.example.com']);
    const signed = await read();
    await writeFile(join(folder, 'SHA256SUMS.asc'), 'a signature');
    await runSuccessfully(process.execPath, [script, folder, 'https://files.site.example.com']);
    expect(await read()).to.equal(signed);
  });

  it('ends with 2 without an address', async () => {
    expect((await run(process.execPath, [script, folder])).code).to.equal(2);
  });

  describe('with krew itself', function () {
    // krew is in no package registry of the test machines: put its executable, kubectl-krew, on the PATH.
    requirePeer(this, 'kubectl-krew', 'git');
    it('makes a custom index that krew installs all plugins from', async () => {
      const server = createServer((_, response) => {
        void readFile(join(folder, archive)).then((bytes) => response.end(bytes));
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
      const env = { ...process.env, KREW_ROOT: join(folder, 'root'), HOME: folder };
      const index = join(folder, 'krew-index');
      try {
        await runSuccessfully(process.execPath, [script, folder, base]);
        await runSuccessfully('git', ['init', '--quiet', index]);
        await runSuccessfully('git', ['-C', index, 'add', '.']);
        const author = ['-c', 'user.name=test', '-c', 'user.email=test@example.com'];
        await runSuccessfully('git', ['-C', index, ...author, 'commit', '--quiet', '--message=index']);
        await runSuccessfully('kubectl-krew', ['index', 'add', 'disconnected', index], { env });
        for (const name of names) {
          await runSuccessfully('kubectl-krew', ['install', `disconnected/${name}`], { env });
          const program = join(folder, 'root/bin', `kubectl-${name.replaceAll('-', '_')}`);
          expect(await runSuccessfully(program, [])).to.match(/^runs as /);
        }
      } finally {
        server.close();
      }
    });
  });
});
