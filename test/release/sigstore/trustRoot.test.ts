import { generateKeyPairSync, sign } from 'node:crypto';
import type { EntryOptions } from '../../support/release/sigstoreSigner.ts';
import { makeKey, now } from '../../support/x509.ts';
import { base64, pemOf, plainForm, setNotation, usePolicyCases, widen, without, type Case } from './policyCases.ts';

describe('a root of trust', () => {
  const { expectVerdict, accept, refuse, miss, rekorRule, otherKey, authorities } = usePolicyCases();

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
    refuse('a certificate as a key', () => ({ kind: 'key', rule: { keyData: base64(authorities().root.pem) } }));
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
});

function reverse(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([key, each]) => [key, reverse(each)]),
  );
}
