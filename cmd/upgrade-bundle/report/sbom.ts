import type { BundleInventory, InventoryImage } from '#bundle/inspect';
import { hexOf, parseReference } from '#content/oci';

/** The formats of a bill of materials: CycloneDX and SPDX, both as JSON. */
export const sbomFormats = ['cyclonedx', 'spdx'] as const;

/** The program that writes a bill of materials, and the time. */
interface SbomContext {
  readonly tool: string;
  /** By default the time of the release, so that the same bundle gives the same bytes. */
  readonly date?: Date;
}

/** A license expression of SPDX, by its form. Other texts of labels are notes. */
const expression = /^(?:LicenseRef-)?[A-Za-z0-9][\w.+-]*(?: (?:AND|OR|WITH) [A-Za-z0-9][\w.+-]*)*$/;

/** Formats the content of a bundle as a software bill of materials: CycloneDX 1.6 or SPDX 2.3, as JSON. */
export function formatSbom(
  inventory: BundleInventory,
  format: (typeof sbomFormats)[number],
  context: SbomContext,
): string {
  const bill = format === 'cyclonedx' ? toCycloneDx(inventory, context) : toSpdx(inventory, context);
  return JSON.stringify(bill, null, 2);
}

function toCycloneDx(
  { version, arch, release, versions, images, created }: BundleInventory,
  { tool, date = created }: SbomContext,
): object {
  const [name = '', toolVersion = ''] = tool.split('/');
  const root = `openshift-${version}-${arch}`;
  return {
    bomFormat: 'CycloneDX',
    specVersion: '1.6',
    version: 1,
    metadata: {
      timestamp: formatTime(date),
      tools: { components: [{ type: 'application', name, version: toolVersion }] },
      component: {
        type: 'platform',
        'bom-ref': root,
        name: 'OpenShift',
        version,
        properties: [
          ...[['release', release] as const, ['architecture', arch] as const, ...Object.entries(versions)].map(
            ([part, value]) => ({ name: `${name}:${part}`, value }),
          ),
        ],
      },
    },
    components: images.map((image) => ({
      type: 'container',
      'bom-ref': image.pullspec,
      name: image.name,
      version: image.digest,
      hashes: [{ alg: 'SHA-256', content: hexOf(image.digest) }],
      ...(image.license !== undefined && { licenses: [describeLicense(image.license)] }),
      purl: purlOf(image),
      ...(image.source && {
        externalReferences: [{ type: 'vcs', url: image.source.repository, comment: `commit ${image.source.commit}` }],
      }),
      properties: [
        { name: `${name}:size`, value: String(image.size) },
        { name: `${name}:kind`, value: image.kind },
      ],
    })),
    dependencies: [{ ref: root, dependsOn: [...new Set(images.map(({ pullspec }) => pullspec))] }],
  };
}

function describeLicense(license: string): object {
  return expression.test(license) ? { expression: license } : { license: { name: license } };
}

function toSpdx(
  { version, arch, release, images, created }: BundleInventory,
  { tool, date = created }: SbomContext,
): object {
  const name = `openshift-${version}-${arch}`;
  const root = `SPDXRef-${name.replace(/[^A-Za-z0-9.-]/g, '-')}`;
  const none = 'NOASSERTION';
  const common = { filesAnalyzed: false, licenseConcluded: none, copyrightText: none };
  const ids = images.map(({ digest }, index) => `SPDXRef-image-${index}-${hexOf(digest).slice(0, 12)}`);
  return {
    spdxVersion: 'SPDX-2.3',
    dataLicense: 'CC0-1.0',
    SPDXID: 'SPDXRef-DOCUMENT',
    name,
    documentNamespace: `https://spdx.org/spdxdocs/${name}-${parseReference(release).digest?.slice(7) ?? ''}`,
    creationInfo: { created: formatTime(date), creators: [`Tool: ${tool.replace('/', '-')}`] },
    packages: [
      {
        SPDXID: root,
        name: 'OpenShift',
        versionInfo: version,
        downloadLocation: none,
        ...common,
        licenseDeclared: none,
        comment: `release ${release}`,
      },
      ...images.map((image, index) => ({
        SPDXID: ids[index],
        name: image.name,
        versionInfo: image.digest,
        downloadLocation: none,
        ...common,
        checksums: [{ algorithm: 'SHA256', checksumValue: hexOf(image.digest) }],
        externalRefs: [
          { referenceCategory: 'PACKAGE-MANAGER', referenceType: 'purl', referenceLocator: purlOf(image) },
        ],
        licenseDeclared: image.license !== undefined && expression.test(image.license) ? image.license : none,
        ...(image.license !== undefined && !expression.test(image.license) && { licenseComments: image.license }),
        ...(image.source && { sourceInfo: `${image.source.repository} at commit ${image.source.commit}` }),
        comment: `${image.kind} image of ${image.size} bytes`,
      })),
    ],
    relationships: [
      { spdxElementId: 'SPDXRef-DOCUMENT', relationshipType: 'DESCRIBES', relatedSpdxElement: root },
      ...ids.map((id) => ({ spdxElementId: root, relationshipType: 'CONTAINS', relatedSpdxElement: id })),
    ],
  };
}

/** Returns the package URL of an image: `pkg:oci/NAME@sha256%3A…?repository_url=…`. */
function purlOf({ pullspec, digest }: InventoryImage): string {
  const { registry, repository } = parseReference(pullspec);
  const name = (repository.split('/').at(-1) ?? '').toLowerCase();
  const url = encodeURIComponent(`${registry}/${repository}`);
  return `pkg:oci/${encodeURIComponent(name)}@${encodeURIComponent(digest)}?repository_url=${url}`;
}

// SPDX allows no fractions of a second, and requires a time.
function formatTime(date = new Date(0)): string {
  return date.toISOString().replace(/\.\d+Z$/, 'Z');
}
