import { fieldsAt, fieldsOf, textOf, type Fields, listOf, textsOf } from '#fields';
import type { Container } from './container.ts';
import {
  isByDigest,
  isFullReference,
  isLocalImage,
  isPlaceholder,
  type ReleaseImages,
  type DiskImport,
  type ResourceImage,
} from './image.ts';
import { registryCommandsIn } from './registryCommand.ts';
import type { Evidence, Rule } from './report.ts';

/** A pod asks a registry each time that a container of it starts. */
export const pullAlways: Rule<Container> = {
  id: 'pull-always',
  severity: 'blocker',
  check: 'pull-policy',
  problem: 'pulls from a registry at every start (pull policy: Always)',
  why: 'The kubelet asks a registry at each start of the container, even if the node has the image.',
  remedy: 'Set imagePullPolicy: IfNotPresent, or image.pullPolicy of an image volume.',
  find: ({ statedPolicy, paths }) => when(statedPolicy === 'Always', paths.policy, 'Always'),
};

/**
 * Returns pullAlways as an expression of CEL about a container; when it is evaluated, the API server has set every
 * policy.
 */
export function pullAlwaysExpression(container: string): string {
  return `has(${container}.imagePullPolicy) && ${container}.imagePullPolicy == 'Always'`;
}

/** Returns pullAlways as an expression of CEL about a volume, which need not be an image. */
export function volumePullsAlwaysExpression(volume: string): string {
  return `has(${volume}.image) && has(${volume}.image.pullPolicy) && ${volume}.image.pullPolicy == 'Always'`;
}

/** The API server adds `Always` to a container whose image has no tag, or the tag latest. */
export const pullLatest: Rule<Container> = {
  id: 'pull-latest',
  severity: 'blocker',
  check: 'pull-policy',
  problem: 'pulls from a registry at every start, because its image has no tag or the tag latest: %',
  why: 'Without an imagePullPolicy the API server sets Always if the image has no tag or the tag latest.',
  remedy: 'Name the image by digest, or set imagePullPolicy: IfNotPresent.',
  find: ({ statedPolicy, policy, image, paths }, release) =>
    when(statedPolicy === undefined && policy === 'Always' && isForeign(image, release), paths.image, image),
};

/** Only a registry knows which image a tag means. */
export const imageByTag: Rule<Container> = {
  id: 'image-by-tag',
  severity: 'warning',
  check: 'tags',
  problem: 'names an image by tag: %',
  why: 'Only a registry knows which image a tag means. No pin and no mirror set for digests covers it.',
  remedy: 'Name the image by digest.',
  find: ({ image, paths }, release) => when(!isByDigest(image) && isForeign(image, release), paths.image, image),
};

/** Bundles and mirrors hold the images in image-references, and no others. */
const imageNotInRelease: Rule<Container> = {
  id: 'image-not-in-release',
  severity: 'blocker',
  check: 'images',
  problem: 'runs an image that image-references does not have: %',
  why: 'Bundles, mirrors and pins hold the images in image-references only, so the pod cannot start.',
  remedy: 'Add the image to image-references of the release, or to the bundle as an extra image.',
  find: ({ image, paths }, release) => when(release !== undefined && isForeign(image, release), paths.image, image),
};

/** An operator starts its operands from images that its environment, arguments or configuration name. */
const referenceNotInRelease: Rule<string> = {
  id: 'reference-not-in-release',
  severity: 'warning',
  check: 'images',
  problem: 'names an image that image-references does not have: %',
  why: 'An operator that starts pods of this image needs a registry, because no bundle or mirror holds it.',
  remedy: 'Add the image to image-references of the release, or remove the reference.',
  find: (image, release) => when(release !== undefined && isForeign(image, release), '', image),
};

/** A catalog is pulled again at an interval. */
const catalogPolls: Rule<Fields> = {
  id: 'catalog-polls',
  severity: 'warning',
  check: 'catalogs',
  problem: 'polls a registry every %',
  why: 'OLM pulls the catalog at each interval. Without a registry its pod fails, and no operator can be installed.',
  remedy: 'Name the catalog by digest, and remove spec.updateStrategy or pollIntervalMinutes.',
  find: ({ updateStrategy, source }) => {
    const interval = textOf(fieldsAt(updateStrategy, 'registryPoll')['interval']);
    // Of a ClusterCatalog.
    const { pollIntervalMinutes: minutes } = fieldsAt(source, 'image');
    return [
      ...when(interval !== undefined, 'updateStrategy.registryPoll.interval', interval ?? ''),
      ...when(typeof minutes === 'number', 'source.image.pollIntervalMinutes', `${String(minutes)}m`),
    ];
  },
};

/** OLM always pulls a catalog that a tag names. */
const catalogByTag: Rule<Fields> = {
  id: 'catalog-by-tag',
  severity: 'warning',
  check: 'catalogs',
  problem: 'names its image by tag (%), which its pods therefore always pull',
  why: 'OLM sets imagePullPolicy: Always for the pods of a catalog whose image has a tag.',
  remedy: 'Name the catalog by digest.',
  find: ({ image }) => {
    const pullspec = textOf(image) ?? '';
    return when(isKnown(pullspec) && !isByDigest(pullspec), 'image', pullspec);
  },
};

/** A tag of an image stream is imported again every 15 minutes. */
const imageStreamScheduled: Rule<Fields> = {
  id: 'image-stream-scheduled',
  severity: 'warning',
  check: 'imports',
  problem: 'imports an image from a registry on a schedule: %',
  why: 'The cluster asks the registry for the tag again and again, and reports import errors without one.',
  remedy: 'Remove importPolicy.scheduled, and name the image by digest.',
  find: (tag) => when(isScheduled(tag), 'importPolicy.scheduled', imageOf(tag)),
};

/** A tag of an image stream is imported when the stream is created. */
const imageStreamImport: Rule<Fields> = {
  id: 'image-stream-import',
  severity: 'info',
  check: 'imports',
  problem: 'imports an image from a registry once: %',
  why: 'The tag stays empty until the import succeeds, so builds and pods that use it wait.',
  remedy: 'Mirror the image, and import it from the mirror.',
  find: (tag, release) => {
    const image = imageOf(tag);
    return when(!isScheduled(tag) && isForeign(image, release), 'from.name', image);
  },
};

/** A script, a unit or a container runs a program that asks a registry, whether the image is present or not. */
const contactsRegistry: Rule<readonly (readonly string[])[]> = {
  id: 'contacts-registry',
  severity: 'blocker',
  check: 'scripts',
  problem: 'runs a command that contacts a registry: %',
  why: 'The command fails without a registry, even if the node has the image. Units that depend on it do not start.',
  remedy:
    'Ask first whether the image is present (podman image exists), or use the image in the image store of the node.',
  find: (commands) =>
    registryCommandsIn(commands).map((words) => ({ field: '', value: withoutSecrets(words).slice(0, 200) })),
};

/** An admission plugin sets `Always` for every pod of the cluster. */
export const forcesPulls: Rule<readonly string[]> = {
  id: 'forces-pulls',
  severity: 'blocker',
  check: 'pull-policy',
  problem: 'makes every pod pull its images at every start (%)',
  why: 'Without a registry no pod starts, even if its node has the image.',
  remedy: 'Remove AlwaysPullImages from the enabled admission plugins.',
  find: (plugins) =>
    when(
      plugins.some((plugin) => /(?:^|,)\s*AlwaysPullImages\s*(?:,|$)/.test(plugin)),
      '',
      'AlwaysPullImages',
    ),
};

/** Controllers of policies read signatures from a registry, and refuse a pod without them. */
const verifiesImages: Rule<Fields> = {
  id: 'verifies-images',
  severity: 'blocker',
  check: 'pull-policy',
  problem: 'verifies images in a registry when a pod is created: %',
  why: 'Without a registry the controller of the policy finds no signature, and refuses the pods of these images.',
  remedy:
    'Let only the container runtime verify (ClusterImagePolicy of OpenShift), or exclude the images of the bundle.',
  find: (policy) => readVerifications(policy).flatMap((each) => when(each.isEnforced, each.field, each.images)),
};

/** Policies that only warn ask a registry too, and the API server waits for the answer. */
const auditsImages: Rule<Fields> = {
  id: 'audits-images',
  severity: 'warning',
  check: 'pull-policy',
  problem: 'asks a registry for signatures when a pod is created, and only warns without them: %',
  why: 'Without a registry each pod waits for the webhook, which refuses the pod if it takes longer than its limit.',
  remedy: 'Exclude the images of the bundle from the policy, or set its failurePolicy to Ignore.',
  find: (policy) => readVerifications(policy).flatMap((each) => when(!each.isEnforced, each.field, each.images)),
};

/** A build pulls its builder image, although the node has it. */
const buildPulls: Rule<Fields> = {
  id: 'build-pulls',
  severity: 'warning',
  check: 'pull-policy',
  problem: 'pulls its builder image at every build: %',
  why: 'Without a registry each build fails, even if the node has the image.',
  remedy: 'Remove forcePull from the strategy of the BuildConfig.',
  find: ({ forcePull, from }) => when(forcePull === true, 'forcePull', textOf(fieldsOf(from)['name']) ?? 'its image'),
};

/** CDI looks for a newer image of a disk on a schedule. */
const diskImportScheduled: Rule<DiskImport> = {
  id: 'disk-import-scheduled',
  severity: 'warning',
  check: 'imports',
  problem: 'is imported from a registry on a schedule: %',
  why: 'Without a registry each import fails, and the alerts of the DataImportCron fire.',
  remedy: 'Remove the DataImportCron, or disable it in spec.dataImportCronTemplates of HyperConverged.',
  find: ({ url, field, isScheduled: scheduled }) => when(scheduled, field, url),
};

/** CDI imports a disk when its DataVolume is created. */
const diskImport: Rule<DiskImport> = {
  id: 'disk-import',
  severity: 'info',
  check: 'imports',
  problem: 'is imported from a registry once: %',
  why: 'A new virtual machine waits until the import succeeds.',
  remedy: 'Mirror the image, and import it from the mirror.',
  find: ({ url, field, isScheduled: scheduled }) => when(!scheduled, field, url),
};

/** Only the operator of a resource knows what it does with the images that it names. */
const resourceImage: Rule<ResourceImage> = {
  id: 'resource-image',
  severity: 'warning',
  check: 'tags',
  problem: 'names an image by tag or pulls it at every start, and is not judged: %',
  why: 'The operator of the resource makes pods of the image, and only a registry knows which image a tag means.',
  remedy: 'Name the image by digest, with the pull policy IfNotPresent, if the operator allows it.',
  find: ({ image, field = '', pullsAlways = false }, release) => [
    ...when(
      (field !== '' || isFullReference(image) || isRegistryUrl(image)) &&
        !isByDigest(image) &&
        isForeign(image, release),
      field,
      image,
    ),
    ...when(pullsAlways, field, `${image} (pull policy: Always)`),
  ],
};

/** A file or document that cannot be judged. */
export const unreadable: Rule<string> = {
  id: 'unreadable',
  severity: 'blocker',
  check: 'bundle',
  problem: 'cannot be read: %',
  why: 'An object that is not read may need a registry.',
  remedy: 'Correct the file. If it is not a manifest, keep it out of the folder.',
  find: (reason) => [{ field: '', value: reason }],
};

/** The rules by what they look at. */
export const rulesFor = {
  container: [pullAlways, pullLatest, imageByTag, imageNotInRelease],
  reference: [referenceNotInRelease],
  catalog: [catalogPolls, catalogByTag],
  imageStreamTag: [imageStreamScheduled, imageStreamImport],
  commands: [contactsRegistry],
  admissionPlugins: [forcesPulls],
  admissionPolicy: [verifiesImages, auditsImages],
  build: [buildPulls],
  diskImport: [diskImportScheduled, diskImport],
  resourceImage: [resourceImage],
  file: [unreadable],
} as const;

/** Every rule, in the order of the documentation. */
export const allRules: readonly Omit<Rule<never>, 'find'>[] = Object.values(rulesFor).flat();

function when(isBroken: boolean, field: string, value: string): Evidence[] {
  return isBroken ? [{ field, value }] : [];
}

function isKnown(image: string): boolean {
  return image !== '' && !isPlaceholder(image);
}

/** Whether it is an image that is not in image-references, which a release replaces by digests. */
function isForeign(image: string, release: ReleaseImages | undefined): boolean {
  return isKnown(image) && release?.componentOf(image) === undefined;
}

/** Whether it is the URL of an image or a chart in a registry: `oci://ghcr.io/acme/app`. */
function isRegistryUrl(text: string): boolean {
  return (
    /^(?:oci|docker):\/\/[\w.-]+(?::\d+)?\/[\w./@:-]+$/.test(text) && !isLocalImage(text.replace(/^oci:/, 'docker:'))
  );
}

function isScheduled({ importPolicy }: Fields): boolean {
  return fieldsOf(importPolicy)['scheduled'] === true;
}

function imageOf({ from }: Fields): string {
  const { kind, name } = fieldsOf(from);
  return kind === 'DockerImage' ? (textOf(name) ?? '') : '';
}

const secretOption = /^(?:--?(?:[\w-]+-)?(?:creds|password|token|user|header)|-u|-H)(=|$)/;

/** Shows a command without credentials: those of options, and those in URLs. */
function withoutSecrets(words: readonly string[]): string {
  const shown = words.map((word, index) => {
    const [before] = secretOption.exec(words[index - 1] ?? '') ?? [];
    if (before !== undefined && !before.endsWith('=')) return '…';
    const [option = ''] = secretOption.exec(word) ?? [];
    return option.endsWith('=') ? `${option}…` : word.replace(/\/\/[^/@\s]*@/g, '//…@');
  });
  return shown.join(' ');
}

/** The images that a policy verifies when a pod is created. */
interface ImageVerification {
  readonly field: string;
  /** The patterns of their names. */
  readonly images: string;
  /** Whether a pod is refused without a signature. */
  readonly isEnforced: boolean;
}

/**
 * Reads what a policy verifies at admission: `verifyImages` of Kyverno, its ImageValidatingPolicy, and the
 * ClusterImagePolicy of Sigstore’s policy-controller. None for other objects, such as ClusterImagePolicies of
 * OpenShift.
 */
function readVerifications({ apiVersion, kind, spec }: Fields): ImageVerification[] {
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
