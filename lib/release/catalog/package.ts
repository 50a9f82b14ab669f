import { fieldsOf, isFields, listOf, textOf, textsOf, type Fields } from '../../fields.ts';

/** An operator in a file-based catalog (`olm.package`), with what the selection needs to know. */
export interface CatalogPackage {
  readonly name: string;
  defaultChannel: string;
  readonly channels: Map<string, readonly ChannelEntry[]>;
  readonly bundles: Map<string, CatalogBundle>;
}

/** A version of an operator in a channel (`olm.channel`), with the versions that can be updated to it. */
export interface ChannelEntry {
  readonly name: string;
  readonly replaces: string | undefined;
  readonly skips: readonly string[];
  readonly skipRange: string | undefined;
}

/** A version of an operator (`olm.bundle`). */
export interface CatalogBundle {
  readonly name: string;
  readonly version: string;
  /** The bundle image and the images that the operator runs, as the catalog names them. */
  readonly images: readonly string[];
  /** The APIs that it provides: GROUP/VERSION/KIND. */
  readonly provides: readonly string[];
  readonly requires: readonly Requirement[];
  /** The last minor version of OpenShift that it supports, if it names one: `4.19`. */
  readonly maxOpenShiftVersion: string | undefined;
}

/** What an operator needs: another operator, an API, all of some requirements, or any of them. */
export type Requirement =
  | { readonly kind: 'package'; readonly name: string; readonly range: string }
  | { readonly kind: 'api'; readonly api: string }
  | { readonly kind: 'all'; readonly of: readonly Requirement[] }
  | { readonly kind: 'any'; readonly of: readonly Requirement[] };

/** Returns the package of a document: of an `olm.package` its name. */
export function packageOf({ schema, name, package: owner }: Fields): string {
  return textOf(schema === 'olm.package' ? name : owner) ?? '';
}

/** Adds a document to its package. Documents of other schemas change nothing. */
export function addDocument(packages: Map<string, CatalogPackage>, value: Fields): void {
  const owner = packageOf(value);
  const { schema } = value;
  if (schema !== 'olm.package' && schema !== 'olm.channel' && schema !== 'olm.bundle') return;
  const operator = packages.get(owner) ?? { name: owner, defaultChannel: '', channels: new Map(), bundles: new Map() };
  packages.set(owner, operator);
  const name = textOf(value['name']) ?? '';
  if (schema === 'olm.package') operator.defaultChannel = textOf(value['defaultChannel']) ?? '';
  if (schema === 'olm.channel') operator.channels.set(name, listOf(value['entries']).map(readEntry));
  if (schema === 'olm.bundle') operator.bundles.set(name, readBundle(name, value));
}

function readEntry({ name, replaces, skips, skipRange }: Fields): ChannelEntry {
  return {
    name: textOf(name) ?? '',
    replaces: textOf(replaces),
    skips: textsOf(skips),
    skipRange: textOf(skipRange),
  };
}

function readBundle(name: string, { image, relatedImages, properties }: Fields): CatalogBundle {
  const valuesOf = (type: string): Fields[] =>
    listOf(properties).flatMap((property) => (property['type'] === type ? [fieldsOf(property['value'])] : []));
  const max = listOf(properties).find(({ type }) => type === 'olm.maxOpenShiftVersion')?.['value'];
  const images = [image, ...listOf(relatedImages).map((related) => related['image'])];
  return {
    name,
    version: textOf(valuesOf('olm.package')[0]?.['version']) ?? '',
    // Some published bundles have related images without an address.
    images: [...new Set(images.flatMap((each) => textOf(each) ?? []))],
    provides: valuesOf('olm.gvk').map(apiOf),
    requires: [
      ...valuesOf('olm.package.required').map(readPackageRequirement),
      ...valuesOf('olm.gvk.required').map((value): Requirement => ({ kind: 'api', api: apiOf(value) })),
      ...valuesOf('olm.constraint').flatMap(readConstraint),
    ],
    maxOpenShiftVersion: typeof max === 'string' || typeof max === 'number' ? String(max) : undefined,
  };
}

function apiOf({ group, version, kind }: Fields): string {
  return [group, version, kind].map((part) => textOf(part) ?? '').join('/');
}

function readPackageRequirement({ packageName, versionRange }: Fields): Requirement {
  return { kind: 'package', name: textOf(packageName) ?? '', range: textOf(versionRange) ?? '' };
}

/** Reads a compound constraint. `not` and `cel` demand no other operator. */
function readConstraint(value: Fields): Requirement[] {
  if (isFields(value['package'])) return [readPackageRequirement(value['package'])];
  if (isFields(value['gvk'])) return [{ kind: 'api', api: apiOf(value['gvk']) }];
  for (const kind of ['all', 'any'] as const) {
    const { constraints } = fieldsOf(value[kind]);
    if (constraints !== undefined) return [{ kind, of: listOf(constraints).flatMap(readConstraint) }];
  }
  return [];
}
