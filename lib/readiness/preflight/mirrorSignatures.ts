import type { UpdatePlan } from '../../bundle/verify/updatePlan.ts';
import type { Context } from '../../context.ts';
import { blocks } from '../../cluster/platformStops.ts';
import type { PluginError } from '../../errors.ts';
import { nameSome } from '../../failures.ts';
import type { Finding } from '../../cluster/finding.ts';
import { parseReference, repositoryIn } from '../../content/oci/reference.ts';
import { readPayloadPolicies } from '../../release/payloadPolicies.ts';
import { readPayload } from '../../release/release.ts';
import { isEnforcedByDefault, policiesFor, readImagePolicy } from '../../release/sigstore/imagePolicy.ts';
import { checkReleaseImages, readerOf, type NamedImage } from '../../release/sigstore/releaseCheck.ts';
import { SiteMirrors, type MirrorAccess } from './siteMirrors.ts';
import { mirrorSetsOf, type ClusterSurvey } from './survey.ts';

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
