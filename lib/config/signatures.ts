import { hexOf, isDigest, type Digest } from '#content/oci';
import { PluginError } from '#errors';
import type { SignedRelease } from '#release/load';
import { isVersion } from '#release/version';
import { type Written, type ConfigManifest, readObjects, type UnknownObject } from './manifest.ts';
import { mirrorSetManifests, type Mirrors } from './mirrorSets.ts';
import { updateServiceManifests, type UpdateServiceOptions } from './updateService.ts';

/** Signatures by the digest of their release, each list in the order of the numbers. */
export type SignaturesByDigest = ReadonlyMap<Digest, readonly Buffer[]>;

/** The label by which the cluster finds signatures in `openshift-config-managed`. */
export const signatureLabel = 'release.openshift.io/verification-signatures';

const annotations = {
  release: 'upgrade-bundle.openshift.io/release',
  signedBy: 'upgrade-bundle.openshift.io/signed-by',
} as const;

/**
 * Returns the ConfigMap by which the cluster verifies a release without a signature store. The cluster-version-operator
 * reads the ConfigMaps of library-go's `GetSignaturesAsConfigmap`; this one has the same name, so either replaces the
 * other. `signer` is the fingerprint of the key. `version` is left out if it is unknown. The signatures keep their
 * order.
 */
export function signatureConfigMap(
  digest: Digest,
  signatures: readonly Uint8Array[],
  { version, signer }: { version?: string; signer: string },
): ConfigManifest {
  const name = `sha256-${hexOf(digest)}`;
  const data = signatures.map(
    (bytes, index) => [`${name}-${index + 1}`, Buffer.from(bytes).toString('base64')] as const,
  );
  return {
    path: `config/signature/sha256/${hexOf(digest).slice(0, 16)}.yaml`,
    object: {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: {
        name,
        namespace: 'openshift-config-managed',
        labels: { [signatureLabel]: '' },
        annotations: {
          ...(version !== undefined && { [annotations.release]: version }),
          [annotations.signedBy]: signer,
        },
      },
      binaryData: Object.fromEntries(data),
    } satisfies Written<'ConfigMap'>,
  };
}

/**
 * Reads the signatures in a YAML or JSON text of this program, `oc adm release mirror`, `oc-mirror` or `oc get -o
 * yaml`. The text may have several documents, lists, and signatures of several releases. Empty for a text without such
 * a ConfigMap. Throws `invalid-file` with `where`.
 */
export function readSignatures(text: string, where: string): SignaturesByDigest {
  return signaturesIn(readObjects(text, where), where);
}

/** Does the same as readSignatures for parsed objects. */
export function signaturesIn(objects: readonly UnknownObject[], where: string): SignaturesByDigest {
  const entries = objects
    .filter(isSignatureConfigMap)
    .flatMap(({ binaryData }) => Object.entries((binaryData ?? {}) as Readonly<Record<string, unknown>>));
  const numbered = entries.flatMap(([key, value]) => {
    const match = /^sha256-([0-9a-f]{64})(.*)$/.exec(key);
    const digest = `sha256:${match?.[1] ?? ''}`;
    return match && isDigest(digest)
      ? [{ digest, suffix: match[2] ?? '', bytes: decode(value, `${key} in ${where}`) }]
      : [];
  });
  numbered.sort((a, b) => a.suffix.localeCompare(b.suffix, 'en', { numeric: true }));
  return group(numbered);
}

/**
 * Collects the signatures in the texts of a `config` folder, each signature once. Throws `invalid-file` with the file.
 */
export function readAllSignatures(files: Iterable<{ path: string; text: string }>): SignaturesByDigest {
  return mergeSignatures([...files].map(({ path, text }) => readSignatures(text, path)));
}

/** Returns the release version in the annotations of signatures; undefined if there is none. */
export function annotatedVersion({ metadata }: UnknownObject): string | undefined {
  const { annotations: written } = (metadata ?? {}) as { annotations?: Readonly<Record<string, unknown>> | null };
  const version = written?.[annotations.release];
  return typeof version === 'string' && isVersion(version) ? version : undefined;
}

/** Merges signatures from several sources, each signature once. */
export function mergeSignatures(sets: readonly SignaturesByDigest[]): SignaturesByDigest {
  const entries = sets.flatMap((set) => [...set]);
  return group(entries.flatMap(([digest, signatures]) => signatures.map((bytes) => ({ digest, bytes }))));
}

function isSignatureConfigMap({ kind, metadata }: UnknownObject): boolean {
  const { labels } = (metadata ?? {}) as { labels?: Readonly<Record<string, unknown>> | null };
  return kind === 'ConfigMap' && labels?.[signatureLabel] !== undefined;
}

function decode(value: unknown, where: string): Buffer {
  const text = typeof value === 'string' ? value.replace(/\s/g, '') : '';
  const bytes = Buffer.from(text, 'base64');
  // Buffer skips characters that are not base64, but a corrupt signature must be reported.
  if (text !== '' && bytes.toString('base64') === text) return bytes;
  throw new PluginError('invalid-file', `${where} is not base64`);
}

function group(entries: readonly { digest: Digest; bytes: Buffer }[]): SignaturesByDigest {
  const groups = Map.groupBy(entries, ({ digest }) => digest);
  const distinct = (list: readonly { bytes: Buffer }[]): Buffer[] => [
    ...new Map(list.map(({ bytes }) => [bytes.toString('base64'), bytes])).values(),
  ];
  return new Map([...groups].map(([digest, list]) => [digest, distinct(list)]));
}

/** The configuration of a release, without its images. */
interface ReleaseConfiguration {
  /** The mirrors of the images; without sources there is no mirror set. */
  readonly mirrors?: Mirrors;
  readonly updateService?: UpdateServiceOptions;
}

/**
 * Returns the ConfigMaps with the signatures of a release; for a multi-architecture release, also those of its signed
 * images.
 */
export function signatureManifests({
  release,
  signatures,
}: Pick<SignedRelease, 'signatures'> & { readonly release: { readonly version: string } }): ConfigManifest[] {
  return [...signatures].map(([digest, good]) => {
    const bytes = good.map((signature) => signature.bytes);
    return signatureConfigMap(digest, bytes, { version: release.version, signer: good[0]?.fingerprint ?? '' });
  });
}

/** Returns all configuration manifests of a release. The same inputs give the same manifests. */
export function releaseManifests(
  signed: SignedRelease,
  { mirrors, updateService }: ReleaseConfiguration,
): ConfigManifest[] {
  return [
    ...signatureManifests(signed),
    ...(mirrors ? mirrorSetManifests(mirrors) : []),
    ...(updateService ? updateServiceManifests(updateService) : []),
  ];
}
