import 'reflect-metadata';
import { createPublicKey, generateKeyPairSync, sign, type KeyObject } from 'node:crypto';
import * as x509 from '@peculiar/x509';
import { expect } from 'chai';
import { mediaTypes, parseManifest, type Descriptor } from '../../../lib/content/oci/descriptor.ts';
import { digestOf, hexOf, type Digest } from '../../../lib/content/oci/reference.ts';
import { readImagePolicy } from '../../../lib/release/sigstore/imagePolicy.ts';
import { evaluateImage } from '../../../lib/release/sigstore/releaseCheck.ts';
import { emptyContent, startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeBlob } from '../../support/content/layers.ts';
import { putImage } from '../../support/content/smallImage.ts';
import { PolicyJudge } from '../../support/release/policyJudge.ts';
import {
  makeEntry,
  signerExtensions,
  type EntryOptions,
  type SignerOptions,
} from '../../support/release/sigstoreSigner.ts';
import {
  authorityExtensions,
  makeCertificate,
  makeKey,
  now,
  usages,
  type CertificateOptions,
  type TestCertificate,
} from '../../support/x509.ts';

type Json = Record<string, unknown>;
type Kind = 'key' | 'fulcio' | 'pki';

/** What differs from the right signature by a policy. */
interface Case {
  readonly kind: Kind;
  readonly signer?: SignerOptions;
  readonly leaf?: CertificateOptions;
  readonly intermediate?: CertificateOptions;
  /** The certificates of the chain annotation; none for null. */
  readonly chain?: ((intermediate: string, root: string) => string) | null;
  readonly entry?: EntryOptions;
  /** Values of the policy in the form of skopeo. */
  readonly rule?: Json;
  readonly annotations?: (annotations: Record<string, string>) => Record<string, string>;
  readonly optional?: string;
  readonly key?: KeyObject;
  readonly sign?: (payload: Buffer, key: KeyObject) => Buffer;
  readonly name?: string;
  readonly isUnsigned?: true;
  /** Nodes accept it; this program refuses it. */
  readonly isStricter?: true;
}

const base64 = (text: string | Buffer): string => Buffer.from(text).toString('base64');
const pemOf = (key: KeyObject): string => createPublicKey(key).export({ type: 'spki', format: 'pem' });
const without = (key: string) => (all: Record<string, string>) =>
  Object.fromEntries(Object.entries(all).filter(([name]) => name !== key));
const setNotation = 'dev.sigstore.cosign/bundle';
const certificateNotation = 'dev.sigstore.cosign/certificate';
const chainNotation = 'dev.sigstore.cosign/chain';
const plainForm = (payload: Buffer, key: KeyObject): Buffer =>
  sign('sha256', payload, { key, dsaEncoding: 'ieee-p1363' });
/** Adds zeros before both numbers. */
const widen = (signature: Buffer, by: number): Buffer => {
  const half = signature.length / 2;
  return Buffer.concat([Buffer.alloc(by), signature.subarray(0, half), Buffer.alloc(by), signature.subarray(half)]);
};

describe('the roots of trust of image policies', () => {
  let registry: TestRegistry;
  let host: string;
  let digest: Digest;
  let judge: PolicyJudge;
  let isJudged = false;
  let root: TestCertificate;
  let otherRoot: TestCertificate;
  let shortRoot: TestCertificate;
  let middle: TestCertificate;
  /** Authorities of one name and one key, so that each may have issued each other. */
  let circle: TestCertificate[];
  const [logKey, otherKey] = [makeKey(), makeKey()];
  const counts = { accepted: 0, refused: 0, stricter: 0 };

  before(async () => {
    registry = await startRegistry({ content: emptyContent() });
    host = new URL(registry.url).host;
    ({ manifest: digest } = putImage(registry.content, 'team/app', '1.0'));
    judge = await PolicyJudge.open();
    root = await makeCertificate({ name: 'CN=root', extensions: authorityExtensions() });
    otherRoot = await makeCertificate({ name: 'CN=root', extensions: authorityExtensions() });
    middle = await makeCertificate({ name: 'CN=middle', by: root, extensions: authorityExtensions() });
    shortRoot = await makeCertificate({ name: 'CN=root', extensions: authorityExtensions(0) });
    const key = makeKey();
    const inCircle = Array.from({ length: 16 }, () =>
      makeCertificate({ name: 'CN=circle', key, extensions: authorityExtensions() }),
    );
    circle = await Promise.all(inCircle);
    const { rule } = await attach({ kind: 'key' });
    isJudged = await judge.isAble(source(), `${host}/team`, rule);
  });
  after(async () => {
    await registry.stop();
    await judge.close();
    if (isJudged) console.info(`      beside skopeo: ${JSON.stringify(counts)}`);
  });

  const source = (): string => `docker://${host}/team/app@${digest}`;

  /** Puts a signature of the image into the registry. Returns its parts, and the policy for skopeo. */
  async function attach(own: Case): Promise<{ rule: Json; layers: readonly Descriptor[]; payload: Buffer }> {
    const { kind, optional = 'null' } = own;
    const intermediate = await makeCertificate({
      name: 'CN=intermediate',
      by: root,
      extensions: authorityExtensions(0, [usages.code]),
      ...own.intermediate,
    });
    const key = own.key ?? own.leaf?.key ?? makeKey();
    const leaf = await makeCertificate({
      name: 'CN=leaf',
      by: intermediate,
      from: -60,
      // A certificate of Fulcio must be valid at the time of its entry only, and another one now.
      until: kind === 'pki' ? 86_400 : 540,
      extensions: signerExtensions(own.signer),
      ...(kind !== 'key' && { key }),
      ...own.leaf,
    });
    const name = own.name ?? `${host}/team/app:1.0`;
    const critical = {
      identity: { 'docker-reference': name },
      image: { 'docker-manifest-digest': digest },
      type: 'cosign container image signature',
    };
    const payload = Buffer.from(`{"critical":${JSON.stringify(critical)},"optional":${optional}}`);
    const algorithm = key.asymmetricKeyType === 'ed25519' || key.asymmetricKeyType === 'ed448' ? null : 'sha256';
    const signature = base64(own.sign?.(payload, key) ?? sign(algorithm, payload, key));
    const pem = kind === 'key' ? pemOf(key) : leaf.pem;
    const chain = own.chain === null ? undefined : (own.chain ?? ((a, b) => a + b))(intermediate.pem, root.pem);
    const right = {
      'dev.cosignproject.cosign/signature': signature,
      ...(kind !== 'pki' && {
        [setNotation]: makeEntry(logKey, { pem, signature, payload: String(payload) }, own.entry),
      }),
      ...(kind !== 'key' && { [certificateNotation]: pem }),
      ...(kind !== 'key' && chain !== undefined && { [chainNotation]: chain }),
    };
    const annotations = own.annotations?.(right) ?? right;
    const trust = {
      key: { keyData: base64(pemOf(key)) },
      fulcio: {
        fulcio: {
          caData: base64(root.pem),
          oidcIssuer: 'https://login.example.com',
          subjectEmail: 'signer@example.com',
        },
        rekorPublicKeyData: base64(pemOf(logKey)),
      },
      pki: { pki: { caRootsData: base64(root.pem), subjectEmail: 'signer@example.com' } },
    }[kind];
    const rule = { type: 'sigstoreSigned', ...trust, ...own.rule };
    const layer = { mediaType: 'application/vnd.dev.cosign.simplesigning.v1+json', size: payload.length, annotations };
    return {
      rule,
      payload,
      layers: putAttachment(payload, own.isUnsigned ? [] : [{ ...layer, digest: digestOf(payload) }]),
    };
  }

  function putAttachment(payload: Buffer, layers: readonly object[]): readonly Descriptor[] {
    const tag = `sha256-${hexOf(digest)}.sig`;
    registry.content.repositories.get('team/app')?.tags.delete(tag);
    if (layers.length === 0) return [];
    const contents = new TestContent();
    const config = makeBlob(Buffer.from('{"rootfs":{"type":"layers","diff_ids":[]}}'));
    contents.addBlob(config);
    contents.addBlob(makeBlob(payload));
    const manifest = {
      schemaVersion: 2,
      mediaType: mediaTypes.ociManifest,
      config: { mediaType: 'application/vnd.oci.image.config.v1+json', size: config.size, digest: config.digest },
      layers,
    };
    contents.addManifest('team/app', mediaTypes.ociManifest, manifest, tag);
    contents.addTo(registry.content);
    return parseManifest(Buffer.from(JSON.stringify(manifest)), 'the attachment').layers;
  }

  /** Converts a policy of skopeo to one of OpenShift, as the Machine Config Operator does the other way. */
  function toRootOfTrust(rule: Json): Json {
    const { keyData, rekorPublicKeyData: rekorKeyData, fulcio, pki } = rule as Record<string, Json | undefined>;
    if (fulcio) {
      const { caData, oidcIssuer, subjectEmail } = fulcio;
      const fulcioSubject = { oidcIssuer, signedEmail: subjectEmail };
      return {
        policyType: 'FulcioCAWithRekor',
        fulcioCAWithRekor: { fulcioCAData: caData, rekorKeyData, fulcioSubject },
      };
    }
    if (!pki) return { policyType: 'PublicKey', publicKey: { keyData, rekorKeyData } };
    const { caRootsData, caIntermediatesData, subjectEmail, subjectHostname } = pki;
    const pkiCertificateSubject = { email: subjectEmail, hostname: subjectHostname };
    return { policyType: 'PKI', pki: { caRootsData, caIntermediatesData, pkiCertificateSubject } };
  }

  const identities: Readonly<Record<string, Json>> = {
    matchRepository: { matchPolicy: 'MatchRepository' },
    exactRepository: { matchPolicy: 'ExactRepository', exactRepository: { repository: 'docker.io/team/app' } },
  };

  function expectVerdict(title: string, expected: string, make: () => Case): void {
    it(`${title}: ${expected}`, async () => {
      const own = make();
      const { rule, layers, payload } = await attach(own);
      const identity = (rule['signedIdentity'] as Json | undefined)?.['type'];
      const policy = readImagePolicy(
        {
          apiVersion: 'config.openshift.io/v1',
          kind: 'ClusterImagePolicy',
          metadata: { name: 'test' },
          spec: {
            scopes: [`${host}/team`],
            policy: {
              rootOfTrust: toRootOfTrust(rule),
              ...(typeof identity === 'string' && { signedIdentity: identities[identity] }),
            },
          },
        },
        'a test',
      );
      const image = { reference: { registry: host, repository: 'team/app' }, digest };
      const { outcome, reasons } = await evaluateImage(image, policy, layers, () => Promise.resolve(payload));
      expect(outcome, reasons.join('; ')).to.equal(expected);
      if (!isJudged) return;
      const isAccepted = await judge.accepts(source(), `${host}/team`, rule);
      if (own.isStricter) counts.stricter += 1;
      else counts[isAccepted ? 'accepted' : 'refused'] += 1;
      expect(isAccepted, `skopeo; ours: ${reasons.join('; ')}`).to.equal(own.isStricter ?? expected === 'verified');
    });
  }

  const accept = (title: string, make: () => Case): void => expectVerdict(title, 'verified', make);
  const refuse = (title: string, make: () => Case): void => expectVerdict(title, 'rejected', make);
  const miss = (title: string, make: () => Case): void => expectVerdict(title, 'missing', make);
  const rekorRule = (key: KeyObject = logKey): Json => ({ rekorPublicKeyData: base64(pemOf(key)) });

  describe('a key', () => {
    accept('ECDSA', () => ({ kind: 'key' }));
    accept('ECDSA in P1363 form', () => ({ kind: 'key', sign: plainForm }));
    accept('P1363 with zeros before', () => ({ kind: 'key', sign: (...args) => widen(plainForm(...args), 34) }));
    refuse('P1363 of more than 132 bytes', () => ({ kind: 'key', sign: (...args) => widen(plainForm(...args), 35) }));
    refuse('P1363 of an odd length', () => ({ kind: 'key', sign: (...args) => plainForm(...args).subarray(1) }));
    refuse('P1363 of another content', () => ({ kind: 'key', sign: (_, key) => plainForm(Buffer.from('x'), key) }));
    refuse('DER with a byte more', () => ({
      kind: 'key',
      sign: (payload, key) => Buffer.concat([sign('sha256', payload, key), Buffer.from([0])]),
    }));
    for (const namedCurve of ['secp224r1', 'P-384', 'P-521']) {
      accept(namedCurve, () => ({ kind: 'key', key: generateKeyPairSync('ec', { namedCurve }).privateKey }));
      accept(`${namedCurve} in P1363 form`, () => ({
        kind: 'key',
        key: generateKeyPairSync('ec', { namedCurve }).privateKey,
        sign: plainForm,
      }));
    }
    for (const namedCurve of ['secp256k1', 'brainpoolP256r1']) {
      refuse(namedCurve, () => ({ kind: 'key', key: generateKeyPairSync('ec', { namedCurve }).privateKey }));
    }
    accept('RSA of 1024 bits', () => ({
      kind: 'key',
      key: generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey,
    }));
    refuse('RSA of 768 bits', () => ({
      kind: 'key',
      key: generateKeyPairSync('rsa', { modulusLength: 768 }).privateKey,
    }));
    refuse('RSA-PSS', () => ({ kind: 'key', key: generateKeyPairSync('rsa-pss', { modulusLength: 2048 }).privateKey }));
    accept('Ed25519', () => ({ kind: 'key', key: generateKeyPairSync('ed25519').privateKey }));
    refuse('Ed448', () => ({ kind: 'key', key: generateKeyPairSync('ed448').privateKey }));
    refuse('garbage as a key', () => ({ kind: 'key', rule: { keyData: base64('garbage') } }));
    refuse('a private key', () => {
      const key = makeKey();
      return { kind: 'key', key, rule: { keyData: base64(key.export({ type: 'pkcs8', format: 'pem' })) } };
    });
    refuse('an empty key', () => ({ kind: 'key', rule: { keyData: '' } }));
    refuse('a certificate as a key', () => ({ kind: 'key', rule: { keyData: base64(root.pem) } }));
    refuse('garbage as a key, no signature', () => ({ kind: 'key', isUnsigned: true, rule: { keyData: base64('x') } }));
    for (const [time, isGood] of [
      ['1e30', false],
      ['9223372036854775808', false],
      ['-9223372036854775808', true],
      ['1e3', true],
    ] as const) {
      (isGood ? accept : refuse)(`the time ${time}`, () => ({ kind: 'key', optional: `{"timestamp":${time}}` }));
    }
    refuse('a number out of range', () => ({ kind: 'key', optional: '{"more":1e999}' }));
    refuse('10,001 levels', () => ({ kind: 'key', optional: `{"more":${'['.repeat(10_001)}${']'.repeat(10_001)}}` }));
    accept('index.docker.io for docker.io', () => ({
      kind: 'key',
      name: 'index.docker.io/team/app:1.0',
      rule: { signedIdentity: { type: 'exactRepository', dockerRepository: 'docker.io/team/app' } },
    }));
  });

  describe('a key and a Rekor log', () => {
    const rekor = (own: Partial<Case> = {}): Case => ({ kind: 'key', ...own, rule: { ...rekorRule(), ...own.rule } });
    accept('the right entry', () => rekor());
    miss('no signature', () => rekor({ isUnsigned: true }));
    refuse('no entry', () => rekor({ annotations: without(setNotation) }));
    refuse('another log', () => rekor({ rule: rekorRule(otherKey) }));
    refuse('a log with an RSA key', () =>
      rekor({ rule: rekorRule(generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey) }),
    );
    refuse('garbage as the key of the log', () => rekor({ rule: { rekorPublicKeyData: base64('garbage') } }));
    refuse('an entry about another key', () =>
      rekor({
        entry: {
          changeEntry: (text) =>
            text.replace(/"publicKey":\{"content":"[^"]*/, `"publicKey":{"content":"${base64(pemOf(otherKey))}`),
        },
      }),
    );
    accept('an entry of long ago', () => rekor({ entry: { time: 1 } }));
    const changes: readonly (readonly [string, 'verified' | 'rejected', EntryOptions, true?])[] = [
      ['another index after signing', 'rejected', { changeSigned: (text) => text.replace('42', '43') }],
      [
        'blanks and another order after signing',
        'verified',
        { change: (text) => JSON.stringify(reverse(JSON.parse(text)), null, 2) },
      ],
      ['a field more', 'rejected', { payload: { more: 1 } }],
      ['a field more outside', 'rejected', { change: (text) => text.replace('{', '{"more":1,') }],
      ['a field twice', 'rejected', { change: (text) => text.replace('{', '{"Payload":{},') }],
      ['no index', 'rejected', { payload: { logIndex: undefined } }],
      ['a time with a fraction', 'rejected', { time: 1.5 }],
      ['a time as a text', 'rejected', { time: String(now) }],
      ['a time of 1e30', 'rejected', { time: 1e30 }],
      ['an empty time', 'rejected', { payload: { integratedTime: null } }, true],
      ['a log ID that is a number', 'rejected', { payload: { logID: 1 } }],
      ['a body that is no base64', 'rejected', { payload: { body: '?' } }],
      ['another kind', 'rejected', { entry: { kind: 'rekord' } }],
      ['another version', 'rejected', { entry: { apiVersion: '0.0.2' } }],
      ['no version', 'rejected', { entry: { apiVersion: undefined } }],
      ['no content', 'rejected', { entry: { spec: {} } }],
      ['another field in the entry', 'verified', { entry: { more: 1 } }],
      ['the kind again in capitals', 'rejected', { entry: { KIND: 'rekord' } }],
      ['the kind in capitals only', 'rejected', { entry: { kind: undefined, KIND: 'hashedrekord' } }, true],
      ['another hash', 'rejected', { changeEntry: (text) => text.replace('sha256', 'sha512') }],
      ['another content', 'rejected', { changeEntry: (text) => text.replace(/"value":"[^"]{4}/, '"value":"0000') }],
      [
        'the hash in capitals',
        'verified',
        { changeEntry: (text) => text.replace(/"value":"[^"]*/, (all) => `"value":"${all.slice(9).toUpperCase()}`) },
      ],
      ['another signature', 'rejected', { changeEntry: (text) => text.replace('"content":"M', '"content":"N') }],
      ['an entry signed by another log', 'rejected', { key: otherKey }],
      ['no JSON', 'rejected', { change: () => 'entry' }],
      ['text after the end', 'rejected', { change: (text) => `${text} {}` }],
    ];
    for (const [title, expected, entry, isStricter] of changes) {
      expectVerdict(title, expected, () => rekor({ entry, ...(isStricter && { isStricter }) }));
    }
  });

  describe('Fulcio', () => {
    const fulcio = (own: Partial<Case> = {}): Case => ({ kind: 'fulcio', ...own });
    const trust = (own: Json = {}): Json => ({
      fulcio: {
        caData: base64(root.pem),
        oidcIssuer: 'https://login.example.com',
        subjectEmail: 'signer@example.com',
        ...own,
      },
    });
    accept('the right certificate and entry', () => fulcio());
    miss('no signature', () => fulcio({ isUnsigned: true }));
    accept('a certificate that has expired since', () =>
      fulcio({ leaf: { from: -3000, until: -2400 }, entry: { time: now - 2700 } }),
    );
    refuse('an entry after the certificate', () => fulcio({ entry: { time: now + 700 } }));
    refuse('an entry before the certificate', () => fulcio({ entry: { time: now - 100 } }));
    accept('an entry at its last second', () => fulcio({ entry: { time: now + 540 } }));
    accept('the issuer in the older form', () =>
      fulcio({ signer: { issuer: 'https://login.example.com', encodedIssuer: null } }),
    );
    accept('the issuer in both forms', () => fulcio({ signer: { issuer: 'https://login.example.com' } }));
    refuse('two different issuers', () => fulcio({ signer: { issuer: 'https://other.example.com' } }));
    refuse('no issuer', () => fulcio({ signer: { encodedIssuer: null } }));
    refuse('another issuer', () => fulcio({ signer: { encodedIssuer: 'https://other.example.com' } }));
    refuse('an issuer that is no text', () => fulcio({ signer: { encodedIssuer: Buffer.from([2, 1, 1]) } }));
    refuse('an issuer with trailing bytes', () =>
      fulcio({
        signer: { encodedIssuer: Buffer.concat([Buffer.from([0x0c, 25]), Buffer.from('https://login.example.com!')]) },
      }),
    );
    refuse('another address', () => fulcio({ signer: { emails: ['other@example.com'] } }));
    refuse('the address in capitals', () => fulcio({ signer: { emails: ['Signer@example.com'] } }));
    accept('two addresses', () => fulcio({ signer: { emails: ['other@example.com', 'signer@example.com'] } }));
    refuse('no address', () => fulcio({ signer: { emails: [] } }));
    refuse('the address as a host', () => fulcio({ signer: { emails: [], hostnames: ['signer.example.com'] } }));
    refuse('no entry', () => fulcio({ annotations: without(setNotation) }));
    refuse('no certificate', () => fulcio({ annotations: without(certificateNotation) }));
    refuse('no chain', () => fulcio({ annotations: without(chainNotation) }));
    refuse('an empty chain', () => fulcio({ chain: () => '' }));
    refuse('a chain without the root', () => fulcio({ chain: (a) => a }));
    refuse('a chain that is garbage', () => fulcio({ chain: () => 'garbage' }));
    refuse('a chain with text after it', () => fulcio({ chain: (a, b) => `${a}${b}text` }));
    accept('a chain with the intermediate twice', () => fulcio({ chain: (a, b) => a + a + b }));
    accept('a certificate by the root itself, no chain', () => fulcio({ leaf: { by: root }, chain: null }));
    refuse('two certificates', () =>
      fulcio({ annotations: (all) => ({ ...all, [certificateNotation]: all[certificateNotation]! + root.pem }) }),
    );
    refuse('an empty line after the certificate', () =>
      fulcio({ annotations: (all) => ({ ...all, [certificateNotation]: `${all[certificateNotation]}\n` }) }),
    );
    refuse('another certificate than in the entry', () =>
      fulcio({ annotations: (all) => ({ ...all, [certificateNotation]: root.pem }) }),
    );
    refuse('another root of the same name', () => fulcio({ intermediate: { by: otherRoot } }));
    refuse('another root in the policy', () => fulcio({ rule: trust({ caData: base64(otherRoot.pem) }) }));
    accept('two roots in the policy', () =>
      fulcio({ rule: trust({ caData: base64(`# roots\n${otherRoot.pem}\n${root.pem}`) }) }),
    );
    accept('an intermediate among the roots of the policy', () =>
      fulcio({ leaf: { by: middle }, chain: null, rule: trust({ caData: base64(middle.pem) }) }),
    );
    refuse('garbage as the root', () => fulcio({ rule: trust({ caData: base64('garbage') }) }));
    accept('garbage before the root', () => fulcio({ rule: trust({ caData: base64(`garbage\n${root.pem}`) }) }));
    refuse('no issuer in the policy', () => fulcio({ rule: trust({ oidcIssuer: '' }) }));
    refuse('no address in the policy', () => fulcio({ rule: trust({ subjectEmail: '' }) }));
    refuse('no log in the policy', () => fulcio({ rule: { rekorPublicKeyData: undefined } }));
    refuse('another log in the policy', () => fulcio({ rule: rekorRule(otherKey) }));
    refuse('a signature by another key', () => fulcio({ sign: (payload) => sign('sha256', payload, otherKey) }));
    refuse('a certificate for servers', () => fulcio({ signer: { usages: [usages.server] } }));
    accept('a certificate for any use', () => fulcio({ signer: { usages: [usages.any] } }));
    accept('a certificate without uses', () => fulcio({ signer: { usages: null } }));
    refuse('an intermediate for servers', () =>
      fulcio({ intermediate: { extensions: authorityExtensions(0, [usages.server]) } }),
    );
    accept('an intermediate without uses', () => fulcio({ intermediate: { extensions: authorityExtensions(0) } }));
    refuse('an intermediate that is no authority', () => fulcio({ intermediate: { extensions: [] } }));
    refuse('an intermediate that may not sign certificates', () =>
      fulcio({
        intermediate: {
          extensions: [
            new x509.BasicConstraintsExtension(true, 0, true),
            new x509.KeyUsagesExtension(x509.KeyUsageFlags.digitalSignature, true),
          ],
        },
      }),
    );
    refuse('an intermediate that has expired', () => fulcio({ intermediate: { until: -1000 } }));
    refuse('an intermediate of SHA-1', () => fulcio({ intermediate: { hash: 'SHA-1' } }));
    refuse('a certificate of SHA-1', () => fulcio({ leaf: { hash: 'SHA-1' } }));
    refuse('an unknown critical extension', () =>
      fulcio({ signer: { more: [new x509.Extension('1.2.3.4', true, new Uint8Array([5, 0]))] } }),
    );
    accept('an unknown extension', () =>
      fulcio({ signer: { more: [new x509.Extension('1.2.3.4', false, new Uint8Array([5, 0]))] } }),
    );
    refuse('an extension twice', () =>
      fulcio({ signer: { more: [1, 2].map(() => new x509.Extension('1.2.3.4', false, new Uint8Array([5, 0]))) } }),
    );
    refuse('a certificate that signed itself', () => fulcio({ leaf: { by: undefined } }));
    for (const type of ['rsa', 'ed25519'] as const) {
      accept(`a certificate with a key of ${type}`, () =>
        fulcio({
          key:
            type === 'rsa'
              ? generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey
              : generateKeyPairSync('ed25519').privateKey,
        }),
      );
    }
    refuse('a certificate with a key of secp256k1', () =>
      fulcio({ key: generateKeyPairSync('ec', { namedCurve: 'secp256k1' }).privateKey }),
    );
    refuse('another repository', () => fulcio({ name: 'quay.io/team/other:1' }));
  });

  describe('PKI', () => {
    const pki = (own: Partial<Case> = {}): Case => ({ kind: 'pki', ...own });
    const trust = (own: Json): Json => ({
      pki: { caRootsData: base64(root.pem), subjectEmail: 'signer@example.com', ...own },
    });
    const byHost = (subjectHostname: string, own: Json = {}): Json => ({
      pki: { caRootsData: base64(root.pem), subjectHostname, ...own },
    });
    accept('the right certificate', () => pki());
    miss('no signature', () => pki({ isUnsigned: true }));
    refuse('no certificate', () => pki({ annotations: without(certificateNotation) }));
    refuse('no chain', () => pki({ chain: null }));
    refuse('a certificate that has expired', () => pki({ leaf: { until: -10 } }));
    refuse('a certificate of tomorrow', () => pki({ leaf: { from: 43_200, until: 86_400 } }));
    accept('an intermediate of the policy', () =>
      pki({ leaf: { by: middle }, chain: null, rule: trust({ caIntermediatesData: base64(middle.pem) }) }),
    );
    refuse('an intermediate of the policy only', () =>
      pki({
        leaf: { by: middle },
        chain: null,
        rule: trust({ caRootsData: base64(otherRoot.pem), caIntermediatesData: base64(middle.pem) }),
      }),
    );
    refuse('another address', () => pki({ signer: { emails: ['other@example.com'] } }));
    refuse('another root', () => pki({ intermediate: { by: otherRoot } }));
    refuse('garbage as the root', () => pki({ rule: trust({ caRootsData: base64('garbage') }) }));
    refuse('garbage as the intermediate', () => pki({ rule: trust({ caIntermediatesData: base64('garbage') }) }));
    refuse('no subject in the policy', () => pki({ rule: trust({ subjectEmail: undefined }) }));
    refuse('a certificate for servers', () => pki({ signer: { usages: [usages.server] } }));
    refuse('a signature by another key', () => pki({ sign: (payload) => sign('sha256', payload, otherKey) }));
    accept('a certificate by the root itself', () => pki({ leaf: { by: root }, chain: null }));
    refuse('a root that allows no intermediate', () =>
      pki({ intermediate: { by: shortRoot }, rule: trust({ caRootsData: base64(shortRoot.pem) }) }),
    );
    refuse('a chain in which each may have issued each other', () =>
      pki({ leaf: { by: circle[0] }, chain: () => [...circle, root].map(({ pem }) => pem).join('') }),
    );
    const hosts: readonly (readonly [string, string, boolean])[] = [
      ['build.example.com', 'build.example.com', true],
      ['Build.Example.com', 'build.example.com', true],
      ['*.example.com', 'build.example.com', true],
      ['*.example.com', 'a.build.example.com', false],
      ['*.example.com', '*.example.com', true],
      ['build.example.com', '*.example.com', false],
      ['b*.example.com', 'build.example.com', false],
      ['build.*.com', 'build.example.com', false],
      ['other.example.com', 'build.example.com', false],
      ['*', 'example', false],
      ['*.com', 'example.com', true],
    ];
    for (const [name, wanted, isGood] of hosts) {
      (isGood ? accept : refuse)(`a certificate for ${name}, wanted ${wanted}`, () =>
        pki({ signer: { hostnames: [name] }, rule: byHost(wanted) }),
      );
    }
    refuse('the host, and another address', () =>
      pki({
        signer: { hostnames: ['a.example.com'], emails: ['b@example.com'] },
        rule: byHost('a.example.com', { subjectEmail: 'c@example.com' }),
      }),
    );
    accept('the host and the address', () =>
      pki({
        signer: { hostnames: ['a.example.com'] },
        rule: byHost('a.example.com', { subjectEmail: 'signer@example.com' }),
      }),
    );
    refuse('an authority with name constraints', () =>
      pki({
        isStricter: true,
        intermediate: {
          extensions: [
            ...authorityExtensions(0),
            // permitted: email example.com
            new x509.Extension(
              '2.5.29.30',
              true,
              new Uint8Array(Buffer.from('3011a00f300d810b6578616d706c652e636f6d', 'hex')),
            ),
          ],
        },
      }),
    );
  });
});

function reverse(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, each]) => [key, reverse(each)]),
  );
}
