import { stringify } from 'yaml';
import { formatManifest, type ConfigManifest, type KubernetesObject } from './manifest.ts';

/** The kinds that tell a cluster about mirrors: ImageDigestMirrorSet (from 4.13 on) and the older ImageContentSourcePolicy. */
export type MirrorSetKind = 'idms' | 'icsp';

/** A repository, with its registry, and those that hold copies of it, in the order in which they are to be tried. */
export interface MirroredSource {
  readonly source: string;
  readonly mirrors: readonly string[];
}

interface KindTraits {
  readonly apiVersion: string;
  readonly kind: string;
  /** The field of the spec that lists the sources. */
  readonly field: string;
  /** The field of install-config.yaml that does. */
  readonly installField: string;
}

const kinds: Readonly<Record<MirrorSetKind, KindTraits>> = {
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
};

/**
 * Makes the object by which a cluster looks for images at their mirrors. A source that is given several times gets all
 * its mirrors, each once; sources are sorted, mirrors keep their order, which is the order of preference.
 */
export function mirrorSetManifest(
  kind: MirrorSetKind,
  sources: readonly MirroredSource[],
  name = 'release-mirror',
): ConfigManifest {
  return { path: `config/mirrors/${kinds[kind].kind.toLowerCase()}.yaml`, object: makeObject(kind, sources, name) };
}

/**
 * Says in the words of `oc adm release mirror` what to put into install-config.yaml and which object to create: scripts cut the
 * YAML out between the blank lines. Without the empty line that comes first and the line break that comes last.
 */
export function formatMirrorInstructions(kind: MirrorSetKind, sources: readonly MirroredSource[]): string {
  const { kind: name, installField } = kinds[kind];
  return [
    'To use the new mirrored repository to install, add the following section to the install-config.yaml:\n',
    // As oc indents it.
    stringify({ [installField]: mergeSources(sources) }, { indentSeq: false, lineWidth: 0 }),
    `\nTo use the new mirrored repository for upgrades, use the following to create an ${name}:\n`,
    formatManifest(makeObject(kind, sources, 'example'), { indentSeq: false }).trimEnd(),
  ].join('\n');
}

function makeObject(kind: MirrorSetKind, sources: readonly MirroredSource[], name: string): KubernetesObject {
  const { field, apiVersion, kind: kindName } = kinds[kind];
  return { apiVersion, kind: kindName, metadata: { name }, spec: { [field]: mergeSources(sources) } };
}

function mergeSources(sources: readonly MirroredSource[]): { mirrors: string[]; source: string }[] {
  const groups = Map.groupBy(sources, ({ source }) => source);
  return [...groups]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([source, entries]) => ({ mirrors: [...new Set(entries.flatMap(({ mirrors }) => mirrors))], source }));
}
