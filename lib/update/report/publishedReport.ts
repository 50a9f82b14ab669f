import { promisify } from 'node:util';
import { gunzip } from 'node:zlib';
import type { StoredObject } from '#cluster/objects';
import { updateReportLimits, updateReportType } from '#config/updateReport';
import { messageOf, PluginError } from '#errors';
import { fieldsOf, textOf } from '#fields';
import { formatEnvelope, readPolicyKey } from '#release/sigstore';
import { phaseOf, type UpgradeBundle } from '../record/upgradeBundle.ts';
import { reportKeyField, reportMap } from './reportKey.ts';

/** The names of the parts of a report in its ConfigMap. */
export const reportFields = {
  payload: 'report.gz',
  signature: 'signature',
  sequence: 'sequence',
  mark: 'mark',
} as const;

/** Returns the newest record that is allowed, which a report is about; undefined if there is none. */
export function newestAllowed(records: readonly UpgradeBundle[]): UpgradeBundle | undefined {
  return sortRecords(records).find(({ spec }) => spec.bundle.digest !== undefined);
}

/** Sorts records of updates, the newest first. */
export function sortRecords(records: readonly UpgradeBundle[]): UpgradeBundle[] {
  const ageOf = ({ metadata }: UpgradeBundle): string => `${metadata.creationTimestamp ?? ''} ${metadata.name}`;
  return records.toSorted((a, b) => (ageOf(a) < ageOf(b) ? 1 : -1));
}

/** Returns the words for the end of an update in the mark of a report. */
export function describeEnd(bundle: UpgradeBundle): string {
  return `${bundle.metadata.uid ?? ''}=${phaseOf(bundle)}`;
}

/** Returns whether a report with a mark has the end of an update. */
export function hasEndOf(bundle: UpgradeBundle, mark: string): boolean {
  return mark.includes(describeEnd(bundle));
}

/** The last report of a cluster, signed. */
export interface PublishedReport {
  readonly sequence: number;
  /** What it is about: see `hasEndOf`. */
  readonly mark: string;
  /** The text of the envelope. */
  readonly envelope: Buffer;
}

/**
 * Reads the signed report from its ConfigMap; undefined if none is made yet. Throws `invalid-file` for another content.
 */
export async function unpackReport(map: StoredObject | undefined): Promise<PublishedReport | undefined> {
  const data = fieldsOf(map?.['data']);
  const packed = textOf(fieldsOf(map?.['binaryData'])[reportFields.payload]);
  const [signature, pem] = [textOf(data[reportFields.signature]), textOf(data[reportKeyField])];
  if (packed === undefined || signature === undefined || pem === undefined) return undefined;
  try {
    const options = { maxOutputLength: updateReportLimits.content };
    const payload = await promisify(gunzip)(Buffer.from(packed, 'base64'), options);
    const { fingerprint } = readPolicyKey(Buffer.from(pem));
    const envelope = formatEnvelope(updateReportType, payload, Buffer.from(signature, 'base64'), fingerprint);
    const [sequence, mark] = [Number(data[reportFields.sequence]), textOf(data[reportFields.mark]) ?? ''];
    return { sequence, mark, envelope: Buffer.from(envelope) };
  } catch (cause) {
    const message = `the ConfigMap ${reportMap.metadata.name} has no report: ${messageOf(cause)}`;
    throw new PluginError('invalid-file', message, { cause });
  }
}
