import 'reflect-metadata';
import { generateKeyPairSync, sign } from 'node:crypto';
import * as x509 from '@peculiar/x509';
import { authorityExtensions, now, usages } from '../../support/x509.ts';
import {
  base64,
  certificateNotation,
  chainNotation,
  setNotation,
  usePolicyCases,
  without,
  type Case,
  type Json,
} from './policyCases.ts';

describe('the certificates of a signer', () => {
  const { accept, refuse, miss, rekorRule, otherKey, authorities } = usePolicyCases();

  describe('Fulcio', () => {
    const fulcio = (own: Partial<Case> = {}): Case => ({ kind: 'fulcio', ...own });
    const trust = (own: Json = {}): Json => ({
      fulcio: {
        caData: base64(authorities().root.pem),
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
    accept('a certificate by the root itself, no chain', () =>
      fulcio({ leaf: { by: authorities().root }, chain: null }),
    );
    refuse('two certificates', () =>
      fulcio({
        annotations: (all) => ({ ...all, [certificateNotation]: all[certificateNotation]! + authorities().root.pem }),
      }),
    );
    refuse('an empty line after the certificate', () =>
      fulcio({ annotations: (all) => ({ ...all, [certificateNotation]: `${all[certificateNotation]}\n` }) }),
    );
    refuse('another certificate than in the entry', () =>
      fulcio({ annotations: (all) => ({ ...all, [certificateNotation]: authorities().root.pem }) }),
    );
    refuse('another root of the same name', () => fulcio({ intermediate: { by: authorities().otherRoot } }));
    refuse('another root in the policy', () =>
      fulcio({ rule: trust({ caData: base64(authorities().otherRoot.pem) }) }),
    );
    accept('two roots in the policy', () =>
      fulcio({ rule: trust({ caData: base64(`# roots\n${authorities().otherRoot.pem}\n${authorities().root.pem}`) }) }),
    );
    accept('an intermediate among the roots of the policy', () =>
      fulcio({
        leaf: { by: authorities().middle },
        chain: null,
        rule: trust({ caData: base64(authorities().middle.pem) }),
      }),
    );
    refuse('garbage as the root', () => fulcio({ rule: trust({ caData: base64('garbage') }) }));
    accept('garbage before the root', () =>
      fulcio({ rule: trust({ caData: base64(`garbage\n${authorities().root.pem}`) }) }),
    );
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
      pki: { caRootsData: base64(authorities().root.pem), subjectEmail: 'signer@example.com', ...own },
    });
    const byHost = (subjectHostname: string, own: Json = {}): Json => ({
      pki: { caRootsData: base64(authorities().root.pem), subjectHostname, ...own },
    });
    accept('the right certificate', () => pki());
    miss('no signature', () => pki({ isUnsigned: true }));
    refuse('no certificate', () => pki({ annotations: without(certificateNotation) }));
    refuse('no chain', () => pki({ chain: null }));
    refuse('a certificate that has expired', () => pki({ leaf: { until: -10 } }));
    refuse('a certificate of tomorrow', () => pki({ leaf: { from: 43_200, until: 86_400 } }));
    accept('an intermediate of the policy', () =>
      pki({
        leaf: { by: authorities().middle },
        chain: null,
        rule: trust({ caIntermediatesData: base64(authorities().middle.pem) }),
      }),
    );
    refuse('an intermediate of the policy only', () =>
      pki({
        leaf: { by: authorities().middle },
        chain: null,
        rule: trust({
          caRootsData: base64(authorities().otherRoot.pem),
          caIntermediatesData: base64(authorities().middle.pem),
        }),
      }),
    );
    refuse('another address', () => pki({ signer: { emails: ['other@example.com'] } }));
    refuse('another root', () => pki({ intermediate: { by: authorities().otherRoot } }));
    refuse('garbage as the root', () => pki({ rule: trust({ caRootsData: base64('garbage') }) }));
    refuse('garbage as the intermediate', () => pki({ rule: trust({ caIntermediatesData: base64('garbage') }) }));
    refuse('no subject in the policy', () => pki({ rule: trust({ subjectEmail: undefined }) }));
    refuse('a certificate for servers', () => pki({ signer: { usages: [usages.server] } }));
    refuse('a signature by another key', () => pki({ sign: (payload) => sign('sha256', payload, otherKey) }));
    accept('a certificate by the root itself', () => pki({ leaf: { by: authorities().root }, chain: null }));
    refuse('a root that allows no intermediate', () =>
      pki({
        intermediate: { by: authorities().shortRoot },
        rule: trust({ caRootsData: base64(authorities().shortRoot.pem) }),
      }),
    );
    refuse('a chain in which each may have issued each other', () =>
      pki({
        leaf: { by: authorities().circle[0] },
        chain: () => [...authorities().circle, authorities().root].map(({ pem }) => pem).join(''),
      }),
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
