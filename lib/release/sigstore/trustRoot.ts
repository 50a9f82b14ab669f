import { messageOf } from '#errors';
import { fieldsAt, textOf } from '#fields';
import { readPolicyKey, type PolicyKey } from './policyKey.ts';
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
