import type { Context } from '../../context.ts';
import { readCertificates } from '../certificates/certificates.ts';
import { originAfter, renewCertificates, type Renewal, type RenewalOptions } from '../certificates/renewal.ts';
import { describeState } from '../detect/registryState.ts';
import { changeRegistry, resumeUnfinished } from './execution.ts';
import { requireHealth } from './health.ts';
import { lockRegistry, type ExecutionRequest, type OpenRegistry } from './openRegistry.ts';

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
  await using locked = await lockRegistry(request, context);
  return await renewLocked(await resumeUnfinished(locked));
}

/** Does the same in a registry that the caller has locked, and that has no unfinished change. */
export async function renewLocked(registry: CertificateChangeRequest & OpenRegistry): Promise<Renewal> {
  const { files, renewal, noRestart, now, detected, force, context } = registry;
  const certificates = await readCertificates(files, detected.installation, now);
  const renewed = await renewCertificates(files, certificates, detected.installation, renewal);
  if (renewed.changes.length === 0) return renewed;
  const restart = renewal.newAuthority === 'prepare' ? [] : ['quay-app'];
  const isAsked = restart.length > 0 && !noRestart;
  const state = await describeState(files, {
    ...{ detected, version: detected.installation.version, images: new Map(), changes: renewed.changes },
    origin: originAfter(renewal, certificates),
  });
  await changeRegistry(registry, {
    title: 'the renewal of certificates',
    changes: [...renewed.changes, state],
    restart,
    wasHealthy: isAsked && (await requireHealth(detected, certificates, force, context)),
  });
  return renewed;
}
