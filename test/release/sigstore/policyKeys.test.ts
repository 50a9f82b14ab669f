import { generateKeyPairSync } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { loadExpectedKeys } from '../../../lib/release/sigstore/policyKeys.ts';
import { readPolicyKey } from '../../../lib/release/sigstore/trustRoot.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { executeProgram } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';
import { attachmentKey } from '../../support/release/attachments.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const program = new URL('../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url).pathname;

describe('the keys of image policies', () => {
  let folder: string;
  before(async () => {
    folder = await makeFolder();
  });
  after(() => removeFolder(folder));
  const write = async (name: string, content: string | Buffer): Promise<string> => {
    await writeFile(join(folder, name), content);
    return join(folder, name);
  };

  it('are Red Hat’s, and those in files', async () => {
    const own = await loadExpectedKeys([await write('own.pem', attachmentKey)]);
    expect([...own.values()]).to.deep.equal(['Red Hat release key 3', `the key in ${join(folder, 'own.pem')}`]);
    expect(own.has(readPolicyKey(Buffer.from(attachmentKey)).fingerprint)).to.equal(true);
  });

  it('are refused with the file if it has none that policies can have', async () => {
    const { publicKey } = generateKeyPairSync('x25519');
    for (const [content, code] of [
      ['no key', 'invalid-file'],
      [publicKey.export({ type: 'spki', format: 'pem' }), 'invalid-file'],
      [Buffer.alloc(70_000), 'too-large'],
    ] as const) {
      expect((await failureOf(loadExpectedKeys([await write('bad.pem', content)]), code)).message).to.include(
        'bad.pem',
      );
    }
    await failureOf(loadExpectedKeys([join(folder, 'none.pem')]), 'not-found');
  });

  describe('in the output of commands', () => {
    let bundle: TestBundle;
    before(async () => {
      bundle = await makeBundle({ components: 1, attachments: () => true, files: imagePolicyFiles() });
    });
    after(() => bundle.remove());

    it('are unknown, with a warning, unless --trust-key names them', async () => {
      const { path, keyFile, key } = bundle;
      const trust = [`--signature-keyring=${keyFile}`, `--trust-fingerprint=${key.fingerprint}`];
      const unknown = await executeProgram(program, ['verify', path, ...trust]);
      expect(unknown).to.include({ code: 0 });
      expect(unknown.stdout).to.match(/policy openshift, unknown key SHA256:/);
      expect(unknown.stderr).to.match(/warning: the image policy openshift of the release has an unknown key/);
      const known = await executeProgram(program, [
        'verify',
        path,
        ...trust,
        `--trust-key=${await write('k', attachmentKey)}`,
      ]);
      expect(known.stdout).to.match(/policy openshift, the key in .*SHA256:/);
      expect(known.stderr).not.to.include('unknown key');
    });

    it('are beside the GPG key in the summary of push', async () => {
      const { path, keyFile, key } = bundle;
      const trust = [`--signature-keyring=${keyFile}`, `--trust-fingerprint=${key.fingerprint}`];
      await using registry = await startRegistry();
      const to = [`--to=${registry.host}/site/release`, '--insecure'];
      const { stdout, stderr } = await executeProgram(program, ['push', path, ...to, ...trust]);
      expect(stdout, stderr).to.match(
        new RegExp(`Signed by .*${key.fingerprint}\\s+Sigstore +2 of 2 images verified, policy openshift`),
      );
    });
  });
});
