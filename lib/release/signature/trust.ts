import type { FetchFile } from '#content/http';
import type { Digest } from '#content/oci';
import type { Context } from '#context';
import { PluginError } from '#errors';
import type { Keyring } from './keyring.ts';
import { verifySignature, type RejectedSignature, type VerifiedSignature } from './signature.ts';
import { findSignatures, type StoreAnswer } from './signatureStore.ts';

/** The keys and signatures for judging a release. */
export interface TrustOptions {
  readonly keyring: Keyring;
  /** Available signatures, from a `config` folder or a bundle. If one of them is valid, no store is asked. */
  readonly known?: readonly Buffer[];
  /** Signature stores: http(s) or file URLs, or paths of folders. */
  readonly stores?: readonly string[];
  readonly fetchFile: FetchFile;
}

/** The signatures of one digest, and their verdicts. */
export interface SignatureFindings {
  /**
   * Good signatures by trusted keys, each once: first the available ones, then those of the stores in the order of the
   * stores.
   */
  readonly good: readonly VerifiedSignature[];
  /** Good signatures by keys that are not trusted. */
  readonly untrusted: readonly VerifiedSignature[];
  /** The other signatures, and the reason why each is rejected. */
  readonly rejected: readonly RejectedSignature[];
  /** The responses of the stores; empty if none was asked. */
  readonly answers: readonly StoreAnswer[];
}

/**
 * Finds and judges the signatures of a release, and requires none. Used for the images in a multi-architecture release,
 * which need no signatures of their own. Throws only `usage` and `interrupted`.
 */
export async function collectSignatures(
  digest: Digest,
  options: TrustOptions,
  context: Context,
): Promise<SignatureFindings> {
  const { keyring, known: availableSignatures = [], stores = [], fetchFile } = options;
  const atHand = await classifySignatures(availableSignatures, digest, keyring);
  if (atHand.good.length > 0) return { ...atHand, answers: [] };
  const answers = await findSignatures(digest, stores, fetchFile, context);
  for (const { problem } of answers) if (problem) context.log('debug', `signature store: ${problem.message}`);
  const all = [...availableSignatures, ...answers.flatMap(({ signatures }) => signatures)];
  return { ...(await classifySignatures(all, digest, keyring)), answers };
}

/**
 * Finds all signatures of a release by trusted keys. Their order does not depend on which store answered first. Throws
 * `unsigned` if there is no signature, and `untrusted` if none is good.
 */
export async function verifyRelease(
  digest: Digest,
  options: TrustOptions,
  context: Context,
): Promise<readonly VerifiedSignature[]> {
  const findings = await collectSignatures(digest, options, context);
  if (findings.good.length > 0) return findings.good;
  if (findings.untrusted.length > 0 || findings.rejected.length > 0) throw untrusted(digest, findings, options.keyring);
  throw unsigned(digest, findings.answers);
}

async function classifySignatures(
  signatures: readonly Buffer[],
  digest: Digest,
  keyring: Keyring,
): Promise<Omit<SignatureFindings, 'answers'>> {
  const good: VerifiedSignature[] = [];
  const untrusted: VerifiedSignature[] = [];
  const rejected: RejectedSignature[] = [];
  // Two stores usually have the same signatures.
  const distinct = new Map(signatures.map((bytes) => [bytes.toString('base64'), bytes])).values();
  for (const bytes of distinct) {
    const verdict = await verifySignature(bytes, digest, keyring.trusted);
    const second = verdict.good ? verdict : await verifySignature(bytes, digest, keyring.untrusted);
    if (verdict.good) good.push(verdict);
    else if (second.good) untrusted.push(second);
    else rejected.push(verdict);
  }
  return { good, untrusted, rejected };
}

function untrusted(digest: Digest, findings: SignatureFindings, keyring: Keyring): PluginError {
  const [signature] = findings.untrusted;
  if (signature) {
    const { fingerprint, userId } = signature;
    const message = `${digest} is signed by ${fingerprint} (${userId}), a key that is not trusted`;
    const hint =
      `Get the fingerprint from the owner of the key by another way. Trust ${fingerprint} only if all digits ` +
      'match.';
    return new PluginError('untrusted', message, { hint, settings: ['trustFingerprint'] });
  }
  const reasons = [...new Set(findings.rejected.map(({ reason }) => `the signature ${reason}`))];
  return new PluginError('untrusted', `cannot verify ${digest}: ${reasons.join('; ')}`, {
    ...adviseOn(findings.rejected, keyring),
  });
}

type Advice = Pick<ConstructorParameters<typeof PluginError>[2] & object, 'hint' | 'settings'>;

function adviseOn(rejected: readonly RejectedSignature[], keyring: Keyring): Advice {
  const kinds = rejected.map(({ kind }) => kind);
  if (kinds.includes('expired')) {
    const hint = 'Get a newer signature from the signer of the release, and check the clock of this machine.';
    return { hint, settings: ['signatureStore'] };
  }
  if (kinds.includes('unsupported')) {
    return {
      hint:
        'Sign the release with an RSA key, or an ECDSA key on P-256, P-384 or P-521, and SHA-256 or longer: ' +
        'clusters verify no others.',
    };
  }
  if (keyring.trusted.length === 0) {
    return { hint: 'No trusted key was found. Name a file that contains one.', settings: ['signatureKeyring'] };
  }
  return {
    hint: 'Trust the key that signs such releases. If it is trusted already, do not use this release.',
    settings: ['signatureKeyring', 'trustFingerprint'],
  };
}

function unsigned(digest: Digest, answers: readonly StoreAnswer[]): PluginError {
  const asked = answers.map(({ store, problem }) => problem?.message ?? `${store} has no signature`);
  const failed = answers.filter(({ problem }) => problem).length;
  const where = asked.length > 0 ? asked.join('; ') : 'no signature store is known';
  const offline = failed > 0 && failed === answers.length;
  return new PluginError('unsigned', `no signature of ${digest} was found: ${where}`, {
    hint: offline
      ? 'No signature store could be reached. Without a network, use a copy: a folder with sha256=<digest>/signature-1.'
      : 'Official releases are signed; CI and nightly builds are not. Use another signature store, or allow ' +
        'unsigned releases.',
    settings: ['signatureStore', 'allowUnsigned'],
    cause: answers.find(({ problem }) => problem)?.problem,
  });
}
