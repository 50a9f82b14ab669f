import { stringify } from 'yaml';
import { digestOf, hexOf } from '#content/oci';
import { type WrittenAs, formatManifest, type ConfigManifest, type KubernetesObject } from './manifest.ts';

/** The kinds of mirror sets for digests: ImageDigestMirrorSet (since 4.13) and the older ImageContentSourcePolicy. */
export type MirrorSetKind = 'idms' | 'icsp';

/** The mirrors of a release and of additional images, and the kind of object for those of digests. */
export interface Mirrors {
  readonly kind: MirrorSetKind;
  /** The repositories of the release. */
  readonly sources: readonly MirroredSource[];
  /** The repositories of additional images by digest, and by tag. */
  readonly additional: Readonly<Record<'digest' | 'tag', readonly MirroredSource[]>>;
}

/** A repository, and its mirrors in order of precedence. */
export interface MirroredSource {
  readonly source: string;
  readonly mirrors: readonly string[];
}

interface KindTraits {
  readonly apiVersion: string;
  readonly kind: string;
  /** The field of the spec that lists the sources. */
  readonly field: string;
  /** The field of install-config.yaml that lists the sources. */
  readonly installField: string;
}

/** All kinds, as the API server defines them. `itms` is for images by tag, the others are for images by digest. */
export const mirrorSetKinds: Readonly<Record<MirrorSetKind | 'itms', KindTraits>> = {
  idms: {
    apiVersion: 'config.openshift.io/v1',
    kind: 'ImageDigestMirrorSet',
    field: 'imageDigestMirrors',
    installField: 'imageDigestSources',
  },
  icsp: {
    apiVersion: 'operator.openshift.io/v1alpha1',
    kind: 'ImageContentSourcePolicy',
    field: 'repositoryDigestMirrors',
    installField: 'imageContentSources',
  },
  itms: {
    apiVersion: 'config.openshift.io/v1',
    kind: 'ImageTagMirrorSet',
    field: 'imageTagMirrors',
    // The installer takes no mirrors of tags.
    installField: '',
  },
};

/** Converts a mirror set to the other kind; undefined if that kind lacks some of its fields. */
export function convertMirrorSet({ path, object }: ConfigManifest, kind: MirrorSetKind): ConfigManifest | undefined {
  const from = mirrorSetKinds[kind === 'idms' ? 'icsp' : 'idms'];
  const { apiVersion, kind: name, field } = mirrorSetKinds[kind];
  const entries = entriesOf(object['spec'], from.field);
  if (entries.some((entry) => Object.keys(entry).some((key) => key !== 'source' && key !== 'mirrors')))
    return undefined;
  const { apiVersion: _, kind: __, spec: ___, ...rest } = object;
  return { path, object: { ...rest, apiVersion, kind: name, spec: { [field]: entries } } };
}

/** The beginning of the names of mirror sets. */
const namePrefix = 'release-mirror';

/**
 * Returns the mirror set that redirects a cluster to mirrors. Sorts the sources, and keeps the order of the mirrors.
 * Name and path depend on the content, so that objects with other mirrors can exist beside it, in a cluster and in a
 * folder.
 */
export function mirrorSetManifest(kind: MirrorSetKind | 'itms', sources: readonly MirroredSource[]): ConfigManifest {
  const id = hexOf(digestOf(Buffer.from(JSON.stringify(mergeSources(sources))))).slice(0, 8);
  const path = `config/mirrors/${mirrorSetKinds[kind].kind.toLowerCase()}-${id}.yaml`;
  return { path, object: makeObject(kind, sources, `${namePrefix}-${id}`) };
}

/**
 * Returns the mirror sets of a release: one for its own repositories, and one each for additional images by digest and
 * by tag. There is no kind for tags beside ImageContentSourcePolicy.
 */
export function mirrorSetManifests({ kind, sources, additional }: Mirrors): ConfigManifest[] {
  const sets = [
    [kind, sources],
    [kind, additional.digest],
    ['itms', kind === 'icsp' ? [] : additional.tag],
  ] as const;
  return sets.flatMap(([each, entries]) => (entries.length > 0 ? [mirrorSetManifest(each, entries)] : []));
}

/** Lists the repositories that a mirror set leads to; none for another object. */
export function listMirrorPlaces(object: Readonly<Record<string, unknown>>): string[] {
  const field = listFields[String(object['kind'])];
  if (field === undefined) return [];
  return entriesOf(object['spec'], field).flatMap(({ mirrors }) => (mirrors ?? []).map(String));
}

/**
 * Adds to a mirror set the other mirrors of the stored object, so that writing it removes no mirror. Returns other
 * objects unchanged. Stored entries come first, in their order and with their other fields.
 */
export function keepMirrors(
  object: KubernetesObject,
  stored: Readonly<Record<string, unknown>> | undefined,
): KubernetesObject {
  const field = listFields[object.kind];
  if (field === undefined || !stored) return object;
  const entries = [stored, object].flatMap(({ spec }) => entriesOf(spec, field));
  const merged = [...Map.groupBy(entries, ({ source }) => source).values()].map((same) => ({
    ...same.reduce((all, entry) => ({ ...all, ...entry })),
    mirrors: [...new Set(same.flatMap(({ mirrors }) => mirrors ?? []))],
  }));
  return { ...object, spec: { ...(object['spec'] as object), [field]: merged } };
}

/**
 * Lists the mirrors of a stored mirror set that a manifest lacks and `keepMirrors` adds: `quay.io/a → registry.test/a`.
 */
export function listKeptMirrors(
  object: KubernetesObject,
  stored: Readonly<Record<string, unknown>> | undefined,
): string[] {
  const field = listFields[object.kind];
  if (field === undefined || !stored) return [];
  const pairs = ({ spec }: Readonly<Record<string, unknown>>): string[] =>
    entriesOf(spec, field).flatMap(({ source, mirrors }) =>
      (mirrors ?? []).map((mirror) => `${String(source)} → ${String(mirror)}`),
    );
  const own = new Set(pairs(object));
  return pairs(stored).filter((pair) => !own.has(pair));
}

/**
 * Formats the instructions of `oc adm release mirror`: the section for install-config.yaml, and the object to create.
 * Scripts cut out the YAML between the blank lines. There is no empty first line and no line break at the end.
 */
export function formatMirrorInstructions({ kind, sources: own, additional }: Mirrors): string {
  const { kind: name, installField } = mirrorSetKinds[kind];
  const sources = [...own, ...additional.digest];
  const tags = makeObject('itms', additional.tag, 'example-tags');
  return [
    'To use the new mirrored repository to install, add the following section to the install-config.yaml:\n',
    // The indentation of oc.
    stringify({ [installField]: mergeSources(sources) }, { indentSeq: false, lineWidth: 0 }),
    `\nTo use the new mirrored repository for upgrades, use the following to create an ${name}:\n`,
    formatManifest(makeObject(kind, sources, 'example'), { indentSeq: false }).trimEnd(),
    ...(kind === 'icsp' || additional.tag.length === 0
      ? []
      : ['---', formatManifest(tags, { indentSeq: false }).trimEnd()]),
  ].join('\n');
}

/** The lists of sources in the specs of mirror sets, by kind. */
const listFields: Readonly<Record<string, string>> = {
  ImageDigestMirrorSet: 'imageDigestMirrors',
  ImageTagMirrorSet: 'imageTagMirrors',
  ImageContentSourcePolicy: 'repositoryDigestMirrors',
};

/** Returns the entries of a mirror set, which any program may have written. */
function entriesOf(
  spec: unknown,
  field: string,
): readonly { readonly source?: unknown; readonly mirrors?: unknown[] }[] {
  const entries = (spec as Readonly<Record<string, unknown>> | null | undefined)?.[field];
  return Array.isArray(entries) ? (entries as { source?: unknown; mirrors?: unknown[] }[]) : [];
}

/** What is written of mirror sets (openshift/api, config/v1 and operator/v1alpha1). */
type MirrorSet =
  | WrittenAs<
      'config.openshift.io/v1',
      'ImageDigestMirrorSet',
      { readonly spec: { readonly imageDigestMirrors: readonly MirroredSource[] } }
    >
  | WrittenAs<
      'config.openshift.io/v1',
      'ImageTagMirrorSet',
      { readonly spec: { readonly imageTagMirrors: readonly MirroredSource[] } }
    >
  | WrittenAs<
      'operator.openshift.io/v1alpha1',
      'ImageContentSourcePolicy',
      { readonly spec: { readonly repositoryDigestMirrors: readonly MirroredSource[] } }
    >;

function makeObject(kind: MirrorSetKind | 'itms', sources: readonly MirroredSource[], name: string): MirrorSet {
  const [metadata, merged, config] = [{ name }, mergeSources(sources), 'config.openshift.io/v1'] as const;
  switch (kind) {
    case 'idms':
      return { apiVersion: config, kind: 'ImageDigestMirrorSet', metadata, spec: { imageDigestMirrors: merged } };
    case 'itms':
      return { apiVersion: config, kind: 'ImageTagMirrorSet', metadata, spec: { imageTagMirrors: merged } };
    case 'icsp': {
      const [apiVersion, spec] = ['operator.openshift.io/v1alpha1', { repositoryDigestMirrors: merged }] as const;
      return { apiVersion, kind: 'ImageContentSourcePolicy', metadata, spec };
    }
  }
}

function mergeSources(sources: readonly MirroredSource[]): { mirrors: string[]; source: string }[] {
  const groups = Map.groupBy(sources, ({ source }) => source);
  return [...groups]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([source, entries]) => ({ mirrors: [...new Set(entries.flatMap(({ mirrors }) => mirrors))], source }));
}
