import {
  readCertificates,
  trustedAuthorities,
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

/** `certs`: shows and renews the certificates of a mirror registry. */
export const command = defineCommand({
  details:
    'status shows the certificates. renew reissues certificates that expire soon, lack the host name of the registry, or fail strict verification. ' +
    'trust prints the certificate authority (CA) in the forms that clusters and hosts need. Certificates made by mirror-registry are renewed with ' +
    'the same keys and the same CA, so clients keep their trust. Restarts Quay with the new certificates, and restores the old ones if Quay does ' +
    'not become healthy. An interrupted run resumes, and rollback reverts a renewal. Your own certificates are never changed.\n\n' +
    'Clients do not trust a new CA, so it takes two steps: --new-ca=prepare creates it and prints both CAs. When all clients trust both, ' +
    '--new-ca=switch signs with the new one.',
  positionals: {
    action: { type: 'string', required: true, choices: ['status', 'renew', 'trust'], describe: 'What to do' },
  },
  options: {
    'dry-run': { type: 'boolean', describe: 'Print what would be renewed and why, without changes' },
    'new-ca': {
      type: 'string',
      choices: ['prepare', 'switch'],
      describe: 'Create a new CA beside the present one, or switch to it',
    },
    ...outputOption(['json', 'yaml']),
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
      const trust = formatTrust(trustedAuthorities(certificates), installation);
      await print(trust, describeTrust(trust, installation));
      return;
    }
    const renewal = dryRun
      ? await renewCertificates(files, certificates, installation, options)
      : await renew(args, options, context, environment);
    const { server, authority, key, changes, trusted } = renewal;
    // A renewal fixes the problems.
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
  // A prepared CA restarts nothing.
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
  stranded: 'made by mirror-registry; they cannot be renewed, because the key of their CA is missing',
  own: 'your own; they are never changed',
  missing: 'missing',
  external: 'those of a proxy in front of the registry, which terminates TLS',
} as const;

function describeStatus({ kind, server, authority, next, problems }: CertificateStatus, renew: RenewalNeed): string {
  const row = (name: string, facts: CertificateFacts | undefined): string[][] =>
    facts
      ? [[name, facts.notAfter.slice(0, 10), String(facts.daysLeft), facts.key, facts.hosts.join(', '), facts.file]]
      : [];
  const rows = [...row('server', server), ...row('authority', authority), ...row('next authority', next)];
  const table = formatTable([['CERTIFICATE', 'EXPIRES', 'DAYS', 'KEY', 'HOSTS', 'FILE'], ...rows], ['DAYS']);
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
      ? `# A cluster needs a name for ${host.value}: the keys of a ConfigMap cannot be IPv6 addresses.\n`
      : `# For a cluster: name it in spec.additionalTrustedCA of image.config.openshift.io/cluster\n${configMap}`,
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
  if (changes.length === 0) return 'No certificate needs renewal.';
  const reasons = [
    ...server.map((reason) => `server: ${reason}`),
    ...authority.map((reason) => `authority: ${reason}`),
    ...key.map((reason) => `new key: ${reason}`),
  ];
  const written = changes.map(({ path }) => `${dryRun ? 'would write' : 'wrote'} ${path}`);
  const serves = server.length > 0;
  const systemctl = scope === 'user' ? 'systemctl --user' : 'systemctl';
  const next = [
    ...(serves && !dryRun && restart ? ['Done: the registry is healthy with the new certificate.'] : []),
    ...(serves && (dryRun || !restart) ? [`Next, restart the registry: ${systemctl} restart quay-app.service`] : []),
    ...(serves && newCa === 'switch'
      ? ["Clients that trust only the old CA can no longer connect: give them the new one, which 'certs trust' prints."]
      : []),
    ...(serves && newCa === undefined && authority.length > 0 && old
      ? [
          old.daysLeft < 0
            ? `The previous CA certificate expired on ${old.notAfter.slice(0, 10)}: give clients the new one, with 'certs trust'.`
            : `Clients trust the previous CA certificate until it expires on ${old.notAfter.slice(0, 10)}: give them the new one before then, with 'certs trust'.`,
        ]
      : []),
    ...(serves
      ? []
      : [`Give both CAs to all clients, as 'certs trust' prints them. Then switch with --new-ca=switch.`]),
  ];
  return [...reasons, ...written, '', ...next].join('\n');
}
