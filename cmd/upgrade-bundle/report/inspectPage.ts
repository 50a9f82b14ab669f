import { basename } from 'node:path';
import type { Inspection, ReleaseInspection, SourcedImage } from '#bundle/inspect';
import { shellWord, formatBytes } from '#text';
import { describeStreams, describeStreamSizes } from '../../cli/bundleFacts.ts';
import { nameReleases } from '../../cli/format.ts';
import { markup, type Markup, formatFacts, formatPage, drawTable, linkTo, numberHead, listVersions } from './page.ts';
import { classOf, drawFigure, type ImageClass } from './reportFigure.ts';

/** The number of shared blobs in the table. */
const blobLimit = 20;

/** Formats the contents of a bundle as one HTML page that needs no other file. The same bundle gives the same bytes. */
export function formatReport(inspection: ReleaseInspection): string {
  const { arch, notes, tool } = inspection;
  const version = nameReleases(inspection);
  const name = nameOf(inspection);
  return formatPage({
    title: `OpenShift ${version} ${arch}: ${name}`,
    header: markup`<p class="eyebrow">Upgrade bundle</p>
      <h1>OpenShift ${version} for ${arch}</h1>
      <p class="notice">
        <strong>Not verified.</strong> This page shows what the bundle says of itself, its signers included.
        <a href="#verify">How to verify it</a> stands at the end.
      </p>
      ${
        notes.length === 0
          ? undefined
          : markup`<div class="notice">
              <strong>Something is missing or odd:</strong>
              <ul>
                ${notes.map((note) => markup`<li>${note}</li>`)}
              </ul>
            </div>`
      }`,
    main: markup`${describeSizes(inspection)} ${describeFacts(inspection, name)}
      <h2>Where the bytes are</h2>
      ${drawFigure(inspection)} ${listImages(inspection.images)}
      ${listShared(inspection)} ${listSignatures(inspection)} ${explainVerification(inspection, name)}`,
    footer: `The bundle was made by ${tool}.`,
  });
}

function describeSizes({ size, totals }: Inspection): Markup {
  const figures: [string | number, string][] = [
    [formatBytes(size), 'in the bundle'],
    [totals.images, 'images'],
    [totals.blobs, 'layers and configurations'],
    [formatBytes(totals.bytesUnshared), 'if nothing were shared'],
    [formatBytes(totals.saved), 'saved by sharing'],
  ];
  return markup`<div class="figures">
    ${figures.map(([value, label]) => markup`<div><b>${value}</b> <span>${label}</span></div>`)}
  </div>`;
}

function describeFacts(inspection: ReleaseInspection, name: string): Markup {
  const { size, digest, form, release, previous, signatures, errata } = inspection;
  const signers = new Set(
    signatures.flatMap((each) => each.signers.map((key) => `${key.signer} (${key.fingerprint})`)),
  );
  const rows: [string, string | Markup][] = [
    [form === 'tar' ? 'File' : 'Directory', markup`<code>${name}</code>`],
    ['Size', `${size} bytes`],
    ...(digest
      ? [['Digest', markup`<code>${digest}</code>, as the .sha256 file says`] satisfies [string, Markup]]
      : []),
    ['Release', markup`<code>${release}</code>`],
    ...listVersions(inspection),
    ...errata.map((url): [string, Markup] => ['Errata', linkTo(url)]),
    ['Signed by', signers.size === 0 ? 'the bundle names no signer' : [...signers].join(', ')],
    ['Updates', previous.length === 0 ? 'from any version' : `from ${previous.join(', ')}`],
    ...describeStreams(inspection.osImageStreams),
    ...describeStreamSizes(inspection.osImageStreams),
  ];
  return formatFacts(rows);
}

function listImages(images: readonly SourcedImage[]): Markup {
  const bytes = (label: string, value: number): Markup =>
    markup`<td class="number" data-label="${label}" data-value="${value}">${formatBytes(value)}</td>`;
  const sorted = [...images].sort((a, b) => b.unique - a.unique);
  const hasSources = images.some(({ source }) => source !== undefined);
  const heads = [
    'Image',
    'Kind',
    markup`<th scope="col" class="number" aria-sort="descending">Own</th>`,
    ...['Shared', 'Total', 'Layers'].map(numberHead),
    'Sigstore',
    'Digest',
    ...(hasSources ? ['Source'] : []),
  ];
  const rows = sorted.map((image) => {
    const details = [...image.aliases.map((alias) => `also ${alias}`), ...image.platforms];
    if (!image.complete) details.push('incomplete');
    return markup`<tr>
      <th scope="row">
        ${image.name}${details.length === 0 ? undefined : markup` <small>${details.join(', ')}</small>`}
      </th>
      <td class="kind">${singular[classOf(image)]}</td>
      ${bytes('Own', image.unique)}${bytes('Shared', image.shared)}${bytes('Total', image.size)}
      <td class="number" data-label="Layers">${image.layers}</td>
      <td data-label="Sigstore">${image.hasAttachment ? 'yes' : 'no'}</td>
      <td class="digest">${image.digest}</td>
      ${hasSources && markup`<td class="digest">${describeSource(image)}</td>`}
    </tr>`;
  });
  return markup`<h2>Images</h2>
    <p class="quiet">
      “Own” is what no other image needs, “shared” what others need too. Everything is counted once within an image.
    </p>
    ${drawTable('sortable stacked searchable', heads, rows)}`;
}

function describeSource({ source }: SourcedImage): Markup | undefined {
  return source && markup`${linkTo(source.repository)} ${source.commit}`;
}

const singular: Readonly<Record<ImageClass, string>> = {
  release: 'release',
  'operating-system': 'operating system',
  operator: 'operator',
  component: 'component',
  extra: 'extra',
  shared: 'shared',
};

function listShared({ sharedBlobs }: Inspection): Markup | undefined {
  if (sharedBlobs.length === 0) return undefined;
  const others = sharedBlobs.length - blobLimit;
  const rows = sharedBlobs.slice(0, blobLimit).map(
    ({ digest, size, images }) =>
      markup`<tr>
        <td class="number" data-label="Images">${images}</td>
        <td class="number" data-label="Size" data-value="${size}">${formatBytes(size)}</td>
        <td class="digest">${digest}</td>
      </tr>`,
  );
  return markup`<h2>Layers that most images need</h2>
    ${drawTable('sortable stacked', [...['Images', 'Size'].map(numberHead), 'Digest'], rows)}
    ${others > 0 ? markup`<p class="quiet">and ${others} more that are needed by fewer.</p>` : undefined}`;
}

function listSignatures({ signatures }: Inspection): Markup {
  if (signatures.length === 0)
    return markup`<h2>Signatures</h2>
      <p>The bundle has no signature of its release.</p>`;
  const lines = (words: readonly string[]): MarkupLines =>
    words.map((line, index) => [index > 0 ? markup`<br />` : undefined, line]);
  const rows = signatures.map(
    ({ digest, image, signers, held }) =>
      markup`<tr>
        <th scope="row">${image}</th>
        <td data-label="Signer">${signers.length === 0 ? 'not recorded' : lines(signers.map((key) => key.signer))}</td>
        <td class="digest" data-label="Key">${lines(signers.map((key) => key.fingerprint))}</td>
        <td class="number" data-label="In the bundle">${held}</td>
        <td class="digest">${digest}</td>
      </tr>`,
  );
  return markup`<h2>Signatures</h2>
    <p class="quiet">
      As they were found good when the bundle was made. The signatures themselves are in the bundle’s
      <code>config</code> folder.
    </p>
    ${drawTable('stacked', ['Of', 'Signer', 'Key', numberHead('In the bundle'), 'Digest'], rows)}`;
}

type MarkupLines = (Markup | string | undefined)[][];

function explainVerification({ form, release, digest, signatures, volumes, base }: Inspection, name: string): Markup {
  const file = signatures.find((each) => release.endsWith(`@${each.digest}`))?.file;
  const extract = volumes
    ? `cat ${shellWord(name)}.[0-9][0-9][0-9] | tar -xOf - ${shellWord(file ?? '')}`
    : `tar -xOf ${shellWord(name)} ${shellWord(file ?? '')}`;
  const show = form === 'tar' ? extract : `cat ${shellWord(`${name}/${file ?? ''}`)}`;
  const folder = 'v2/openshift/release/blobs';
  const checkEach = 'for blob in sha256:*; do echo "${blob#sha256:}  $blob"; done | sha256sum -c --quiet';
  return markup`<h2 id="verify">How to verify it</h2>
    <p>The whole chain, from the signature of the release to the last layer, without a network:</p>
    <pre>oc adm-upgrade-bundle verify ${shellWord(name)}</pre>
    ${base && markup`<p>It is a delta: put the bundle of its base ${base.version} into the same folder first.</p>`}
    ${
      digest &&
      markup`<p>The digest of the whole file. Get the expected digest in another way, too:</p>
        <pre>sha256sum -c ${shellWord(`${name}.sha256`)}</pre>`
    }
    ${
      file?.endsWith('.yaml') === true &&
      markup`<p>The signature by hand; its statement must have the digest of the release that is given above:</p>
        <pre>${show} | sed -n 's/^ *sha256-[0-9a-f]*-1: *//p' | base64 -d | gpg --decrypt</pre>`
    }
    ${
      // Commands for a directory only, because extracting an unverified tar does not verify it.
      form === 'directory' &&
      markup`<p>Layers and configurations by hand, as each has its digest as its name:</p>
        <pre>cd ${shellWord(`${name}/${folder}`)} && ${checkEach}</pre>`
    }`;
}

/** Returns the name to show: without parent folders, except for a device. */
function nameOf({ path }: Inspection): string {
  return path.startsWith('/dev/') ? path : basename(path);
}
