import { readSmallFile } from '#content/files';
import { messageOf, PluginError } from '#errors';
import type { ImagePolicy } from './imagePolicy.ts';
import { readPolicyKey } from './trustRoot.ts';

/** The SHA-256 fingerprints of the public keys (SPKI) in OpenShift’s own policies: Red Hat’s release key 3 of 2024. */
export const releaseKeys: ReadonlyMap<string, string> = new Map([
  ['ba9d26350d78893a20f337e2153a113108bfcf064085afaee60d446e63405576', 'Red Hat release key 3'],
]);

/** The keys that the policies of a release are expected to have: names of keys by fingerprints. */
export type ExpectedKeys = ReadonlyMap<string, string>;

/** A key of 4,096 bits has 800 bytes. */
const fileLimit = 64 * 1024;

/**
 * Returns Red Hat’s keys and the keys in some files. Throws `not-found`, `not-readable`, `too-large` and
 * `invalid-file`.
 */
export async function loadExpectedKeys(files: readonly string[]): Promise<ExpectedKeys> {
  const own = files.map(async (file) => {
    const pem = await readSmallFile(file, fileLimit);
    try {
      return [readPolicyKey(pem).fingerprint, `the key in ${file}`] as const;
    } catch (cause) {
      throw new PluginError('invalid-file', `${file} has no public key: ${messageOf(cause)}`, {
        hint: 'The file must have one RSA, ECDSA or Ed25519 key in PEM form: -----BEGIN PUBLIC KEY-----.',
        cause,
      });
    }
  });
  return new Map([...releaseKeys, ...(await Promise.all(own))]);
}

/** Returns the name of the key of a policy; undefined for a key that is not expected. */
export function nameKey({ trust }: Pick<ImagePolicy, 'trust'>, expected: ExpectedKeys): string | undefined {
  return trust.kind === 'key' ? expected.get(trust.key.fingerprint) : undefined;
}

/**
 * Returns warnings of policies with a key that is not expected. It is no error, because the GPG signature of the
 * release covers its policies: Red Hat may change the key.
 */
export function listOtherKeys(results: readonly { readonly policy: ImagePolicy }[], expected: ExpectedKeys): string[] {
  return [...new Set(results.map(({ policy }) => policy))].flatMap((policy) => {
    const { name, trust } = policy;
    if (trust.kind !== 'key' || nameKey(policy, expected) !== undefined) return [];
    return [`the image policy ${name} of the release has an unknown key: SHA256:${trust.key.fingerprint}`];
  });
}
