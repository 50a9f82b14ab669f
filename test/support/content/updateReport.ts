import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import {
  encodeUpdateReport,
  nameUpdateReport,
  updateReportType,
  type UpdateReport,
} from '../../../lib/config/updateReport.ts';
import { planReport } from '../../../lib/node/media/reportRegion.ts';
import { exportPublicKey, signEnvelope } from '../../../lib/release/sigstore/envelope.ts';

/** Creates a key that signs reports. */
export function makeReportKey(): KeyObject {
  return generateKeyPairSync('ed25519').privateKey;
}

/** Returns the report of a cluster after an update to 4.19.4, with changes. */
export function makeUpdateReport(key: KeyObject, changes: Partial<UpdateReport> = {}): UpdateReport {
  const { site, ...rest } = changes;
  return {
    ...({ formatVersion: 1, cluster: 'c0ffee00-0000-4000-8000-000000000001', sequence: 3 } as const),
    ...({ created: '2026-11-20T10:00:00Z', reason: 'Completed', tool: 'test/1' } as const),
    site: {
      ...({ formatVersion: 1, created: '2026-11-20T10:00:00Z', tool: 'test/1', version: '4.19.4' } as const),
      arch: 'x86_64',
      channel: 'stable-4.19',
      reportKey: exportPublicKey(key).toString(),
      history: [
        {
          version: '4.19.4',
          state: 'Completed',
          image: `quay.io/a/b@sha256:${'a'.repeat(64)}`,
          started: '2026-11-20T08:00:00Z',
          completed: '2026-11-20T09:10:05Z',
        },
      ],
      nodes: [
        { name: 'master-0', architecture: 'amd64', free: 90 * 2 ** 30 },
        { name: 'worker-0', architecture: 'amd64', free: 40 * 2 ** 30 },
      ],
      operators: [],
      findings: [],
      ...site,
    },
    updates: [
      {
        name: '4.19.4-x86-64',
        created: '2026-11-20T07:00:00Z',
        phase: 'Completed',
        version: '4.19.4',
        digest: `sha256:${'b'.repeat(64)}`,
        lastProgress: '2026-11-20T09:10:05Z',
        conditions: [
          { type: 'Updated', status: 'True', reason: 'Updated', message: 'done', time: '2026-11-20T09:10:05Z' },
        ],
        hops: [],
        backups: [
          {
            node: 'master-0',
            path: '/var/lib/oc-upgrade-bundle/backups/1',
            version: '4.19.3',
            time: '2026-11-20T07:50:00Z',
            size: 1000,
            digest: `sha256:${'d'.repeat(64)}`,
          },
        ],
        nodes: [],
      },
    ],
    ...rest,
  };
}

/** Signs a report, as the controller and an agent together do. */
export function signUpdateReport(report: UpdateReport, key: KeyObject): Buffer {
  return Buffer.from(signEnvelope(updateReportType, encodeUpdateReport(report), key));
}

/** Returns a region of a drive with signed reports, which were written in this order. */
export async function makeReportRegion(key: KeyObject, reports: readonly UpdateReport[]): Promise<Buffer> {
  const region = Buffer.alloc(8 * 1024 * 1024);
  for (const report of reports) await writeToRegion(region, nameUpdateReport(report), signUpdateReport(report, key));
  return region;
}

/** Writes a file into a region. Returns whether the region lacked it. */
export async function writeToRegion(region: Buffer, name: string, content: Buffer): Promise<boolean> {
  const read = (offset: number, size: number) => Promise.resolve(region.subarray(offset, offset + size));
  const writes = await planReport(region.length, { name, content }, read);
  for (const { offset, bytes } of writes ?? []) bytes.copy(region, offset);
  return writes !== undefined;
}
