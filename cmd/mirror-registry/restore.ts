import { PluginError } from '#errors';
import { planRestore, restoreBackup, type RestorePlan } from '#registry-host/backup';
import { isHost } from '#registry-host/certificates';
import { formatBytes, Lines } from '#text';
import { defineCommand } from '../cli/command.ts';
import { dryRunOf, outputOption } from '../cli/options.ts';
import { executionOptions, registryHostOptions, renewalOf, renewalOptions, requestOf } from './options.ts';

// Certificates are renewed only if clients could not use them, and Quay is always restarted.
const { 'renew-before': _renewBefore, ...certificateOptions } = renewalOptions;
const { restart: _restart, ...changeOptions } = executionOptions;

/** `restore`: restores a backup into the mirror registry of a host. */
export const command = defineCommand({
  details:
    'Restores the configuration, the certificates and the database of a backup, and adds its images, if it has them. ' +
    'The registry of the host keeps its units, with their images, port and storage, and its Quay must not be older ' +
    'than that of the backup. On another host, install the registry first. --hostname gives it another name, and ' +
    'issues a certificate for that on the CA of the ' +
    'backup, so clients keep their trust.\n\n' +
    'Verifies the whole backup before anything is changed. Restores the previous registry if the new one does not ' +
    'become healthy. An interrupted run resumes, and rollback reverts a restore.',
  positionals: { file: { type: 'string', required: true, describe: 'Backup to restore', suggest: 'files' } },
  options: {
    hostname: {
      type: 'string',
      describe: 'New host name or IP address of the registry, without a port (default: that of the backup)',
      check: checkName,
      group: 'Certificates:',
    },
    ...dryRunOf('With client or server, only print what would be restored, after verifying the backup'),
    ...outputOption(),
    ...certificateOptions,
    ...changeOptions,
    ...registryHostOptions,
  },
  examples: [
    ['registry.tar --dry-run', 'Verify a backup, and show what a restore would change'],
    ['registry.tar', 'Restore a backup'],
    ['registry.tar --hostname=registry2.example.com', 'Move a registry to this host, under another name'],
  ],
  async run(args, { context, terminal, environment }) {
    const { file: input, hostname, output } = args;
    const dryRun = args.dryRun !== 'none';
    const renewal = await renewalOf({ ...args, renewBefore: 0 }, new Date());
    const host = await requestOf({ ...args, restart: true }, environment, context.signal);
    const request = { ...host, input, hostname, renewal };
    const plan = dryRun ? await planRestore(request, context) : await restoreBackup(request, context);
    const outcome = dryRun ? 'planned' : plan ? 'restored' : 'resumed';
    const describe = dryRun ? describePlan : describeDone;
    const words = plan ? describe(plan) : 'Done: the restore of an earlier run is complete.';
    await terminal.printResult(output, { outcome, ...plan }, words);
  },
});

function checkName(text: string): void {
  if (isHost(text) && !text.startsWith('*')) return;
  throw new PluginError('usage', `“${text}” is not a host name or IP address`, {
    hint: 'Give it without a port and without brackets: the registry of this host keeps its port.',
  });
}

function describePlan(plan: RestorePlan): Lines {
  const { created, version, hostname, files, renewals, host, database, restart, addedFiles, addedSize } = plan;
  return new Lines(
    `Would restore the backup of ${hostname}, ${version ?? 'of an unknown version'}, from ${created}, as ${host}`,
    '',
    ...files.map((path) => `write ${path}`),
    ...renewals.map((reason) => `new certificate: ${reason}`),
    `replace the database in ${database}: images pushed since have to be pushed again`,
    ...restart.map((unit) => `restart ${unit}`),
    describeImages(plan.hasImages, addedFiles, addedSize),
  );
}

function describeDone({ created, host, hasImages, addedFiles, addedSize }: RestorePlan): Lines {
  return new Lines(
    `Done: the registry is healthy as ${host}, as it was at ${created}.`,
    describeImages(hasImages, addedFiles, addedSize),
  );
}

function describeImages(hasImages: boolean, files: number, size: number): string {
  return hasImages
    ? `content of images: ${files} missing files, ${formatBytes(size)}`
    : 'The backup has no content of images: on another host, copy that of the storage too.';
}
