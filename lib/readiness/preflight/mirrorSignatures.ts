import type { UpdatePlan } from '#bundle/verify';
import type { Finding } from '#cluster/finding';
import { blocks } from '#cluster/version';
import { type Digest, formatReference, parseReference, repositoryIn, type Reference } from '#content/oci';
import type { MirrorSets, Registries } from '#content/registry';
import type { ContentSource } from '#content/store';
import type { Context } from '#context';
import { asFailure, ignoring, type PluginError, nameSome } from '#errors';
import { readPayloadPolicies } from '#release/payload';
import { readPayload } from '#release/release';
import {
  isEnforcedByDefault,
  policiesFor,
  readImagePolicy,
  checkReleaseImages,
  readerOf,
  type NamedImage,
} from '#release/sigstore';
import { mirrorSetsOf, type ClusterSurvey } from './survey.ts';

/** Access to the mirrors of a site. */
export interface MirrorAccess {
  readonly registries: Registries;
  /** Returns the command that pushes the planned or the running release into a mirror (REGISTRY/REPOSITORY). */
  readonly pushCommand: (mirror: string, version: string) => string;
}

type DigestReference = Reference & { readonly digest: Digest };

/** The mirrors of a site. The first failure ends all questions, because each would take as long. */
export class SiteMirrors {
  readonly #sets: MirrorSets;
  readonly #registries: Registries;
  readonly #sources = new Map<string, ContentSource>();
  failure: PluginError | undefined;

  constructor(sets: MirrorSets, registries: Registries) {
    this.#sets = sets;
    this.#registries = registries;
  }

  /** Finds the first mirror that has an image, from which nodes pull it. */
  async find(image: DigestReference): Promise<ContentSource | undefined> {
    const own = formatReference({ registry: image.registry, repository: image.repository });
    for (const { registry, repository } of this.#sets.locationsOf(image)) {
      const name = formatReference({ registry, repository });
      if (name === own) continue;
      const source = this.#sources.get(name) ?? this.#registries.repository({ registry, repository });
      this.#sources.set(name, source);
      const descriptor = await source.resolve(image.digest).catch(ignoring('not-found'));
      if (descriptor) return source;
    }
    return undefined;
  }

  /** Does something with the mirrors. Returns undefined if they fail, and always after a failure. */
  async attempt<Result>(action: () => Promise<Result>): Promise<Result | undefined> {
    if (this.failure) return undefined;
    try {
      return await action();
    } catch (error) {
      const failure = asFailure(error);
      this.failure ??= failure;
      return undefined;
    }
  }
}

/** The planned release, or the running one without its components and manifests. */
type AskedRelease = Pick<UpdatePlan, 'version' | 'release'> & Partial<Pick<UpdatePlan, 'components' | 'manifests'>>;

/**
 * Asks the mirrors for the sigstore signatures that image policies demand, of the images that a mirror has. Images that
 * nodes would refuse are blockers. Mirrors that cannot be asked are a warning.
 */
export async function checkMirrorSignatures(
  survey: ClusterSurvey,
  release: AskedRelease,
  { registries, pushCommand }: MirrorAccess,
  context: Context,
): Promise<Finding[]> {
  const planned = readPayloadPolicies(release.manifests ?? new Map(), release.version, context).filter(
    isEnforcedByDefault,
  );
  const own = survey.imagePolicies.map((object) => readImagePolicy(object, 'the cluster'));
  const policies = [...own, ...planned];
  if (policies.length === 0) return [];
  const mirrors = new SiteMirrors(mirrorSetsOf(survey), registries);
  const images = await mirrors.attempt(() => listImages(release, mirrors, context));
  const covered = (images ?? []).filter(({ reference }) => policiesFor(reference, policies).length > 0);
  // A mirror that is unreachable fails here once, instead of for every image.
  for (const { reference } of covered.slice(0, 1)) await mirrors.attempt(() => mirrors.find(reference));
  const places = await Promise.all(
    covered.map(async (image) => ({ image, mirror: await mirrors.attempt(() => mirrors.find(image.reference)) })),
  );
  const findings: Finding[] = [];
  for (const [mirror, group] of Map.groupBy(places, (place) => place.mirror)) {
    if (!mirror) continue;
    const held = group.map(({ image }) => image);
    const reader = readerOf(() => mirror);
    const results = await mirrors.attempt(() => checkReleaseImages(held, policies, reader, context.signal));
    const refused = (results ?? []).filter(({ outcome }) => outcome === 'missing' || outcome === 'rejected');
    const names = [...new Set(refused.map(({ name }) => name))];
    if (names.length === 0) continue;
    findings.push({
      check: 'signatures',
      ...blocks('signature'),
      subject: { kind: 'Mirror', name: mirror.name },
      message:
        `lacks valid sigstore signatures of ${names.length} of ${held.length} images of ${release.version}, ` +
        `and nodes refuse to pull these from it: ${nameSome(names, 5)}`,
      advice: `Push the images again with their signatures: ${pushCommand(mirror.name, release.version)}`,
    });
  }
  return [...findings, ...(mirrors.failure ? [describeFailure(mirrors.failure)] : [])];
}

/** Lists the images of a release: by the bundle, or by the payload in a mirror. */
async function listImages(
  { release, components }: AskedRelease,
  mirrors: SiteMirrors,
  context: Context,
): Promise<NamedImage[]> {
  const root = nameImage('release', release);
  const [image] = root;
  if (components) return [...root, ...Object.entries(components).flatMap(([name, text]) => nameImage(name, text))];
  const source = image && (await mirrors.find(image.reference));
  if (!source) return [];
  const repository = repositoryIn(release);
  const { images } = await readPayload(source, await source.resolve(image.reference.digest), { repository }, context);
  return [...root, ...[...images.values()].flatMap(({ name, pullspec }) => nameImage(name, pullspec))];
}

function nameImage(name: string, pullspec: string): NamedImage[] {
  const { registry, repository, digest } = parseReference(pullspec);
  return digest ? [{ name, reference: { registry, repository, digest } }] : [];
}

function describeFailure(error: PluginError): Finding {
  return {
    check: 'signatures',
    severity: 'warning',
    subject: { kind: 'Mirror', name: '' },
    message: `was not asked for all sigstore signatures: ${error.message}`,
    advice:
      error.hint ?? 'Run this on a machine that reaches the mirrors of the cluster, with the credentials for them.',
  };
}
