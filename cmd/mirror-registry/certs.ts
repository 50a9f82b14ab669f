import type { Context } from '#context';
import {
  findRenewals,
  renewCertificates,
  type Renewal,
  type RenewalOptions,
  type RenewalNeed,
  readCertificates,
  trustedAuthorities,
  type CertificateFacts,
  type CertificateStatus,
  formatTrust,
} from '#registry-host/certificates';
import { changeCertificates } from '#registry-host/change';
import type { Installation } from '#registry-host/installation';
import { joinParagraphs, Lines } from '#text';
import { defineCommand, type Arguments } from '../cli/command.ts';
import { formatTable } from '../cli/format.ts';
import { dryRunOf, outputOption } from '../cli/options.ts';
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
    'The action status, or show, shows the certificates. The action renew reissues certificates that expire soon, ' +
    'lack the host name of the registry, or fail strict verification. The action trust prints the certificate ' +
    'authority (CA) in the forms that clusters and hosts need. Certificates made by mirror-registry are renewed with ' +
    'the same keys and the same CA, so clients keep their trust. Restarts Quay with the new certificates, and ' +
    'restores the old ones if Quay does not become healthy. An interrupted run resumes, and rollback reverts a ' +
    'renewal. Your own certificates are ' +
    'never changed.\n\n' +
    'Clients do not trust a new CA, so it takes two steps: --new-ca=prepare creates it and prints both CAs. When all ' +
    'clients trust both, --new-ca=switch signs with the new one.',
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

const kinds = {
  automatic: 'made by mirror-registry; they can be renewed',
  stranded: 'made by mirror-registry; they cannot be renewed, because the key of their CA is missing',
  own: 'your own; they are never changed',
  missing: 'missing',
  external: 'those of a proxy in front of the registry, which terminates TLS',
} as const;

/** Describes the certificates of a registry: who issued them, when they expire, and what must be renewed. */
function describeStatus({ kind, server, authority, next, problems }: CertificateStatus, renew: RenewalNeed): Lines {
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
  return joinParagraphs(...parts, ...(notes.length > 0 ? [new Lines(...notes)] : []));
}

/** Describes what hosts, installations and clusters need to trust the registry, ready to paste. */
function describeAuthorities(trust: ReturnType<typeof formatTrust>, { host }: Installation): Lines {
  const { certificates, installConfig, configMap, certsFolder } = trust;
  const parts = [
    new Lines(`# For hosts with podman, skopeo or CRI-O: ${certsFolder}`, Lines.split(certificates)),
    new Lines('# For install-config.yaml', Lines.split(installConfig)),
    configMap === undefined
      ? `# A cluster needs a name for ${host.value}: the keys of a ConfigMap cannot be IPv6 addresses.`
      : new Lines(
          '# For a cluster: name it in spec.additionalTrustedCA of image.config.openshift.io/cluster',
          Lines.split(configMap),
        ),
  ];
  return new Lines(...parts.flatMap((part, index) => (index === 0 ? [part] : ['---', part])));
}

/** Describes what a renewal wrote, or would write, and what to do next. */
function describeRenewal(
  { server, authority, key, changes }: Renewal,
  { authority: old }: CertificateStatus,
  { scope }: Installation,
  {
    dryRun,
    restart,
    newCa,
  }: { readonly dryRun: boolean; readonly restart: boolean; readonly newCa: string | undefined },
): string | Lines {
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
            ? `The previous CA certificate expired on ${old.notAfter.slice(0, 10)}: give clients the new one, ` +
              "with 'certs trust'."
            : `Clients trust the previous CA certificate until it expires on ${old.notAfter.slice(0, 10)}: give ` +
              "them the new one before then, with 'certs trust'.",
        ]
      : []),
    ...(serves
      ? []
      : [`Give both CAs to all clients, as 'certs trust' prints them. Then switch with --new-ca=switch.`]),
  ];
  return new Lines(...reasons, ...written, '', ...next);
}
