import type { Context } from '../../lib/context.ts';
import { changeCertificates } from '../../lib/registry-host/change/certificateChange.ts';
import {
  findRenewals,
  renewCertificates,
  type Renewal,
  type RenewalOptions,
} from '../../lib/registry-host/certificates/renewal.ts';
import { readCertificates, trustedAuthorities } from '../../lib/registry-host/certificates/certificates.ts';
import { formatTrust } from '../../lib/registry-host/certificates/trust.ts';
import { defineCommand, type Arguments } from '../cli/command.ts';
import { dryRunOf, outputOption } from '../cli/options.ts';
import {
  executionOptions,
  findInstallation,
  registryHostOptions,
  renewalOf,
  renewalOptions,
  requestOf,
} from './options.ts';
import { describeRenewal, describeStatus, describeAuthorities } from './certsReport.ts';

/** `certs`: shows and renews the certificates of a mirror registry. */
export const command = defineCommand({
  details:
    'The action status, or show, shows the certificates. The action renew reissues certificates that expire soon, lack the host name of the registry, or fail ' +
    'strict verification. The action trust prints the certificate authority (CA) in the forms that clusters and hosts need. Certificates made by mirror-registry are renewed with ' +
    'the same keys and the same CA, so clients keep their trust. Restarts Quay with the new certificates, and restores the old ones if Quay does ' +
    'not become healthy. An interrupted run resumes, and rollback reverts a renewal. Your own certificates are never changed.\n\n' +
    'Clients do not trust a new CA, so it takes two steps: --new-ca=prepare creates it and prints both CAs. When all clients trust both, ' +
    '--new-ca=switch signs with the new one.',
  positionals: {
    action: {
      type: 'string',
      required: true,
      choices: ['status', 'renew', 'trust'],
      synonyms: { show: 'status' },
      describe: 'What to do',
    },
  },
  options: {
    ...dryRunOf('With client or server, only print what would be renewed and why'),
    'new-ca': {
      type: 'string',
      choices: ['prepare', 'switch'],
      describe: 'Create a new CA beside the present one, or switch to it',
    },
    ...outputOption(),
    ...renewalOptions,
    ...executionOptions,
    force: {
      type: 'boolean',
      describe: 'Renew even if no certificate needs it, the registry is not healthy, or its files were changed',
    },
    ...registryHostOptions,
  },
  examples: [
    ['status', 'Show who issued the certificates and when they expire'],
    ['renew', 'Renew certificates that expire within 90 days'],
    ['renew --add-san=10.0.0.5', 'Add an IP address to the certificate'],
    ['trust', 'Print what clusters and hosts need to trust the registry'],
  ],
  async run(args, { terminal, environment, context }) {
    const { action, output, newCa, force } = args;
    const dryRun = args.dryRun !== 'none';
    const options = { ...(await renewalOf(args, new Date())), force, newAuthority: newCa };
    const { installation, files } = await findInstallation(args, environment);
    const certificates = await readCertificates(files, installation, options.now);
    const { status } = certificates;
    if (action === 'status') {
      const renew = findRenewals(certificates, installation, options);
      await terminal.printResult(output, { ...status, renew }, describeStatus(status, renew));
      return;
    }
    if (action === 'trust') {
      const trust = formatTrust(trustedAuthorities(certificates), installation);
      await terminal.printResult(output, trust, describeAuthorities(trust, installation));
      return;
    }
    const renewal = dryRun
      ? await renewCertificates(files, certificates, installation, options)
      : await renew(args, options, context, environment);
    const { server, authority, key, changes, trusted } = renewal;
    // A renewal fixes the problems.
    if (dryRun || server.length === 0) for (const problem of status.problems) context.log('warn', problem);
    const result = { server, authority, key, files: changes.map(({ path }) => path), trusted };
    const words = describeRenewal(renewal, status, installation, { ...args, dryRun });
    await terminal.printResult(output, result, words);
  },
});

async function renew(
  args: Arguments<typeof executionOptions & typeof registryHostOptions>,
  renewal: RenewalOptions,
  context: Context,
  environment: NodeJS.ProcessEnv,
): Promise<Renewal> {
  // A prepared CA restarts nothing.
  const restart = args.restart && renewal.newAuthority !== 'prepare';
  const request = await requestOf({ ...args, restart }, environment, context.signal);
  return changeCertificates({ ...request, renewal }, context);
}
