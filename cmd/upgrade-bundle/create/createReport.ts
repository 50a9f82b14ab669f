import { basename } from 'node:path';
import type { CreateResult } from '../../../lib/bundle/create/create.ts';
import type { BundleBase, BundledRelease } from '../../../lib/bundle/metadata.ts';
import type { ExpectedKeys } from '../../../lib/release/sigstore/policyKeys.ts';
import { shellWord } from '../../../lib/shellWord.ts';
import { formatFields, formatVolumes, nameReleases } from '../../cli/format.ts';
import { formatBytes } from '../../../lib/byteSize.ts';
import { describeCatalogs, toPlainCatalogs } from './catalogs.ts';
import type { CreateArguments } from './createOptions.ts';
import { describePolicies, toPlainPolicies } from '../../cli/trust.ts';
import { describeStreams } from '../../cli/bundle/osImageStreams.ts';
import { Lines } from '../../../lib/lines.ts';

/** Formats the result of `create` for a person. It ends with what to carry to the site. */
export function formatCreated(result: CreateResult, keys: ExpectedKeys, args: CreateArguments): Lines {
  const { device, fromDir } = args;
  const isWritten = device !== undefined && result.outcome !== 'planned';
  const isUnread = result.isRead === false && device === undefined;
  const next =
    result.outcome === 'created' || isWritten
      ? [describeTransport(result, args)]
      : isUnread
        ? ['Verify every byte of it', `  ${formatVerify(shellWord(result.path), args, (file) => file)}`]
        : [];
  return new Lines(describe(result, keys, fromDir !== undefined), ...next);
}

/** Returns the result of `create` as plain data. */
export function toPlainCreated(
  { path, outcome, digest, isRead, fetched, metadata, policies, catalogs = [], osImageStreams }: CreateResult,
  expectedKeys: ExpectedKeys,
): object {
  const { version, arch, release, size, images, blobs, signatures, volumes, base, releases } = metadata;
  return {
    ...{ path, outcome, version, arch, release, size, digest, isRead, fetched },
    ...{ images: images.length, blobs: blobs.length, base, volumes },
    ...(releases && { releases: releases.map(toPlainRelease) }),
    ...(catalogs.length > 0 && { catalogs: toPlainCatalogs(catalogs) }),
    ...{ osImageStreams, signatures },
    ...(policies && { sigstore: toPlainPolicies(policies, expectedKeys) }),
  };
}

function toPlainRelease({ version, release, risks, bytes }: BundledRelease): object {
  return { version, release, risks, bytes };
}

function describe(
  { path, outcome, digest, isRead, fetched, metadata, policies, catalogs = [], osImageStreams }: CreateResult,
  expectedKeys: ExpectedKeys,
  isLocal: boolean,
): Lines {
  const [planned, done] = isLocal ? ['To copy', 'Copied'] : ['To fetch', 'Fetched'];
  const signers = Object.values(metadata.signatures).flat();
  const signer = signers[0] ? `${signers[0].signer} (${signers[0].fingerprint})` : 'not signed';
  const title = {
    created: 'Created',
    unchanged: `Nothing to do: the bundle exists, and was ${isRead ? 'read and verified' : 'not read again'}`,
    planned: 'Would create',
  }[outcome];
  const rows = [
    ['Bundle', path],
    ...(metadata.volumes ? [['Volumes', formatVolumes(metadata.volumes)]] : []),
    ['Size', `${formatBytes(metadata.size)} (${metadata.size} bytes)`],
    ...(digest === undefined
      ? []
      : [['Digest', isRead === false ? `${digest} (from ${basename(path)}.sha256)` : digest]]),
    ['Release', metadata.release],
    ['Version', `${nameReleases(metadata)} ${metadata.arch}`],
    ['Signed by', signer],
    ...describePolicies(toPlainPolicies(policies ?? [], expectedKeys)),
    ['Images', `${metadata.images.length} (${metadata.blobs.length} blobs)`],
    ...describeCatalogs(catalogs),
    ...describeStreams(osImageStreams),
    ...(metadata.base ? [['Left out', formatBase(metadata.base)]] : []),
    ...(outcome === 'unchanged' ? [] : [[outcome === 'planned' ? planned : done, formatBytes(fetched)]]),
  ];
  return new Lines(title, formatFields(rows));
}

/** Returns the command that verifies a bundle. `nameOf` returns the name of a key file where the command runs. */
function formatVerify(
  place: string,
  { signatureKeyring, trustFingerprint, trustKey }: CreateArguments,
  nameOf: (file: string) => string,
): string {
  const keys = [
    ...signatureKeyring.map((key) => `--signature-keyring=${shellWord(nameOf(key))}`),
    ...trustKey.map((key) => `--trust-key=${shellWord(nameOf(key))}`),
  ];
  const options = [...keys, ...trustFingerprint.map((fingerprint) => `--trust-fingerprint=${fingerprint}`)];
  return ['oc adm-upgrade-bundle verify', place, ...options].join(' ');
}

/** Lists what a site needs, with the command to verify the bundle there. */
function describeTransport({ path, metadata }: CreateResult, args: CreateArguments): Lines {
  const { signatureKeyring, trustKey, device } = args;
  const { volumes, base } = metadata;
  const bundle = volumes ? `${path}.000 to ${volumes.at(-1)?.name.slice(-3) ?? ''}` : path;
  const medium = device === undefined ? bundle : `the drive in ${device}`;
  const place = device === undefined ? shellWord(basename(path)) : 'DEVICE';
  return new Lines(
    'Files to carry to the site',
    ...[medium, `${path}.sha256`, `${path}.yaml`, ...signatureKeyring, ...trustKey].map((file) => `  ${file}`),
    ...(base && !base.images ? [`  the bundle of ${base.version}, the base, unless the site has it`] : []),
    '  oc-adm_upgrade_bundle, the executable for a machine of the site',
    'At the site, verify the bundle',
    `  ${formatVerify(place, args, (file) => basename(file))}`,
    ...(device === undefined ? [] : [`The bundle is on ${device}, read back and verified. Remove the drive.`]),
  );
}

function formatBase({ version, blobs }: BundleBase): string {
  const bytes = formatBytes(blobs.reduce((sum, { size }) => sum + size, 0));
  return `${bytes} in ${blobs.length} blobs that ${version} has`;
}
