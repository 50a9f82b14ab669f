import type { Context } from '../context.ts';
import { messageOf } from '../errors.ts';
import { readDocuments } from '../content/files/documents.ts';
import type { KeyMaterial } from './signature/keyring.ts';
import type { PayloadFiles } from './payload.ts';

/** The keys and stores that a payload names for verifying releases. The payload itself does not make them trusted. */
export interface Verification {
  readonly keys: readonly KeyMaterial[];
  /** The http(s) URLs of signature stores. */
  readonly stores: readonly string[];
}

// Read before the release is verified. The real one has 9 KB.
const limits = { length: 1024 * 1024, tokens: 20_000 };

const annotation = 'release.openshift.io/verification-config-map';

/**
 * Reads the first ConfigMap of a payload with the annotation for verification: keys in `verifier-public-key-*` and
 * stores in `store-*`, as library-go does. Empty without such a ConfigMap.
 */
export function readVerification(files: PayloadFiles, context: Context): Verification {
  for (const [name, content] of files) {
    const text = content.toString('utf8');
    // Most of a payload's hundreds of manifests can be skipped without parsing.
    if (!text.includes(annotation)) continue;
    const data = documentsOf(name, text, context).find(isVerification)?.data;
    if (data) return verificationOf(name, data, context);
  }
  return { keys: [], stores: [] };
}

interface ConfigMap {
  readonly kind?: unknown;
  readonly metadata?: { readonly annotations?: Readonly<Record<string, unknown>> };
  readonly data?: Readonly<Record<string, unknown>>;
}

function documentsOf(name: string, text: string, context: Context): (ConfigMap | null)[] {
  try {
    // Red Hat's own manifest has a duplicate key, which Kubernetes accepts.
    return readDocuments(text, limits).values as (ConfigMap | null)[];
  } catch (error) {
    context.log('warn', `${name} in the release payload is not YAML and is skipped: ${messageOf(error)}`);
    return [];
  }
}

function isVerification(object: ConfigMap | null): object is ConfigMap {
  return object?.kind === 'ConfigMap' && object.metadata?.annotations?.[annotation] !== undefined;
}

function verificationOf(file: string, data: Readonly<Record<string, unknown>>, context: Context): Verification {
  const entries = Object.entries(data).filter((entry): entry is [string, string] => typeof entry[1] === 'string');
  const keys = entries
    .filter(([key]) => key.startsWith('verifier-public-key-'))
    .map(([key, content]) => ({ name: `${key} of ${file} in the release payload`, content }));
  const named = entries.filter(([key]) => key.startsWith('store-')).map(([, store]) => store.trim());
  // An unverified payload must not choose local files to read.
  const stores = named.filter((store) => /^https?:/.test(store) && URL.canParse(store));
  if (stores.length < named.length)
    context.log('warn', `${file} in the release payload names a signature store that is not http(s), which is skipped`);
  return { keys, stores };
}
