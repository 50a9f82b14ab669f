import type { CertificateFacts, CertificateStatus } from '../../lib/registry-host/certificates/certificates.ts';
import type { Installation } from '../../lib/registry-host/installation.ts';
import type { Renewal, RenewalNeed } from '../../lib/registry-host/certificates/renewal.ts';
import type { formatTrust } from '../../lib/registry-host/certificates/trust.ts';
import { formatTable } from '../cli/format.ts';
import { joinParagraphs, Lines } from '../../lib/lines.ts';

const kinds = {
  automatic: 'made by mirror-registry; they can be renewed',
  stranded: 'made by mirror-registry; they cannot be renewed, because the key of their CA is missing',
  own: 'your own; they are never changed',
  missing: 'missing',
  external: 'those of a proxy in front of the registry, which terminates TLS',
} as const;

/** Describes the certificates of a registry: who issued them, when they expire, and what must be renewed. */
export function describeStatus(
  { kind, server, authority, next, problems }: CertificateStatus,
  renew: RenewalNeed,
): Lines {
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
export function describeAuthorities(trust: ReturnType<typeof formatTrust>, { host }: Installation): Lines {
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
export function describeRenewal(
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
            ? `The previous CA certificate expired on ${old.notAfter.slice(0, 10)}: give clients the new one, with 'certs trust'.`
            : `Clients trust the previous CA certificate until it expires on ${old.notAfter.slice(0, 10)}: give them the new one before then, with 'certs trust'.`,
        ]
      : []),
    ...(serves
      ? []
      : [`Give both CAs to all clients, as 'certs trust' prints them. Then switch with --new-ca=switch.`]),
  ];
  return new Lines(...reasons, ...written, '', ...next);
}
