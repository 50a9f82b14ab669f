import { generateKeyPairSync, verify } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { openReceipt, readSigningKey, signReceipt } from '../../../lib/bundle/verify/receipt.ts';
import { hexOf } from '../../../lib/content/oci/reference.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { executeProgram, type Execution } from '../../support/program/execution.ts';
import { failureOf } from '../../support/program/failure.ts';
import { imagePolicyFiles } from '../../support/release/imagePolicy.ts';

const program = new URL('../../../cmd/oc-adm_upgrade_bundle.ts', import.meta.url).pathname;

describe('a receipt', () => {
  let bundle: TestBundle;
  let text: string;
  const at = (name: string): string => join(bundle.folder, name);
  const run = (...args: string[]): Promise<Execution> => executeProgram(program, args);
  const verifySigned = (key: string): Promise<Execution> => {
    const trust = [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
    return run('verify', bundle.path, ...trust, '-o', 'json', `--sign-key=${at(key)}`);
  };

  before(async () => {
    bundle = await makeBundle({ components: 1, attachments: () => true, files: imagePolicyFiles() });
    const pairs = {
      ed: generateKeyPairSync('ed25519'),
      ec: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
      rsa: generateKeyPairSync('rsa', { modulusLength: 2048 }),
    };
    for (const [name, { privateKey, publicKey }] of Object.entries(pairs)) {
      await writeFile(at(`${name}.pem`), privateKey.export({ type: 'pkcs8', format: 'pem' }));
      await writeFile(at(`${name}.pub`), publicKey.export({ type: 'spki', format: 'pem' }));
    }
    text = (await verifySigned('ed.pem')).stdout;
    await writeFile(at('receipt.json'), text);
  });
  after(() => bundle.remove());

  it('is a DSSE envelope with an in-toto statement about the bundle and its release', async () => {
    const { payloadType, payload, signatures } = JSON.parse(text) as Record<string, string> & {
      signatures: { sig: string }[];
    };
    const body = Buffer.from(payload ?? '', 'base64');
    // The encoding of the specification, written out.
    const signed = Buffer.concat([Buffer.from(`DSSEv1 28 application/vnd.in-toto+json ${body.length} `), body]);
    const sig = Buffer.from(signatures[0]?.sig ?? '', 'base64');
    expect(verify(null, signed, await readFile(at('ed.pub')), sig)).to.equal(true);
    expect(payloadType).to.equal('application/vnd.in-toto+json');
    const statement = JSON.parse(body.toString()) as { _type: string; subject: { digest: { sha256: string } }[] };
    expect(statement._type).to.equal('https://in-toto.io/Statement/v1');
    expect(statement.subject.map(({ digest }) => `sha256:${digest.sha256}`)).to.deep.equal([
      bundle.result.digest,
      bundle.release.digest,
    ]);
    expect(statement).to.have.nested.property('predicate.sigstore[0].outcome', 'verified');
  });

  it('is verified by its key and for its digest, and by no other', async () => {
    const check = (...args: string[]): Promise<Execution> => run('receipt', 'verify', at('receipt.json'), ...args);
    const json = JSON.parse((await check(`--key=${at('ed.pub')}`, '-o', 'json')).stdout) as { predicate: object };
    expect(json.predicate).to.include({ good: true, version: bundle.release.version });
    for (const digest of [bundle.release.digest, hexOf(bundle.release.digest)]) {
      const good = await check(`--key=${at('ed.pub')}`, `--digest=${digest}`);
      expect(good).to.include({ code: 0 });
      expect(good.stdout).to.match(/^Genuine: .*receipt\.json\n/);
    }
    const short = await run('receipt', at('receipt.json'), `--key=${at('ed.pub')}`);
    expect(short).to.include({ code: 0 });
    const other = await check(`--key=${at('ec.pub')}`);
    expect(other.code).to.equal(1);
    expect(other.stderr).to.match(/has no signature by the key/);
    const elsewhere = await check(`--key=${at('ed.pub')}`, `--digest=sha256:${'0'.repeat(64)}`);
    expect(elsewhere.stderr).to.match(/is not about sha256:0/);
  });

  for (const name of ['ec', 'rsa']) {
    it(`can be signed by a key of another kind: ${name}`, async () => {
      const subject = [{ name: 'x', digest: { sha256: '0'.repeat(64) } }];
      const key = await readSigningKey(at(`${name}.pem`));
      await writeFile(at('other.json'), signReceipt({ subject, predicate: { good: true } }, key));
      expect(await openReceipt(at('other.json'), at(`${name}.pub`))).to.deep.equal({
        subject,
        predicate: { good: true },
      });
    });
  }

  it('fails if it is changed, of a bad bundle, or no receipt', async () => {
    const envelope = JSON.parse(text) as { payload: string };
    const changed = Buffer.from(envelope.payload, 'base64').toString().replace('"good":true', '"good":true ');
    for (const [content, code] of [
      [JSON.stringify({ ...envelope, payload: Buffer.from(changed).toString('base64') }), 'untrusted'],
      [JSON.stringify({ ...envelope, payloadType: 'text/plain' }), 'invalid-file'],
      [JSON.stringify({ ...envelope, signatures: [null, { sig: 1 }] }), 'untrusted'],
      ['{', 'invalid-file'],
    ] as const) {
      await writeFile(at('bad.json'), content);
      await failureOf(openReceipt(at('bad.json'), at('ed.pub')), code);
    }
    const subject = [{ name: 'x', digest: { sha256: '0'.repeat(64) } }];
    const receipt = signReceipt({ subject, predicate: { good: false } }, await readSigningKey(at('ed.pem')));
    await writeFile(at('failed.json'), receipt);
    const failed = await run('receipt', 'verify', at('failed.json'), `--key=${at('ed.pub')}`);
    expect(failed).to.include({ code: 1 });
    expect(failed.stderr).to.match(/about a bundle with problems/);
  });

  it('needs a key, and the error names its own help', async () => {
    const { code, stderr } = await run('receipt', 'verify', at('receipt.json'));
    expect(code).to.equal(2);
    expect(stderr).to.include("hint: 'oc adm-upgrade-bundle receipt --help' lists its options.");
  });

  it('is not made without a usable key, or in another format', async () => {
    await failureOf(readSigningKey(at('ed.pub')), 'invalid-file');
    const html = await run('verify', bundle.path, '-o', 'html', `--sign-key=${at('ed.pem')}`);
    expect(html).to.include({ code: 2 });
  });
});
