import { isIP } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import type { Written, WrittenAs, KubernetesObject } from '#config/manifest';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf } from '#fields';
import type { ImageConfig } from '#mirroring/mirror';
import { registriesFile } from '#node/machine';
import { readRegistries } from '#node/runtime';
import { readConfigFile, roleLabel } from '#readiness/nodes';
import { keptAnnotation, ownMirrorSet } from '#readiness/preflight';
import { allow, grantAccess, type AccessObject } from '../record/accountAccess.ts';
import { parseMirrorContent, type MirrorContent } from '../record/mirrorContent.ts';
import {
  disruptionPolicy,
  type IgnitionFile,
  type DisruptionPolicy,
  type FilePolicy,
  type FilesConfig,
} from '../record/poolRollout.ts';
import { agentNamespace } from '../record/upgradeBundle.ts';
import { authoritySecret, servingSecret } from './mirrorCertificates.ts';

/** The mirrors that the site has for a repository or a part of a registry. */
export interface SiteMirror {
  readonly source: string;
  /** The mirrors for images by digest. */
  readonly mirrors: readonly string[];
  /** Present if the source itself must not be asked. */
  readonly policy?: typeof neverContact;
  readonly hasTagMirrors?: boolean;
  /** The names of its sets if they contradict each other about `policy`. */
  readonly conflict?: readonly string[];
}

/** The `mirrorSourcePolicy` of a source that must not be asked. */
export const neverContact = 'NeverContactSource';

/** The annotation of our ImageDigestMirrorSet with the mirrors that it names by host names, instead of addresses. */
const namesAnnotation = 'upgrade-bundle.openshift.io/mirror-names';

/** What the objects of a mirror depend on. */
export interface MirrorPlan {
  readonly port: number;
  readonly content: MirrorContent;
  /** The addresses or names of the mirrors for all nodes, in the order in which to try them. */
  readonly addresses: readonly string[];
  /** The roles of the machine config pools. */
  readonly roles: readonly string[];
  /** The repositories to mirror: `quay.io/openshift-release-dev/ocp-release`. */
  readonly sources: readonly string[];
  /** The site’s own mirrors for images by digest. */
  readonly siteMirrors: readonly SiteMirror[];
  /** The ConfigMap that the site’s image configuration names; undefined for none. */
  readonly trustedAuthorities: string | undefined;
}

/** Settings of `mirrorPolicy`. */
export interface MirrorPolicyOptions {
  readonly mirrorsToo: boolean;
  readonly siteFiles: readonly Readonly<Record<string, unknown>>[];
}

/** The folders in which container runtimes look for the CA of a registry, by its host and port. */
export const certificatesFolder = '/etc/containers/certs.d';

/** The name of our ConfigMap with the CA, if the site has none. */
export const authorityMapName = 'oc-upgrade-bundle-mirror-ca';

const accessName = `${agentNamespace}-mirror`;
const configGroup = 'config.openshift.io';

/** The configuration of images, which names the ConfigMap with the CAs of registries. */
export const imageConfig = {
  apiVersion: 'config.openshift.io/v1',
  kind: 'Image',
  metadata: { name: 'cluster' },
} as const;

/** Our ImageDigestMirrorSet (openshift/api, config/v1). */
export type DigestMirrorSet = WrittenAs<
  'config.openshift.io/v1',
  'ImageDigestMirrorSet',
  { readonly spec: { readonly imageDigestMirrors: readonly DigestMirrors[] } }
>;

interface DigestMirrors {
  readonly source: string;
  readonly mirrors: readonly string[];
  readonly mirrorSourcePolicy?: typeof neverContact;
}

/** The kind and the name of our ImageDigestMirrorSet. */
export const mirrorSet = {
  apiVersion: 'config.openshift.io/v1',
  kind: 'ImageDigestMirrorSet',
  metadata: { name: ownMirrorSet },
} as const;

/** Returns the mirrors with their ports. A control plane node asks itself first. */
export function listMirrorHosts({ addresses, port }: Pick<MirrorPlan, 'addresses' | 'port'>): string[] {
  return ['localhost', ...addresses].map((host) => `${host}:${port}`);
}

/** Returns the path of the CA on nodes for the first mirror, and so the path of each. */
export function authorityPath(host: string): string {
  return `${certificatesFolder}/${host}/ca.crt`;
}

/** Returns the ConfigMap with the CA for each mirror. Its other keys belong to the site. */
export function authorityMap(plan: MirrorPlan, authority: string): Written<'ConfigMap'> {
  const keys = listMirrorHosts(plan).map((host) => host.replace(/:(?=\d+$)/, '..'));
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: { name: plan.trustedAuthorities ?? authorityMapName, namespace: 'openshift-config' },
    data: Object.fromEntries(keys.map((key) => [key, authority])),
  };
}

/**
 * Lets the controller renew the certificate of the mirrors and, if `hasPolicies`, add the addresses of new control
 * plane nodes: without policies, that would reboot every node. A policy limits what it may write.
 */
export function mirrorAccess({
  roles,
  trustedAuthorities = authorityMapName,
  hasPolicies,
}: Pick<MirrorPlan, 'roles' | 'trustedAuthorities'> & { readonly hasPolicies: boolean }): AccessObject[] {
  const secrets = [
    allow('', ['secrets'], ['get'], [authoritySecret.name]),
    allow('', ['secrets'], ['get', 'patch'], [servingSecret.name]),
  ];
  if (!hasPolicies) return grantAccess(accessName, 'controller', [], { [agentNamespace]: secrets });
  const everywhere = [
    allow(configGroup, ['images'], ['get'], [imageConfig.metadata.name]),
    allow(configGroup, ['imagetagmirrorsets'], ['list']),
    allow(configGroup, ['imagedigestmirrorsets'], ['get', 'patch'], [ownMirrorSet]),
    allow('machineconfiguration.openshift.io', ['machineconfigs'], ['get', 'patch'], roles.map(authorityConfigName)),
  ];
  return grantAccess(accessName, 'controller', everywhere, {
    [agentNamespace]: secrets,
    'openshift-config': [allow('', ['configmaps'], ['get', 'patch'], [trustedAuthorities])],
  });
}

/** Returns the image configuration that names our ConfigMap. Not needed if the site has its own. */
export const trustingConfig: ImageConfig = {
  ...imageConfig,
  spec: { additionalTrustedCA: { name: authorityMapName } },
};

/**
 * Returns the policy that a changed CA neither drains nor reboots a node. `mirrorsToo`: a removed mirror does not
 * drain nodes either, while our mirror set is removed. `siteFiles`: the present policies. A path with other actions
 * than ours is left out, because a policy of the site that was taken over cannot be given back.
 */
export function mirrorPolicy({ mirrorsToo, siteFiles }: MirrorPolicyOptions): DisruptionPolicy {
  const reload: FilePolicy = {
    path: '/etc/containers/registries.conf',
    actions: [{ type: 'Reload', reload: { serviceName: 'crio.service' } }],
  };
  const all: FilePolicy[] = [
    { path: certificatesFolder, actions: [{ type: 'None' }] },
    ...(mirrorsToo ? [reload] : []),
  ];
  const files = all.filter(({ path, actions }) =>
    siteFiles.every((site) => site['path'] !== path || isDeepStrictEqual(site['actions'], actions)),
  );
  return { ...disruptionPolicy, spec: { nodeDisruptionPolicy: { files } } };
}

/** Returns the MachineConfigs with the CA: the only way by which a node that joins gets it before its first pull. */
export function authorityConfigs(plan: MirrorPlan, authority: string): FilesConfig[] {
  const source = `data:text/plain;charset=utf-8;base64,${Buffer.from(authority).toString('base64')}`;
  const files = listMirrorHosts(plan).map((host): IgnitionFile => {
    return { path: authorityPath(host), mode: 0o644, overwrite: true, contents: { source } };
  });
  return plan.roles.map((role): FilesConfig => ({
    apiVersion: 'machineconfiguration.openshift.io/v1',
    kind: 'MachineConfig',
    metadata: { name: authorityConfigName(role), labels: { [roleLabel]: role } },
    spec: { config: { ignition: { version: '3.2.0' }, storage: { files } } },
  }));
}

function authorityConfigName(role: string): string {
  return `98-${role}-oc-upgrade-bundle-mirror`;
}

/** Returns whether a name is of one of `authorityConfigs`, also for a role that is gone. */
export function isAuthorityConfig(name: string): boolean {
  return /^98-.+-oc-upgrade-bundle-mirror$/.test(name);
}

/** Returns whether the nodes of a pool have a MachineConfig with the CA, or get it now. */
export function hasAuthorityConfig({ status }: KubernetesObject): boolean {
  const sources = listOf(fieldsAt(status, 'configuration')['source']);
  return sources.some(({ name }) => isAuthorityConfig(String(name)));
}

/**
 * Returns the ImageDigestMirrorSet. Runtimes obey only the most precise source of an image. So a source gets the
 * mirrors and the policy of a broader source of the site, too. It gets those of the same source, because the machine
 * config operator merges the lists of all sets in their common order: otherwise it would mix them. Mirrors of metadata
 * come last: Podman, which fails at their layers, would try no other mirror.
 */
export function digestMirrorSet(plan: MirrorPlan): DigestMirrorSet {
  const imageDigestMirrors = plan.sources.map((source): DigestMirrors => {
    const path = source.replace(/^[^/]+/, '');
    const own = listMirrorHosts(plan).map((host) => `${host}${path}`);
    const site = findSiteMirror(plan.siteMirrors, source);
    const added = (site?.mirrors ?? []).map((mirror) => `${mirror}${source.slice(site?.source.length)}`);
    return {
      source,
      mirrors: [...new Set(plan.content === 'all' ? [...own, ...added] : [...added, ...own])],
      ...(site?.policy !== undefined && { mirrorSourcePolicy: site.policy }),
    };
  });
  const names = plan.addresses.filter((address) => isIP(address) === 0);
  const annotations = {
    ...(plan.content !== 'all' && { [keptAnnotation]: plan.content }),
    ...(names.length > 0 && { [namesAnnotation]: names.join(' ') }),
  };
  const metadata = { ...mirrorSet.metadata, ...(Object.keys(annotations).length > 0 && { annotations }) };
  return { ...mirrorSet, metadata, spec: { imageDigestMirrors } };
}

/** Returns whether a rendered configuration has the mirrors of a plan for each source, and none of the former ones. */
export function rendersMirrors(
  config: KubernetesObject,
  plan: MirrorPlan,
  former: Pick<MirrorPlan, 'port' | 'addresses' | 'sources'> | undefined,
): boolean {
  const rendered = readRegistries(readConfigFile(config, registriesFile) ?? '', registriesFile);
  const plannedMirrors = new Map(
    digestMirrorSet(plan).spec.imageDigestMirrors.map(({ source, mirrors }) => [source, mirrors]),
  );
  const own = new Set([...listMirrorHosts(plan), ...(former ? listMirrorHosts(former) : [])]);
  const ownOf = (mirrors: readonly string[] = []): string[] =>
    mirrors.filter((mirror) => own.has(mirror.split('/')[0] ?? ''));
  return [...plannedMirrors.keys(), ...(former?.sources ?? [])].every((source) => {
    const [there, expected] = [rendered.get(source), plannedMirrors.get(source)];
    const isFirst = expected === undefined || there?.[0] === expected[0];
    return isFirst && isDeepStrictEqual(ownOf(there), ownOf(expected));
  });
}

/** Reads our mirrors from our ImageDigestMirrorSet; undefined without one. */
export function readMirrorSet(
  set: KubernetesObject | undefined,
): Pick<MirrorPlan, 'port' | 'content' | 'addresses' | 'sources'> | undefined {
  const entries = listOf(fieldsOf(set?.['spec'])['imageDigestMirrors']);
  const hosts = entries.flatMap(({ mirrors }) => textsOf(mirrors)).map((mirror) => mirror.split('/')[0] ?? '');
  const [, port] = hosts.flatMap((host) => /^localhost:(\d+)$/.exec(host) ?? []);
  if (port === undefined) return undefined;
  // Mirrors of a broader source of the site are beside ours.
  const names = (textOf(fieldsOf(set?.metadata.annotations)[namesAnnotation]) ?? '').split(' ');
  const isOwn = (host: string): boolean => isIP(host) !== 0 || names.includes(host);
  const own = hosts.map((host) => host.split(':')).filter(([host = '', at]) => isOwn(host) && at === port);
  const addresses = [...new Set(own.flatMap(([host]) => host ?? []))];
  const content = parseMirrorContent(textOf(fieldsOf(set?.metadata.annotations)[keptAnnotation]));
  return { port: Number(port), content, addresses, sources: entries.map(({ source }) => String(source)) };
}

/** Returns the site’s most precise mirrors for a source; undefined if there are none. */
export function findSiteMirror(mirrors: readonly SiteMirror[], source: string): SiteMirror | undefined {
  return mirrors
    .filter((each) => source === each.source || source.startsWith(`${each.source}/`))
    .toSorted((a, b) => b.source.length - a.source.length)[0];
}
