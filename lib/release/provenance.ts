import { parseJson } from '../content/oci/syntax.ts';
import type { PayloadFiles } from './payload.ts';

/** The source of a component: a repository and a commit. */
export interface SourceCommit {
  readonly repository: string;
  readonly commit: string;
}

/** The origin of a release according to its payload, for an audit. Nothing else uses it. */
export interface Provenance {
  /** The URL of the advisory. */
  readonly errata?: string;
  /** The time at which the release was made. */
  readonly created?: Date;
  /** The versions of parts, such as `kubernetes`. A release with two operating systems has both: `machine-os: '9.8.1, 10.2.1'`. */
  readonly versions: Readonly<Record<string, string>>;
  readonly sources: ReadonlyMap<string, SourceCommit>;
}

interface ImageReferences {
  readonly metadata?: { readonly creationTimestamp?: unknown };
  readonly spec?: {
    readonly tags?: readonly { readonly name?: string; readonly annotations?: Record<string, unknown> }[];
  };
}

// Every text is printed in a report, so each must match a narrow pattern.
const address = /^https:\/\/[\w./:?=&%-]{1,300}$/;
const commitHash = /^[0-9a-f]{7,64}$/;
const time = /^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const versionEntry = /^([a-z][a-z0-9-]{0,50})=([\w.+-]{1,100})$/;

/**
 * Reads `image-references` and `release-metadata` of a payload, which are parsed before. Leaves out texts of another
 * form.
 */
export function readProvenance(files: PayloadFiles): Provenance {
  const parse = (name: string): unknown => parseJson(files.get(name)?.toString('utf8') ?? '{}');
  const { metadata } = parse('release-metadata') as { metadata?: { url?: unknown } };
  const { metadata: references, spec } = parse('image-references') as ImageReferences;
  const versions = new Map<string, Set<string>>();
  const sources = new Map<string, SourceCommit>();
  for (const { name = '', annotations = {} } of spec?.tags ?? []) {
    const repository = textOf(annotations['io.openshift.build.source-location'], address);
    const commit = textOf(annotations['io.openshift.build.commit.id'], commitHash);
    if (repository !== undefined && commit !== undefined) sources.set(name, { repository, commit });
    const entries = annotations['io.openshift.build.versions'];
    for (const entry of typeof entries === 'string' ? entries.split(',') : []) {
      const [, part, version] = versionEntry.exec(entry) ?? [];
      if (part === undefined || version === undefined) continue;
      const partVersions = versions.get(part);
      if (!partVersions) versions.set(part, new Set([version]));
      // Only the operating system may have several versions (MCO-1961).
      else if (part === 'machine-os') partVersions.add(version);
    }
  }
  const errata = textOf(metadata?.url, address);
  const created = new Date(textOf(references?.creationTimestamp, time) ?? Number.NaN);
  const hasTime = !Number.isNaN(created.getTime());
  return {
    errata,
    ...(hasTime && { created }),
    versions: Object.fromEntries([...versions].map(([part, partVersions]) => [part, [...partVersions].join(', ')])),
    sources,
  };
}

function textOf(value: unknown, form: RegExp): string | undefined {
  return typeof value === 'string' && form.test(value) ? value : undefined;
}
