import {
  readCertificates,
  trustedBy,
  type CertificateFacts,
  type CertificateStatus,
} from '../../lib/mirror-registry/certificates/certificates.ts';
import type { Context } from '../../lib/context.ts';
import { changeCertificates } from '../../lib/mirror-registry/change/certificateChange.ts';
import type { Installation } from '../../lib/mirror-registry/installation.ts';
import {
  findRenewals,
  renewCertificates,
  type Renewal,
  type RenewalNeed,
  type RenewalOptions,
} from '../../lib/mirror-registry/certificates/renewal.ts';
import { formatTrust } from '../../lib/mirror-registry/certificates/trust.ts';
import { takeStateLock } from '../../lib/mirror-registry/stateFolder.ts';
import { defineCommand, type Arguments } from '../cli/command.ts';
import { formatTable, formatYaml } from '../cli/format.ts';
import { outputOption } from '../cli/options.ts';
import {
  executionOptions,
  findInstallation,
  registryHostOptions,
  renewalOf,
  renewalOptions,
  requestOf,
} from './options.ts';

/** `certs`: the certificates of a mirror registry, how long they are good for, and how they get renewed. */
export const command = defineCommand({
  details:
    'status shows them; renew issues anew what ends soon, what does not name the registry, or what strict clients refuse; trust prints ' +
    'the authority as clusters and hosts want to have it. Certificates that mirror-registry made are renewed on the same keys and the same ' +
    'authority, so whoever trusts the registry today does so afterwards. Quay is started again with them, and when it does not get well the ' +
    'old ones come back; a run that was killed goes on when it is run again, and rollback takes one back. Certificates of your own are never ' +
    'touched.\n\n' +
    'A new authority ends all trust, so it comes in two steps: --new-ca=prepare makes it, and prints it together with the present one; ' +
    'when all clients trust both, --new-ca=switch lets it sign.',
  positionals: {
    action: { type: 'string', required: true, choices: ['status', 'renew', 'trust'], describe: 'What to do' },
  },
  options: {
    'dry-run': { type: 'boolean', describe: 'Say what would be renewed, and why; write nothing' },
    'new-ca': {
      type: 'string',
      choices: ['prepare', 'switch'],
      describe: 'Make a new authority beside the present one, or let it take its place',
    },
    ...outputOption(['json', 'yaml']),
    ...renewalOptions,
    ...executionOptions,
    force: {
      type: 'boolean',
      describe:
        'Renew although nothing asks for it, although the registry is not well, or although somebody has changed its files since',
    },
    ...registryHostOptions,
  },
  examples: [
    ['status', 'Show whose certificates these are, and when they end'],
    ['renew', 'Renew what ends within 90 days'],
    ['renew --add-san=10.0.0.5', 'Let clients call the registry by its address too'],
    ['trust', 'Print what clusters and hosts need in order to trust the registry'],
  ],
  async run(args, { terminal, environment, context }) {
    const { action, output, newCa, force, dryRun } = args;
    const options = { ...(await renewalOf(args, new Date())), force, newAuthority: newCa };
    const { installation, files } = await findInstallation(args, environment);
    const print = async (result: object, words: string): Promise<void> => {
      if (output === 'json') terminal.print(JSON.stringify(result, null, 2));
      else terminal.print(output === 'yaml' ? (await formatYaml(result)).trimEnd() : words);
    };
    const certificates = await readCertificates(files, installation, options.now);
    const { status } = certificates;
    if (action === 'status') {
      const renew = findRenewals(certificates, installation, options);
      await print({ ...status, renew }, describeStatus(status, renew));
      return;
    }
    if (action === 'trust') {
      const trust = formatTrust(trustedBy(certificates), installation);
      await print(trust, describeTrust(trust, installation));
      return;
    }
    const renewal = dryRun
      ? await renewCertificates(files, certificates, installation, options)
      : await renew(args, options, context, environment);
    const { server, authority, key, changes, trusted } = renewal;
    // What was wrong with those that were renewed is mended.
    if (dryRun || server.length === 0) for (const problem of status.problems) context.log('warn', problem);
    const result = { server, authority, key, files: changes.map(({ path }) => path), trusted };
    await print(result, describeRenewal(renewal, status, installation, args));
  },
});

async function renew(
  args: Arguments<typeof executionOptions & typeof registryHostOptions>,
  renewal: RenewalOptions,
  context: Context,
  environment: NodeJS.ProcessEnv,
): Promise<Renewal> {
  // What is only prepared starts nothing.
  const restart = args.restart && renewal.newAuthority !== 'prepare';
  const request = await requestOf({ ...args, restart }, environment);
  const unlock = await takeStateLock(request.files, request.detected.installation);
  try {
    return await changeCertificates({ ...request, renewal }, context);
  } finally {
    await unlock();
  }
}

const kinds = {
  automatic: 'made by mirror-registry; they can be renewed',
  stranded: 'made by mirror-registry; the key of their authority is not there, so they cannot be renewed',
  own: 'your own; they are never touched',
  missing: 'missing',
  external: 'those of a proxy in front of the registry, which ends TLS',
} as const;

function describeStatus({ kind, server, authority, next, problems }: CertificateStatus, renew: RenewalNeed): string {
  const row = (name: string, facts: CertificateFacts | undefined): string[][] =>
    facts
      ? [[name, facts.notAfter.slice(0, 10), String(facts.daysLeft), facts.key, facts.hosts.join(', '), facts.file]]
      : [];
  const rows = [...row('server', server), ...row('authority', authority), ...row('next authority', next)];
  const table = formatTable([['CERTIFICATE', 'ENDS', 'DAYS', 'KEY', 'HOSTS', 'FILE'], ...rows], ['DAYS']);
  const notes = [
    ...problems.map((problem) => `problem: ${problem}`),
    ...renew.server.map((reason) => `server to be renewed: ${reason}`),
    ...renew.authority.map((reason) => `authority to be renewed: ${reason}`),
    ...renew.key.map((reason) => `new key needed: ${reason}`),
  ];
  const parts = [`The certificates are ${kinds[kind]}`, ...(rows.length > 0 ? [table] : [])];
  return [...parts, ...(notes.length > 0 ? [notes.join('\n')] : [])].join('\n\n');
}

function describeTrust(trust: ReturnType<typeof formatTrust>, { host }: Installation): string {
  const { certificates, installConfig, configMap, certsFolder } = trust;
  const parts = [
    `# For hosts with podman, skopeo or CRI-O: ${certsFolder}\n${certificates}`,
    `# For install-config.yaml\n${installConfig}`,
    configMap === undefined
      ? `# A cluster can be told of ${host.value} by a name only: no ConfigMap holds an address of IPv6.\n`
      : `# For a cluster, which names it in spec.additionalTrustedCA of image.config.openshift.io/cluster\n${configMap}`,
  ];
  return parts.join('---\n').trimEnd();
}

function describeRenewal(
  { server, authority, key, changes }: Renewal,
  { authority: old }: CertificateStatus,
  { scope }: Installation,
  {
    dryRun,
    restart,
    newCa,
  }: { readonly dryRun: boolean; readonly restart: boolean; readonly newCa: string | undefined },
): string {
  if (changes.length === 0) return 'Nothing has to be renewed.';
  const reasons = [
    ...server.map((reason) => `server: ${reason}`),
    ...authority.map((reason) => `authority: ${reason}`),
    ...key.map((reason) => `new key: ${reason}`),
  ];
  const written = changes.map(({ path }) => `${dryRun ? 'would write' : 'wrote'} ${path}`);
  const serves = server.length > 0;
  const systemctl = scope === 'user' ? 'systemctl --user' : 'systemctl';
  const next = [
    ...(serves && !dryRun && restart ? ['Done: the registry is well with it.'] : []),
    ...(serves && (dryRun || !restart)
      ? [`Then the registry has to take it up: ${systemctl} restart quay-app.service`]
      : []),
    ...(serves && newCa === 'switch'
      ? [
          'Clients that trust the old authority alone are kept out from now on: give them the new one, which certs trust prints.',
        ]
      : []),
    ...(serves && newCa === undefined && authority.length > 0 && old
      ? [
          old.daysLeft < 0
            ? `The previous certificate of the authority expired on ${old.notAfter.slice(0, 10)}: give clients the new one, with 'certs trust'.`
            : `Clients that trust the previous certificate of the authority do so until it expires on ${old.notAfter.slice(0, 10)}: give them the new one before, with 'certs trust'.`,
        ]
      : []),
    ...(serves
      ? []
      : [`Let all clients trust both authorities, which 'certs trust' prints; then switch with --new-ca=switch.`]),
  ];
  return [...reasons, ...written, '', ...next].join('\n');
}
