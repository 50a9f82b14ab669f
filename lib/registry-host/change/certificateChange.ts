import type { Context } from '../../context.ts';
import { readCertificates } from '../certificates/certificates.ts';
import { changeRegistry, resumeUnfinished, openRecords } from './execution.ts';
import { type ExecutionRequest } from './restart.ts';
import { requireHealth } from './health.ts';
import type { UpgradeRecords } from './upgradeRecords.ts';
import { takeStateLock } from '../stateFolder.ts';
import { describeState } from '../detect/registryState.ts';
import { originAfter, renewCertificates, type Renewal, type RenewalOptions } from '../certificates/renewal.ts';

/** The input of a renewal. */
export interface CertificateChangeRequest extends ExecutionRequest {
  readonly renewal: RenewalOptions;
}

/**
 * Renews the certificates of a registry, with the same backup, resume and rollback as `upgradeRegistry`. Restarts
 * nothing if a CA is only prepared. Throws `busy`, and the errors of `renewCertificates` and
 * `changeRegistry`.
 */
export async function changeCertificates(request: CertificateChangeRequest, context: Context): Promise<Renewal> {
  await using _lock = await takeStateLock(request.files, request.detected.installation);
  return await changeLocked(request, openRecords(request), context);
}

/** Does the same in a registry that the caller has locked. */
export async function changeLocked(
  request: CertificateChangeRequest,
  records: UpgradeRecords,
  context: Context,
): Promise<Renewal> {
  const { files, renewal, noRestart, now } = request;
  const detected = (await resumeUnfinished(request, records, context)) ?? request.detected;
  const certificates = await readCertificates(files, detected.installation, now);
  const renewed = await renewCertificates(files, certificates, detected.installation, renewal);
  if (renewed.changes.length === 0) return renewed;
  const restart = renewal.newAuthority === 'prepare' ? [] : ['quay-app'];
  const isAsked = restart.length > 0 && !noRestart;
  const state = await describeState(files, {
    ...{ detected, version: detected.installation.version, images: new Map(), changes: renewed.changes },
    origin: originAfter(renewal, certificates),
  });
  const change = {
    title: 'the renewal of certificates',
    changes: [...renewed.changes, state],
    restart,
    database: undefined,
    containers: [],
    names: [],
    replaced: [],
    wasHealthy: isAsked && (await requireHealth(detected, certificates, request.force, context)),
  };
  await changeRegistry(request, records, change, context);
  return renewed;
}
