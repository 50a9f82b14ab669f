import type { Context } from '../context.ts';
import type { Bundle } from '../bundle/open.ts';
import { serveBundle } from '../bundle/serve.ts';
import { isPluginError, PluginError } from '../errors.ts';
import { releaseRepository } from '../store/directory.ts';
import { readCertificates } from './certificates.ts';
import { findDatabase } from './database.ts';
import { detectInstallation } from './detect.ts';
import { changeRegistry, finishEarlier, openRecords, type ExecutionRequest } from './execution.ts';
import type { FileChange } from './fileChange.ts';
import { requireHealth } from './health.ts';
import type { HostCommands } from './hostCommands.ts';
import { isUpToDate, planUpgrade, requireFeasible, type TargetImages, type UpgradePlan } from './plan.ts';
import { imagesOfBundle } from './registryBundle.ts';
import { findRenewals, renewCertificates, type RenewalOptions } from './renewal.ts';

/** What an upgrade works on, and how. */
export interface UpgradeRequest extends ExecutionRequest {
  readonly target: TargetImages;
  /** Where the images come from; without one podman pulls them. */
  readonly bundle: Bundle | undefined;
  readonly renewal: RenewalOptions;
}

/** What became of it. */
export interface UpgradeResult {
  /** `resumed` where nothing was left to do but what an earlier run had begun. */
  readonly outcome: 'unchanged' | 'upgraded' | 'resumed';
  readonly plan: UpgradePlan;
}

/**
 * Upgrades a mirror registry: images first, then a backup, then the units and certificates, then it is started again and has to be well.
 * When it does not get well, everything is put back. A run that was killed is gone on with first. The caller holds the lock. Throws
 * `rolled-back`, `rollback-failed`, `unsupported` for what cannot be done, and before anything is changed what reading and loading throw.
 */
export async function upgradeRegistry(request: UpgradeRequest, context: Context): Promise<UpgradeResult> {
  const { files, commands, renewal, now } = request;
  const records = await openRecords(request);
  const hasResumed = await finishEarlier(request, records, context);
  const detected = await detectInstallation(files, request.detect);
  const certificates = await readCertificates(files, detected.installation, now);
  const renewals = findRenewals(certificates, detected.installation, renewal);
  const plan = planUpgrade({ detected, certificates: certificates.status, renewals, target: request.target });
  if (isUpToDate(plan)) return { outcome: hasResumed ? 'resumed' : 'unchanged', plan };
  requireFeasible(plan);

  const quayChanges = plan.images.some(({ component }) => component === 'quay');
  if (request.noRestart && quayChanges) {
    throw new PluginError('usage', '--no-restart does not go with another Quay', {
      hint: 'Its database has to be copied while Quay is stopped. Leave the option out.',
    });
  }
  const wasHealthy = !request.noRestart && (await requireHealth(detected, certificates, request.force, context));
  await loadImages(request, plan, context);
  const renewed =
    renewals.server.length > 0
      ? await renewCertificates(files, certificates, detected.installation, renewal)
      : undefined;
  const units = plan.units.map(({ path, before, after }): FileChange => {
    return { path, before: Buffer.from(before), after: Buffer.from(after) };
  });
  const change = {
    title: 'the upgrade',
    changes: [...units, ...(renewed?.changes ?? [])],
    restart: plan.restart,
    database: quayChanges ? await findDatabase(files, commands, detected.installation, context.signal) : undefined,
    wasHealthy,
  };
  await changeRegistry(request, records, change, context);
  return { outcome: 'upgraded', plan };
}

/** Has podman hold every image before anything is stopped. What comes out of a bundle is served to it by digest. */
async function loadImages({ commands, bundle }: UpgradeRequest, plan: UpgradePlan, context: Context): Promise<void> {
  const { signal } = context;
  if (plan.images.length === 0) return;
  const held = bundle && imagesOfBundle(bundle.metadata, bundle.path);
  const server = bundle && (await serveBundle(bundle, { host: '127.0.0.1', port: 0 }, context));
  try {
    for (const { component, to } of plan.images) {
      context.log('info', `loading ${to}`);
      const own = held?.[component];
      if (server && own?.image === to) {
        const source = `${new URL(server.url).host}/${releaseRepository}@${own.digest}`;
        await commands.podman(['pull', '--quiet', '--tls-verify=false', source], signal);
        await commands.podman(['tag', source, to], signal);
      } else if (!(await hasImage(commands, to, signal))) {
        await commands.podman(['pull', '--quiet', to], signal);
      }
      await commands.podman(['image', 'exists', to], signal);
    }
  } finally {
    await server?.close();
  }
}

async function hasImage(commands: HostCommands, image: string, signal: AbortSignal): Promise<boolean> {
  try {
    await commands.podman(['image', 'exists', image], signal);
    return true;
  } catch (error) {
    if (isPluginError(error, 'command-failed')) return false;
    throw error;
  }
}
