import type { UpdatePlan } from '#bundle/verify';
import type { Cluster } from '#cluster/client';
import { subjectOf, type Finding, type Subject } from '#cluster/finding';
import { blocks } from '#cluster/version';
import type { KubernetesObject } from '#config/manifest';
import { readDocuments } from '#content/files';
import { formatReference, parseReference, type Reference, parseJson } from '#content/oci';
import type { Context } from '#context';
import { messageOf } from '#errors';
import { fieldsAt, fieldsOf, listOf } from '#fields';
import { readPayloadPolicies } from '#release/payload';
import {
  isEnforcedByDefault,
  policiesFor,
  readImagePolicy,
  scopesOf,
  type ImagePolicy,
  rootFingerprint,
} from '#release/sigstore';
import { readConfigFile, readNodeConfig } from '../nodes/imageRetention.ts';
import { mirrorSetsOf, type ClusterSurvey } from './survey.ts';

const paths = {
  policy: '/etc/containers/policy.json',
  // The Machine Config Operator writes it for the scopes of image policies and their mirrors.
  attachments: '/etc/containers/registries.d/sigstore-registries.yaml',
} as const;

const limits = { length: 1024 * 1024, tokens: 20_000 };

const advice = {
  key:
    'Make sure that the images have signatures by both keys, or update first to a version whose policy has the new ' +
    'key. Nodes that have all images pull none.',
  own: 'Make sure that the images have signatures by the key of this policy, or narrow the scopes of the policy.',
  invalid: 'Correct the root of trust and the identity of this policy, or remove it.',
  attachments:
    'Configure the mirror by an ImageDigestMirrorSet: the Machine Config Operator then writes ' +
    'use-sigstore-attachments for it (from 4.17 on). If it is configured already, wait until the pool is updated.',
  reject:
    'Add the registries of the images to allowedRegistries (oc edit image.config.openshift.io cluster), or correct ' +
    'the MachineConfig that writes policy.json.',
} as const;

/**
 * Checks whether the nodes accept the images of a release when they pull them: by the image policies of the cluster,
 * the settings for signatures of mirrors, and policy.json. Without a plan, only for the running release.
 */
export async function checkImagePolicies(
  cluster: Cluster,
  survey: ClusterSurvey,
  plan: Pick<UpdatePlan, 'path' | 'images' | 'manifests' | 'version'> | undefined,
  running: readonly string[],
  context: Context,
): Promise<Finding[]> {
  const policies = [...survey.imagePolicies, ...survey.namespacedImagePolicies].map((object) => ({
    subject: subjectOf(object),
    policy: readImagePolicy(object, 'the cluster'),
  }));
  const images = distinctRepositories(plan?.images ?? running);
  const pools = await readConfigured(cluster, survey.pools);
  const own = policies.map(({ policy }) => policy);
  return [
    ...(plan ? checkPolicies(plan, policies, images, context) : []),
    ...pools.flatMap((pool) => checkAttachments(pool, survey, own, images)),
    ...pools.flatMap((pool) => checkDefaultPolicy(pool, images)),
  ];
}

interface ClusterPolicy {
  readonly subject: Subject;
  readonly policy: ImagePolicy;
}

function checkPolicies(
  { manifests, version }: Pick<UpdatePlan, 'manifests' | 'version'>,
  policies: readonly ClusterPolicy[],
  images: readonly Reference[],
  context: Context,
): Finding[] {
  const targets = readPayloadPolicies(manifests, version, context).filter(isEnforcedByDefault);
  return policies.flatMap(({ subject, policy }): Finding[] => {
    const covered = images.filter((image) => policiesFor(image, [policy]).length > 0);
    if (covered.length === 0) return [];
    const find = (message: string, text: string): Finding[] => [
      { check: 'signatures', severity: 'warning', subject, message, advice: text },
    ];
    const { trust } = policy;
    if (trust.kind === 'invalid') {
      return find(`covers images of ${version}, which nodes refuse: ${trust.reason}`, advice.invalid);
    }
    const fingerprint = rootFingerprint(trust);
    const keys = new Set(
      covered.flatMap((image) => policiesFor(image, targets).flatMap((target) => rootFingerprint(target.trust) ?? [])),
    );
    if (keys.size === 0) {
      const where = policy.namespace === undefined ? 'covers' : 'is for its namespace and covers';
      return find(
        `${where} images of ${version} that no policy of ${version} covers, which are not checked`,
        advice.own,
      );
    }
    if (fingerprint === undefined || keys.has(fingerprint)) return [];
    const noun = trust.kind === 'key' ? 'key' : 'root of trust';
    const words = `has the ${noun} SHA256:${fingerprint}, and the policy of ${version} has SHA256:${[...keys].join(', ')}`;
    return find(words, advice.key);
  });
}

function checkAttachments(
  { pool, config }: ConfiguredPool,
  survey: Pick<ClusterSurvey, 'digestMirrors' | 'contentPolicies'>,
  policies: readonly ImagePolicy[],
  images: readonly Reference[],
): Finding[] {
  const mirrors = mirrorSetsOf(survey, 'all');
  // The Machine Config Operator configures the scopes of policies themselves in any case.
  const mirrorsOf = (image: Reference): Reference[] =>
    mirrors
      .locationsOf({ ...image, digest: `sha256:${'0'.repeat(64)}` })
      .map(({ registry, repository }) => ({ registry, repository }))
      .filter((place) => formatReference(place) !== formatReference(image));
  const places = images.filter((image) => policiesFor(image, policies).length > 0).flatMap(mirrorsOf);
  const configured = readAttachmentScopes(readConfigFile(config, paths.attachments));
  const lacking = places.filter((place) => !scopesOf(place).some((scope) => configured.has(scope)));
  const names = [...new Set(lacking.map(formatReference))];
  if (names.length === 0 || configured.has('')) return [];
  const message = `its nodes do not read sigstore signatures in ${names.join(', ')}, and refuse images from there`;
  const subject = { kind: 'MachineConfigPool', name: pool };
  return [{ check: 'signatures', severity: 'warning', subject, message, advice: advice.attachments }];
}

function checkDefaultPolicy({ pool, config }: ConfiguredPool, images: readonly Reference[]): Finding[] {
  const text = readConfigFile(config, paths.policy);
  const subject = { kind: 'MachineConfigPool', name: pool };
  if (text === undefined) return [];
  let policy: unknown;
  try {
    policy = parseJson(text);
  } catch (error) {
    const message = `has a ${paths.policy} that cannot be read: ${messageOf(error)}`;
    return [{ check: 'signatures', severity: 'warning', subject, message, advice: advice.reject }];
  }
  const scopes = fieldsAt(policy, 'transports', 'docker');
  const rejected = images.filter((image) => {
    // policy.json: the most specific scope counts, then that of the transport, then the default.
    const scope = [...scopesOf(image), ''].find((each) => Object.hasOwn(scopes, each));
    const rules = scope === undefined ? fieldsOf(policy)['default'] : scopes[scope];
    return listOf(rules).some(({ type }) => type === 'reject');
  });
  if (rejected.length === 0) return [];
  const names = rejected.map(formatReference).join(', ');
  const message = `its ${paths.policy} rejects images of ${names}`;
  return [{ check: 'signatures', ...blocks('signature'), subject, message, advice: advice.reject }];
}

/** Returns the scopes for which the nodes look for sigstore signatures; an empty text is the default of all. */
function readAttachmentScopes(text: string | undefined): ReadonlySet<string> {
  if (text === undefined) return new Set();
  try {
    const [value] = readDocuments(text, limits).values;
    const uses = (entry: unknown): boolean => fieldsOf(entry)['use-sigstore-attachments'] === true;
    const scopes = Object.entries(fieldsAt(value, 'docker')).filter(([, entry]) => uses(entry));
    const isDefault = uses(fieldsOf(value)['default-docker']);
    return new Set([...scopes.map(([scope]) => scope), ...(isDefault ? [''] : [])]);
  } catch {
    return new Set();
  }
}

function distinctRepositories(images: readonly string[]): Reference[] {
  const places = images.map((image) => {
    const { registry, repository } = parseReference(image);
    return [`${registry}/${repository}`, { registry, repository }] as const;
  });
  return [...new Map(places).values()];
}

/** A pool, and the rendered MachineConfig of its nodes. */
interface ConfiguredPool {
  readonly pool: string;
  readonly config: KubernetesObject;
}

/** Reads the MachineConfigs of the nodes. Leaves out pools whose MachineConfig does not exist or may not be read. */
async function readConfigured(cluster: Cluster, pools: readonly KubernetesObject[]): Promise<ConfiguredPool[]> {
  const configs = await Promise.all(pools.map((pool) => readNodeConfig(cluster, pool)));
  return pools.flatMap(({ metadata }, index) => {
    const config = configs[index];
    return config ? [{ pool: metadata.name, config }] : [];
  });
}
