import { basename } from 'node:path';
import type { VerifyReport } from '#bundle/verify';
import { countAttachments } from '#content/oci';
import { rootFingerprint, listOtherKeys, nameKey, type ExpectedKeys, type NamedResult } from '#release/sigstore';
import { nameReleases, formatTime } from '../../cli/format.ts';
import {
  markup,
  type Markup,
  formatFacts,
  formatPage,
  linkTo,
  linkToCommits,
  listTable,
  listVersions,
} from './page.ts';
import { describeDelta, verdictOf } from './verdict.ts';

const colors = { Verified: 'good', Incomplete: '', FAILED: 'bad' } as const;

/** The time of a verification, and the program. */
export interface AuditContext {
  readonly date: Date;
  readonly tool: string;
  /** The keys that image policies are expected to have. */
  readonly keys: ExpectedKeys;
}

/** Formats the result of `verify` as one HTML page for an auditor. The page needs no other file. */
export function formatAudit(report: VerifyReport, { date, tool, keys }: AuditContext): string {
  const { arch, path } = report;
  const version = nameReleases(report);
  const { word, reason, hint } = verdictOf(report);
  const title = `OpenShift ${version} for ${arch}`;
  return formatPage({
    title: `${word}: ${title}`,
    header: markup`<p class="eyebrow">Verification of an upgrade bundle</p>
      <h1>${title}</h1>
      <p class="${`notice ${colors[word]}`}">
        <strong>${word}.</strong>
        ${word === 'Verified' ? 'Every check below succeeded.' : `Do not use this bundle: ${reason}.`}
        ${formatTime(date)}, by ${tool}.
        ${hint && markup`<br /><strong>Next step:</strong> ${hint}`}
      </p>`,
    main: markup`${listProblems(report)} ${listWarnings(report, keys)} ${describeBundle(report, basename(path))}
      ${describeKeys(report, keys)} ${listChanges(report)} ${listContents(report)}`,
    footer: `${tool} verified this bundle on ${formatTime(date)}.`,
  });
}

function describeBundle(report: VerifyReport, name: string): Markup {
  const { release, digest, images, blobs, manifests, attachmentTags, base, provenance, extraImages } = report;
  const rows: [string, string | Markup][] = [
    ['Bundle', markup`<code>${name}</code>`],
    ['Digest', digest === undefined ? 'not computed' : markup`<code>${digest}</code>`],
    ...report.confirmedBy.map((source): [string, string] => ['', `the same as in ${source}`]),
    ['Release', markup`<code>${release}</code>`],
    ['Images', `${images.whole} of ${images.expected} are complete`],
    ['Content', `${blobs} blobs, ${manifests} manifests, among them ${countAttachments(attachmentTags)}`],
    ...(base === undefined ? [] : [['Delta', describeDelta(report, base)] satisfies [string, string]]),
    ['Not signed', extraImages.length === 0 ? 'no extra images' : extraImages.join(', ')],
    ...(provenance?.errata === undefined ? [] : [['Errata', linkTo(provenance.errata)] satisfies [string, Markup]]),
    ...listVersions(provenance ?? { versions: {} }),
  ];
  return formatFacts(rows);
}

function describeKeys({ signatures, policies }: VerifyReport, keys: ExpectedKeys): Markup {
  const signers = signatures.map(({ userId, fingerprint, created, digest }) => [
    'GPG',
    userId,
    fingerprint,
    `${formatTime(created).replace(/,.*$/, '')}, ${digest}`,
  ]);
  const used = [...new Set(policies.map(({ policy }) => policy))].map((policy) => {
    const { name, trust, scopes } = policy;
    const key = trust.kind === 'invalid' ? trust.reason : `SHA256:${rootFingerprint(trust) ?? ''}`;
    const owner = trust.kind === 'key' ? `, ${nameKey(policy, keys) ?? 'unknown key'}` : '';
    return ['sigstore', `policy ${name}${owner}`, key, scopes.join(', ')];
  });
  const none = signers.length === 0 ? [['GPG', 'no trusted key', '', '']] : [];
  return listTable('Signatures', ['Kind', 'Signer', 'Key', 'Of'], [...none, ...signers, ...used]);
}

function listProblems({ problems }: VerifyReport): Markup | undefined {
  if (problems.length === 0) return undefined;
  const rows = problems.map(({ kind, subject, message, images, hint }) => {
    return [kind, subject, message, images.join(', '), hint ?? 'Copy or create the bundle again.'];
  });
  return listTable('Problems', ['Kind', 'Of', 'Problem', 'Images', 'Next step'], rows);
}

function listWarnings({ warnings, policies }: VerifyReport, keys: ExpectedKeys): Markup | undefined {
  const texts = [...warnings.map(({ message }) => message), ...listOtherKeys(policies, keys)];
  if (texts.length === 0) return undefined;
  return markup`<h2>Warnings</h2>
    <ul>${texts.map((text) => markup`<li>${text}</li>`)}</ul>`;
}

function listChanges({ changes, provenance }: VerifyReport): Markup | undefined {
  if (!changes) return undefined;
  const { version, images, unchanged } = changes;
  const rows = images.map(({ name, kind, from, to }) => {
    const repository = provenance?.sources.get(name)?.repository;
    return [name, kind, to?.digest ?? '', linkToChange(repository, from?.commit, to?.commit)];
  });
  const title = `Changes since ${version}: ${images.length} of ${images.length + unchanged} images`;
  return listTable(title, ['Image', 'Change', 'Digest', 'Commit'], rows);
}

function linkToChange(repository: string | undefined, from: string | undefined, to: string | undefined): Markup {
  const [before, after] = [from, to].map((commit) => commit?.slice(0, 12));
  if (from === undefined || to === undefined)
    return linkToCommits(repository, `commit/${to ?? from ?? ''}`, after ?? before ?? 'unknown');
  return from === to ? markup`the same` : linkToCommits(repository, `compare/${from}...${to}`, `${before} → ${after}`);
}

function listContents({ contents, policies, provenance }: VerifyReport): Markup {
  const results = Map.groupBy(policies, ({ name }) => name);
  const isBad = ({ names, isWhole }: (typeof contents)[number]): boolean =>
    !isWhole ||
    names.some((name) => results.get(name)?.some(({ outcome }) => outcome === 'missing' || outcome === 'rejected'));
  const sorted = contents.toSorted((a, b) => Number(isBad(b)) - Number(isBad(a)));
  const rows = sorted.flatMap(({ digest, names, isWhole }) =>
    names.map((name) => {
      const source = provenance?.sources.get(name);
      return [
        name,
        digest,
        isWhole ? 'complete' : 'INCOMPLETE',
        describeOutcomes(results.get(name) ?? []),
        source
          ? markup`${linkTo(source.repository)} ${linkToCommits(source.repository, `commit/${source.commit}`, source.commit)}`
          : '',
      ];
    }),
  );
  return listTable('Images', ['Image', 'Digest', 'Content', 'Sigstore', 'Source'], rows);
}

function describeOutcomes(results: readonly NamedResult[]): string {
  if (results.length === 0) return 'no policy';
  return [...new Set(results.map(({ outcome, reasons }) => [outcome, ...reasons].join(': ')))].join('; ');
}
