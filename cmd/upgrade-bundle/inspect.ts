import { readBundleInventory, inspectRelease, type ReleaseInspection, type InspectedImage } from '#bundle/inspect';
import { openBundle } from '#bundle/open';
import { countAttachments } from '#content/oci';
import { type UpdateRisk, formatRisk } from '#release/graph';
import { Lines, formatBytes, joinParagraphs } from '#text';
import { tool } from '../cli/access.ts';
import { describeStreams, describeStreamSizes, listExtraImages, listSkippedImages } from '../cli/bundleFacts.ts';
import { defineCommand } from '../cli/command.ts';
import { formatFields, formatTable, formatVolumes, nameReleases } from '../cli/format.ts';
import { bundleArgument, outputOption } from '../cli/options.ts';
import { formatReport } from './report/inspectPage.ts';
import { describeProvenance } from './report/page.ts';
import { formatSbom, sbomFormats } from './report/sbom.ts';

/** `inspect`: shows the contents of a bundle in place, without reading its blobs. */
export const command = defineCommand({
  details:
    'Reads only the metadata, the manifests and the release payload, so it takes seconds for a bundle of any size. ' +
    'Checks no signature, and changes nothing: it lists the signers and known risks that the bundle names, and the ' +
    'verify command checks the signatures. -o wide lists everything, and -o html writes a page in one file.',
  positionals: bundleArgument,
  options: {
    ...outputOption('wide', 'html'),
    sbom: {
      type: 'string',
      choices: sbomFormats,
      describe: 'Print a software bill of materials instead: CycloneDX 1.6 or SPDX 2.3, as JSON',
    },
  },
  examples: [
    ['upgrade-4.20.3-x86_64.tar', 'Show the contents of a bundle'],
    ['/dev/sdb -o json', 'Print the contents of a bundle on a USB drive as JSON'],
    ['upgrade-4.20.3-x86_64.tar -o html > report.html', 'Write a page with a map of the bundle'],
    ['upgrade-4.20.3-x86_64.tar --sbom=cyclonedx > sbom.json', 'Write a software bill of materials'],
  ],
  async run(args, { context, terminal, environment }) {
    await using bundle = await openBundle(args.bundle, context, { tolerant: true });
    if (args.sbom !== undefined) {
      const inventory = await readBundleInventory(bundle, context);
      terminal.print(Lines.split(formatSbom(inventory, args.sbom, { tool, date: readSourceDate(environment) })));
      return;
    }
    const inspection = await inspectRelease(bundle, context);
    await terminal.printResult(args.output, inspection, {
      words: () => formatInspection(inspection, false),
      wide: () => formatInspection(inspection, true),
      html: () => Lines.split(formatReport(inspection)),
    });
  },
});

/** Returns the time that SOURCE_DATE_EPOCH gives to all files of a build, if there is one. */
function readSourceDate({ SOURCE_DATE_EPOCH: seconds = '' }: NodeJS.ProcessEnv): Date | undefined {
  return /^\d{1,11}$/.test(seconds) ? new Date(Number(seconds) * 1000) : undefined;
}

/** The number of entries of each list that the text shows. */
const shown = { images: 15, blobs: 5, notes: 5, versions: 5 };

/** Formats the contents of a bundle for a person; `wide` with all entries of each list. */
function formatInspection(inspection: ReleaseInspection, wide: boolean): Lines {
  return joinParagraphs(
    describeInspection(inspection, wide),
    listReleases(inspection),
    listImages(inspection, wide),
    listShared(inspection, wide),
  );
}

function describeReports({ space, key }: NonNullable<ReleaseInspection['reports']>): string {
  return [
    space === undefined ? 'on a second partition only' : `${formatBytes(space)} after the bundle`,
    key === undefined ? 'not encrypted' : 'encrypted to an OpenPGP key',
  ].join(', ');
}

function describeInspection(inspection: ReleaseInspection, wide: boolean): Lines {
  const { path, size, volumes, base, digest, arch, release, previous, tool, totals, images, notes } = inspection;
  const signers = inspection.signatures.flatMap(({ signers: keys }) =>
    keys.map(({ signer, fingerprint }) => `${signer} (${fingerprint})`),
  );
  const attachments = [...new Set(images.flatMap((image) => image.attachments))];
  const extras = images.filter(({ kind }) => kind === 'extra').length;
  const attached = images.filter(({ hasAttachment }) => hasAttachment).length;
  const counts = [...(extras > 0 ? [`${extras} extra`] : []), `${attached} with sigstore signatures`];
  const versions = wide ? previous : previous.slice(-shown.versions);
  const older = previous.length - versions.length;
  const noted = notes.slice(0, wide ? undefined : shown.notes);
  const rows = [
    ['Bundle', path],
    ...(volumes ? [['Volumes', formatVolumes(volumes)]] : []),
    ['Size', `${formatBytes(size)} (${size} bytes)`],
    ...(digest === undefined ? [] : [['Digest', `${digest} (from the .sha256 file)`]]),
    ['Release', release],
    ...describeProvenance(inspection),
    ...(signers.length === 0
      ? [['Signed by', 'the bundle names no signer']]
      : [...new Set(signers)].map((signer) => ['Signed by', `${signer}, not verified here`])),
    ['Images', `${totals.images} (${counts.join(', ')})`],
    ...listExtraImages(inspection.extraImages),
    ...listSkippedImages(inspection.skippedImages),
    ['Content', `${formatBytes(totals.bytes)} in ${totals.blobs} blobs and ${totals.manifests} manifests`],
    ...(attachments.some((tag) => !tag.endsWith('.sig')) ? [['Attached', countAttachments(attachments)]] : []),
    ...(base ? [['Left out', describeBase(inspection, base)]] : []),
    ['Shared', `${formatBytes(totals.saved)} saved; ${formatBytes(totals.bytesUnshared)} if nothing were shared`],
    ...(previous.length === 0
      ? []
      : [['Updates', `from ${versions.join(', ')}${older > 0 ? ` and ${older} more` : ''}`]]),
    ...(inspection.risks ?? []).map((risk) => ['Risk', describeRisk(risk)]),
    ...(inspection.reports ? [['Reports', describeReports(inspection.reports)]] : []),
    ...describeStreams(inspection.osImageStreams),
    ...describeStreamSizes(inspection.osImageStreams),
    ['Made by', tool],
    ...noted.map((note) => ['Note', note]),
    ...(notes.length > noted.length ? [['', `… and ${notes.length - noted.length} more notes`]] : []),
  ];
  return new Lines(`OpenShift ${nameReleases(inspection)} for ${arch}`, formatFields(rows));
}

/** Lists the releases in the order of the updates, if there are several. */
function listReleases({ releases = [] }: ReleaseInspection): Lines {
  if (releases.length === 0) return new Lines();
  const rows = releases.map(({ version, images, added, size, risks }) => [
    version,
    String(images),
    formatBytes(added),
    formatBytes(size),
    risks.map(({ name }) => name).join(', ') || '-',
  ]);
  const table = formatTable(
    [['RELEASE', 'IMAGES', 'ADDS', 'TOTAL', 'KNOWN RISKS'], ...rows],
    ['IMAGES', 'ADDS', 'TOTAL'],
  );
  const risks = new Map(releases.flatMap((each) => each.risks.map((risk) => [risk.name, risk])));
  return new Lines(table, ...[...risks.values()].map(describeRisk));
}

function describeRisk(risk: UpdateRisk): string {
  return `${formatRisk(risk)} (the bundle says, not verified)`;
}

function describeBase(
  { totals }: ReleaseInspection,
  { version, blobs, bytes }: NonNullable<ReleaseInspection['base']>,
): string {
  const share = totals.bytes === 0 ? 0 : Math.round((100 * bytes) / totals.bytes);
  return `${formatBytes(bytes)} in ${blobs} blobs that ${version} has: a delta, ${share}% smaller`;
}

// The name of an extra image is its pullspec.
const fullDigest = /(@sha256:[0-9a-f]{12})[0-9a-f]{52}/g;

function listImages({ images }: ReleaseInspection, wide: boolean): Lines {
  const sorted = [...images].sort((a, b) => b.unique - a.unique);
  const some = wide ? sorted : sorted.slice(0, shown.images);
  const rows = some.map((image) => {
    const { name, aliases, unique, shared, size, layers } = image;
    const names = [name, ...aliases].join(', ');
    const cells = [
      wide ? names : names.replaceAll(fullDigest, '$1…'),
      ...[unique, shared, size].map(formatBytes),
      String(layers),
    ];
    return wide ? [...cells, describeKind(image), image.hasAttachment ? 'yes' : 'no', image.digest] : cells;
  });
  const header = ['IMAGE', 'OWN', 'SHARED', 'TOTAL', 'LAYERS', ...(wide ? ['KIND', 'SIGSTORE', 'DIGEST'] : [])];
  const table = formatTable([header, ...rows], ['OWN', 'SHARED', 'TOTAL', 'LAYERS']);
  const rest = sorted.slice(some.length);
  if (rest.length === 0) return table;
  const bytes = formatBytes(rest.reduce((sum, { unique }) => sum + unique, 0));
  return new Lines(table, `… and ${rest.length} more with ${bytes} of their own: -o wide lists them all`);
}

function describeKind({ kind, platforms, complete }: InspectedImage): string {
  return [kind, ...platforms, ...(complete ? [] : ['incomplete'])].join(' ');
}

function listShared({ sharedBlobs }: ReleaseInspection, wide: boolean): Lines {
  if (sharedBlobs.length === 0) return new Lines();
  const some = wide ? sharedBlobs : sharedBlobs.slice(0, shown.blobs);
  const rows = some.map(({ digest, size, images }) => [
    String(images),
    formatBytes(size),
    wide ? digest : `${digest.slice(0, 'sha256:'.length + 12)}…`,
  ]);
  const table = formatTable([['IMAGES', 'SIZE', 'SHARED BLOB'], ...rows], ['IMAGES', 'SIZE']);
  const rest = sharedBlobs.length - some.length;
  return rest === 0 ? table : new Lines(table, `… and ${rest} more that fewer images need`);
}
