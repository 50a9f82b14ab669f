import { constants, createHash, createPublicKey, verify, type KeyObject } from 'node:crypto';
import { messageOf } from '#errors';
import { fieldsAt, textOf } from '#fields';
import { decodeBase64 } from './strictJson.ts';

/** Certificate authorities in PEM form. */
export interface Authorities {
  readonly roots: string;
  readonly intermediates: string;
}

/** What the signatures of a policy are checked against. */
export type TrustRoot =
  | { readonly kind: 'key'; readonly key: PolicyKey; readonly rekor?: PolicyKey }
  | {
      readonly kind: 'fulcio';
      readonly authorities: Authorities;
      readonly rekor: PolicyKey;
      readonly issuer: string;
      readonly email: string;
    }
  | {
      readonly kind: 'pki';
      readonly authorities: Authorities;
      /** The addresses that the certificate must have: at least one of them. */
      readonly email: string | undefined;
      readonly hostname: string | undefined;
    }
  /** Nodes refuse every image of the policy, for this reason. */
  | { readonly kind: 'invalid'; readonly reason: string };

/**
 * Reads `rootOfTrust` of a policy (openshift/api, config/v1/types_image_policy.go), with the rules of containers/image
 * (signature/policy_config_sigstore.go) for what it requires. Never throws.
 */
export function readTrustRoot(root: unknown): TrustRoot {
  const { policyType } = fieldsAt(root);
  try {
    if (policyType === 'PublicKey') return readKeyTrust(root);
    if (policyType === 'FulcioCAWithRekor') return readFulcioTrust(root);
    if (policyType === 'PKI') return readPkiTrust(root);
    return { kind: 'invalid', reason: `its root of trust is ${String(policyType)}, which is unknown` };
  } catch (error) {
    return { kind: 'invalid', reason: messageOf(error) };
  }
}

function readKeyTrust(root: unknown): TrustRoot {
  const { keyData, rekorKeyData } = fieldsAt(root, 'publicKey');
  const key = readKey(keyData, 'its key');
  // The Machine Config Operator leaves an empty one out.
  return isEmpty(rekorKeyData) ? { kind: 'key', key } : { kind: 'key', key, rekor: readRekorKey(rekorKeyData) };
}

function readFulcioTrust(root: unknown): TrustRoot {
  const { fulcioCAData, rekorKeyData } = fieldsAt(root, 'fulcioCAWithRekor');
  const { oidcIssuer, signedEmail } = fieldsAt(root, 'fulcioCAWithRekor', 'fulcioSubject');
  const authorities = { roots: readText(fulcioCAData, 'its Fulcio CA'), intermediates: '' };
  const rekor = readRekorKey(rekorKeyData);
  const [issuer, email] = [textOf(oidcIssuer), textOf(signedEmail)];
  if (issuer === undefined || email === undefined) throw new TypeError('it names no OIDC issuer or no email address');
  return { kind: 'fulcio', authorities, rekor, issuer, email };
}

function readPkiTrust(root: unknown): TrustRoot {
  const { caRootsData, caIntermediatesData } = fieldsAt(root, 'pki');
  const subject = fieldsAt(root, 'pki', 'pkiCertificateSubject');
  const authorities = {
    roots: readText(caRootsData, 'its CA'),
    intermediates: isEmpty(caIntermediatesData) ? '' : readText(caIntermediatesData, 'its intermediate CA'),
  };
  const email = textOf(subject['email']);
  const hostname = textOf(subject['hostname']);
  if (email === undefined && hostname === undefined) throw new TypeError('it names no email address or host name');
  return { kind: 'pki', authorities, email, hostname };
}

const isEmpty = (data: unknown): boolean => data === undefined || data === null || data === '';

function readText(data: unknown, what: string): string {
  if (isEmpty(data)) throw new TypeError(`${what} is missing`);
  const bytes = decodeBase64(data);
  if (!bytes) throw new TypeError(`${what} is not base64`);
  return bytes.toString('latin1');
}

function readKey(data: unknown, what: string): PolicyKey {
  const pem = Buffer.from(readText(data, what), 'latin1');
  try {
    return readPolicyKey(pem);
  } catch (error) {
    throw new TypeError(`${what} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

function readRekorKey(data: unknown): PolicyKey {
  const rekorKey = readKey(data, 'its Rekor key');
  if (rekorKey.key.asymmetricKeyType !== 'ec') throw new TypeError('its Rekor key is not an ECDSA key');
  return rekorKey;
}

/** A public key of a policy, with the SHA-256 of its SPKI form in hex. */
export interface PolicyKey {
  readonly key: KeyObject;
  readonly fingerprint: string;
}

/** The elliptic curves of Go’s crypto/x509. */
const curves = ['secp224r1', 'prime256v1', 'secp384r1', 'secp521r1'];

/** Reads a public key in PEM form. Throws a TypeError for a key that nodes refuse, a certificate and a private key. */
export function readPolicyKey(pem: Buffer): PolicyKey {
  // createPublicKey derives a key from these too. Nodes refuse them, and with them all images of the policy.
  const [, label = 'text without PEM'] = /-----BEGIN ([^-]+)-----/.exec(pem.toString('latin1')) ?? [];
  if (!/^(?:RSA )?PUBLIC KEY$/.test(label)) throw new TypeError(`it is ${label} instead of PUBLIC KEY`);
  const key = createPublicKey({ key: pem, format: 'pem' });
  requireUsableKey(key);
  const spki = key.export({ type: 'spki', format: 'der' });
  return { key, fingerprint: createHash('sha256').update(spki).digest('hex') };
}

/**
 * Throws a TypeError for a public key that nodes cannot check signatures with (Go’s crypto/x509 and crypto/rsa;
 * sigstore/sigstore, pkg/signature/verifier.go).
 */
export function requireUsableKey({ asymmetricKeyType: type, asymmetricKeyDetails: details }: KeyObject): void {
  if (type === 'rsa') {
    const { modulusLength = 0, publicExponent = 0n } = details ?? {};
    if (modulusLength < 1024) throw new TypeError(`an RSA key of ${modulusLength} bits is too short`);
    if (publicExponent < 2n || publicExponent >= 2n ** 31n) throw new TypeError('the exponent of its key is too large');
  } else if (type === 'ec') {
    const curve = details?.namedCurve ?? 'unnamed';
    if (!curves.includes(curve)) throw new TypeError(`a key on the curve ${curve} is not supported`);
  } else if (type !== 'ed25519') {
    throw new TypeError(`a key of type ${String(type)} is not supported`);
  }
}

/** Returns whether a content is signed by an RSA or ECDSA key, with SHA-256. */
export function isSignedWith(key: KeyObject, content: Buffer, signature: Buffer, plainForm = false): boolean {
  try {
    const options = plainForm ? { dsaEncoding: 'ieee-p1363' as const } : { padding: constants.RSA_PKCS1_PADDING };
    return verify('sha256', content, { key, ...options }, signature);
  } catch {
    // The signature is malformed.
    return false;
  }
}
