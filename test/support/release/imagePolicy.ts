import { stringify } from 'yaml';
import { attachmentKey } from './attachments.ts';

/** The differences from the policy that covers all images of test releases with the key of their attachments. */
export interface PolicyOptions {
  readonly scopes?: readonly string[];
  readonly featureSet?: string;
  /** The key as PEM. */
  readonly key?: string;
  readonly rootOfTrust?: object;
}

/** A manifest with an image policy, as a file of a release payload. */
export function imagePolicyFiles(options: PolicyOptions = {}): Record<string, string> {
  const { scopes = ['quay.io/openshift-release-dev'], featureSet, key = attachmentKey } = options;
  const keyData = Buffer.from(key).toString('base64');
  const policy = {
    apiVersion: 'config.openshift.io/v1',
    kind: 'ClusterImagePolicy',
    metadata: {
      name: 'openshift',
      annotations: {
        'include.release.openshift.io/self-managed-high-availability': 'true',
        ...(featureSet !== undefined && { 'release.openshift.io/feature-set': featureSet }),
      },
    },
    spec: {
      scopes,
      policy: {
        rootOfTrust: options.rootOfTrust ?? { policyType: 'PublicKey', publicKey: { keyData } },
        // The test attachments have no tag in their statement.
        signedIdentity: { matchPolicy: 'MatchRepository' },
      },
    },
  };
  return { '0000_90_openshift-cluster-image-policy.yaml': stringify(policy) };
}
