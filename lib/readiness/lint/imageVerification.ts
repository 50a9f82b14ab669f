import { fieldsOf, listOf, textOf, textsOf, type Fields } from '../../fields.ts';

/** The images that a policy verifies when a pod is created. */
export interface ImageVerification {
  readonly field: string;
  /** The patterns of their names. */
  readonly images: string;
  /** Whether a pod is refused without a signature. */
  readonly isEnforced: boolean;
}

/**
 * Reads what a policy verifies at admission: `verifyImages` of Kyverno, its ImageValidatingPolicy, and the
 * ClusterImagePolicy of Sigstore’s policy-controller. None for other objects, such as ClusterImagePolicies of OpenShift.
 */
export function readVerifications({ apiVersion, kind, spec }: Fields): ImageVerification[] {
  const own = fieldsOf(spec);
  const group = textOf(apiVersion)?.split('/')[0] ?? '';
  const name = textOf(kind) ?? '';
  if (group === 'kyverno.io' && /^(?:Cluster)?Policy$/.test(name)) return readKyverno(own);
  if (group === 'policies.kyverno.io' && name.endsWith('ImageValidatingPolicy')) {
    const images = listOf(own['matchImageReferences']).map(({ glob, expression }) => textOf(glob ?? expression) ?? '');
    const actions = own['validationActions'];
    const isEnforced = actions === undefined || textsOf(actions).includes('Deny');
    return [{ field: 'spec', images: images.join(', '), isEnforced }];
  }
  if (group !== 'policy.sigstore.dev' || name !== 'ClusterImagePolicy') return [];
  const images = listOf(own['images']).flatMap(({ glob }) => textOf(glob) ?? []);
  return [{ field: 'spec.images', images: images.join(', '), isEnforced: own['mode'] !== 'warn' }];
}

function readKyverno(spec: Fields): ImageVerification[] {
  return listOf(spec['rules']).flatMap(({ name, verifyImages }) =>
    listOf(verifyImages).map(({ imageReferences, image, failureAction }) => {
      const action = textOf(failureAction ?? spec['validationFailureAction']) ?? 'Audit';
      const images = [...textsOf(imageReferences), textOf(image) ?? ''].filter((each) => each !== '');
      const field = `spec.rules[${textOf(name) ?? ''}].verifyImages`;
      return { field, images: images.join(', '), isEnforced: action.toLowerCase() === 'enforce' };
    }),
  );
}
