import { mkdtemp, rm, writeFile, mkdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect } from 'chai';
import { createMessage, generateKey, sign } from 'openpgp';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { fetchFile, type FetchFile } from '../../../lib/content/http/fetchFile.ts';
import { digestOf, hexOf, parseDigest } from '../../../lib/content/oci/reference.ts';
import { loadKeyring, type Keyring } from '../../../lib/release/signature/keyring.ts';
import { findSignatures, signatureSizeLimit } from '../../../lib/release/signature/signatureStore.ts';
import { collectSignatures, verifyRelease } from '../../../lib/release/signature/trust.ts';
import { startSignatureServer, type SignatureServer } from '../../fakes/registry/signatureServer.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import {
  makeSigningKey,
  signatureStore,
  signDigest,
  signOversized,
  statementOf,
  writeSignatureStore,
  type SigningKey,
} from '../../support/release/signing.ts';
import { itWithSharedData, sharedData } from '../../support/sharedData.ts';

const digest = digestOf('a release');

describe('the trust in a release', () => {
  const context = makeContext();
  const connections = new Connections({ certificates: new Certificates({ insecure: false, folders: [] }) });
  const fetch: FetchFile = (url, limit) => fetchFile(connections, url, limit, context, { attempts: 3, baseDelay: 1 });
  const nothing = join(tmpdir(), 'no such file');
  let folder: string;
  let server: SignatureServer;
  let mirror: SignatureServer;
  let signer: SigningKey;
  let stranger: SigningKey;
  let keyring: Keyring;
  let signature: Buffer;
  let second: Buffer;
  let foreign: Buffer;

  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'trust-'));
    server = await startSignatureServer();
    mirror = await startSignatureServer();
    signer = await makeSigningKey();
    stranger = await makeSigningKey({ name: 'Stranger' });
    const others = [signer, stranger].map(({ publicKey }) => ({ name: 'test', content: publicKey }));
    keyring = await loadKeyring({ system: nothing, others }, [signer.fingerprint], context);
    signature = await signDigest(signer, digest);
    second = await signDigest(signer, digest, { version: 3 });
    foreign = await signDigest(stranger, digest);
  });
  after(async () => {
    connections.close();
    await server.stop();
    await mirror.stop();
    await rm(folder, { recursive: true });
  });

  afterEach(() => {
    server.clearFaults();
    mirror.clearFaults();
  });

  const serve = (on: SignatureServer, ...signatures: Buffer[]): string => {
    const files = on.files as Map<string, Buffer>;
    files.clear();
    for (const [path, bytes] of signatureStore(new Map([[digest, signatures]]), '/signatures/')) files.set(path, bytes);
    on.requests.length = 0;
    return `${on.url}/signatures`;
  };

  describe('findSignatures', () => {
    it('asks an http store for one after the other until there is no more', async () => {
      const store = serve(server, signature, second);
      const [answer] = await findSignatures(digest, [`${store}/`], fetch, context);
      expect(answer).to.deep.equal({ store: `${store}/`, signatures: [signature, second], problem: undefined });
      const paths = server.requests.map(({ path }) => path);
      expect(paths).to.deep.equal([1, 2, 3].map((n) => `/signatures/sha256=${hexOf(digest)}/signature-${n}`));
    });

    it('reads a folder and a file URL', async () => {
      await writeSignatureStore(folder, signatureStore(new Map([[digest, [signature, second]]]), 'store/'));
      const store = join(folder, 'store');
      const answers = await findSignatures(digest, [store, pathToFileURL(store).href], fetch, context);
      for (const answer of answers)
        expect(answer).to.deep.equal({ store, signatures: [signature, second], problem: undefined });
    });

    it('stops after ten', async () => {
      const store = serve(server, ...Array.from({ length: 12 }, () => signature));
      const [answer] = await findSignatures(digest, [store], fetch, context);
      expect(answer?.signatures).to.have.length(10);
    });

    it('enforces the size of a signature and continues with the next, on the network and on disk', async () => {
      const large = await signOversized(signer, digest);
      const store = serve(server, large, signature);
      await writeSignatureStore(folder, signatureStore(new Map([[digest, [large, signature]]]), 'large/'));
      const answers = await findSignatures(digest, [store, join(folder, 'large')], fetch, context);
      for (const answer of answers) {
        expect(answer.problem?.code).to.equal('too-large');
        expect(answer.signatures).to.deep.equal([signature]);
      }
      expect(large.length).to.be.greaterThan(signatureSizeLimit);
    });

    it('refuses other kinds of stores, and does not print the secret in an address', async () => {
      const ftp = await failureOf(findSignatures(digest, ['ftp://example.com/x'], fetch, context));
      expect(ftp.code).to.equal('usage');
      const store = serve(server, signature).replace('http://', 'http://user:secret@');
      const [answer] = await findSignatures(digest, [`${store}?token=secret`], fetch, context);
      expect(answer?.signatures).to.have.length(1);
      expect(JSON.stringify(answer?.store)).not.to.contain('secret');
    });

    it('says when a folder that was named is not there', async () => {
      const [answer] = await findSignatures(digest, [join(folder, 'absent')], fetch, context);
      expect(answer?.problem?.message).to.equal(`the folder ${join(folder, 'absent')} does not exist`);
    });
  });

  describe('verifyRelease', () => {
    const verify = (stores: string[], known: Buffer[] = [], ring = keyring) =>
      verifyRelease(digest, { keyring: ring, stores, known, fetchFile: fetch }, context);

    it('gives every good signature once, in the order of the stores', async () => {
      const stores = [serve(server, second, signature), serve(mirror, foreign, signature)];
      const good = await verify(stores);
      expect(good.map(({ bytes }) => bytes)).to.deep.equal([second, signature]);
      expect((await verify(stores.toReversed())).map(({ bytes }) => bytes)).to.deep.equal([signature, second]);
      expect(good[0]).to.include({ digest, fingerprint: signer.fingerprint });
    });

    it('asks no store if a good signature is available', async () => {
      const stores = [serve(server, second)];
      expect((await verify(stores, [foreign, signature])).map(({ bytes }) => bytes)).to.deep.equal([signature]);
      expect(server.requests).to.have.length(0);
      expect((await verify(stores, [foreign])).map(({ bytes }) => bytes)).to.deep.equal([second]);
    });

    it('is content with one store when the other fails', async () => {
      server.fault(/./, { noAnswer: 'reset' });
      const good = await verify([`${server.url}/x`, serve(mirror, signature)]);
      expect(good).to.have.length(1);
    });

    it('throws unsigned with the answer of each store', async () => {
      server.fault(/./, { answer: { status: 503 } });
      const error = await failureOf(verify([`${server.url}/x`, serve(mirror)]));
      expect(error.code).to.equal('unsigned');
      expect(error.message).to.contain(`${server.url}/x/sha256=${hexOf(digest)}/signature-1 answered with status 503`);
      expect(error.message).to.contain(`${mirror.url}/signatures has no signature`);
      expect(error.hint).to.match(/nightly builds are not/);
      expect((await failureOf(verify([]))).message).to.contain('no signature store is known');
    });

    it('gives advice for a site without a network', async () => {
      server.fault(/./, { noAnswer: 'reset' });
      const error = await failureOf(verify([`${server.url}/x`]));
      expect(error.code).to.equal('unsigned');
      expect(error.hint).to.match(/^No signature store could be reached/);
      expect(error.settings).to.deep.equal(['signatureStore', 'allowUnsigned']);
    });

    it('throws untrusted with the very option that would trust a good signature’s key', async () => {
      const error = await failureOf(verify([serve(server, foreign)]));
      expect(error.code).to.equal('untrusted');
      expect(error.message).to.contain(`signed by ${stranger.fingerprint} (Stranger <release@example.com>)`);
      expect(error.hint).to.match(/by another way/);
      expect(error.hint).to.contain(`Trust ${stranger.fingerprint} only`);
      expect(error.settings).to.deep.equal(['trustFingerprint']);
    });

    it('gives advice for an algorithm that clusters do not know, and for an expired signature', async () => {
      const curve = { type: 'ecc', curve: 'ed25519Legacy', userIDs: { name: 'Other' }, format: 'object' } as const;
      const { privateKey } = await generateKey(curve);
      const message = await createMessage({ binary: Buffer.from(statementOf(digest)) });
      const edwards = (await sign({ message, signingKeys: privateKey, format: 'binary' })) as Uint8Array;
      const unsupported = await failureOf(verify([serve(server, Buffer.from(edwards))]));
      expect(unsupported.code).to.equal('untrusted');
      expect(unsupported.message).to.match(
        /^cannot verify sha256:.*: the signature uses an unsupported algorithm.*EdDSA/,
      );
      expect(unsupported.hint).to.match(/^Sign the release with an RSA key/);
      const expired = await failureOf(verify([serve(server, await signDigest(signer, digest, { expired: true }))]));
      expect(expired.message).to.match(/the signature expired on 20\d\d-/);
      expect(expired.hint).to.match(/^Get a newer signature/);
    });

    it('throws untrusted with each reason, and never trusts a payload’s own key', async () => {
      const other = await signDigest(signer, digestOf('another'));
      const error = await failureOf(verify([serve(server, other, Buffer.from('junk'))]));
      expect(error.code).to.equal('untrusted');
      expect(error.message).to.match(/the signature is for sha256:[0-9a-f]+; the signature is not binary OpenPGP/);
      expect(error.hint).to.match(/^Trust the key that signs such releases/);
      const own = await loadKeyring(
        { system: nothing, others: [{ name: 'payload', content: stranger.publicKey }] },
        [],
        context,
      );
      expect((await failureOf(verify([serve(server, foreign)], [], own))).code).to.equal('untrusted');
    });

    it('reports if no trusted key is available', async () => {
      const empty = await loadKeyring({ system: nothing }, [], context);
      expect((await failureOf(verify([serve(server, signature)], [], empty))).settings).to.deep.equal([
        'signatureKeyring',
      ]);
    });

    it('ends when it is interrupted', async () => {
      const aborted = { ...context, signal: AbortSignal.abort() };
      const options = { keyring, stores: [folder], fetchFile: fetch };
      expect((await failureOf(verifyRelease(digest, options, aborted))).code).to.equal('interrupted');
    });

    itWithSharedData('verifies a genuine release out of a folder, with the pinned key and nothing else', async () => {
      const release = parseDigest('sha256:e3f12513a4b22a2d7c0e7c9207f52128113758d9d68c7d06b11a0ac7672966f7');
      const bytes = sharedData(`signatures/sha256=${hexOf(release)}/signature-1`);
      await mkdir(join(folder, `sha256=${hexOf(release)}`));
      await writeFile(join(folder, `sha256=${hexOf(release)}`, 'signature-1'), bytes);
      const others = [{ name: 'payload', content: sharedData('keyrings/redhat.txt') }];
      const ring = await loadKeyring({ system: nothing, others }, [], context);
      const [good] = await verifyRelease(release, { keyring: ring, stores: [folder], fetchFile: fetch }, context);
      expect(good?.userId).to.equal('Red Hat, Inc. (release key 2) <security@redhat.com>');
    });
  });

  describe('collectSignatures', () => {
    it('finds no signatures of an image, and does not fail', async () => {
      const findings = await collectSignatures(digest, { keyring, stores: [serve(server)], fetchFile: fetch }, context);
      expect(findings).to.deep.include({ good: [], untrusted: [], rejected: [] });
    });
  });
});
