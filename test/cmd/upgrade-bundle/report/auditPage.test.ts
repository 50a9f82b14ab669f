import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { formatAudit } from '../../../../cmd/upgrade-bundle/report/auditPage.ts';
import { formatVerified, toPlainVerified } from '../../../../cmd/upgrade-bundle/verify.ts';
import { addBases } from '../../../../lib/bundle/open/deltaBase.ts';
import { openBundle } from '../../../../lib/bundle/open/open.ts';
import { verifyBundle, type VerifyReport } from '../../../../lib/bundle/verify.ts';
import { releaseRepository } from '../../../../lib/content/store/directory.ts';
import { makeBundle, type TestBundle } from '../../../support/content/bundle.ts';
import { makeContext } from '../../../support/context.ts';
import { attachmentTag } from '../../../support/release/attachments.ts';
import { imagePolicyFiles } from '../../../support/release/imagePolicy.ts';
import { acceptUnsigned } from '../../../support/release/trust.ts';

const audit = { date: new Date('2026-11-01T12:00:00Z'), tool: 'test/1', keys: new Map() };

describe('formatAudit', () => {
  let made: TestBundle;
  let report: VerifyReport;

  async function verify(path: string): Promise<VerifyReport> {
    await using bundle = await openBundle(path, makeContext());
    const trust = {
      ...acceptUnsigned,
      keyrings: [made.keyFile],
      fingerprints: [made.key.fingerprint],
      allowUnsigned: false,
    };
    return await verifyBundle(bundle, { trust }, makeContext());
  }

  before(async () => {
    made = await makeBundle({ components: 4, attachments: () => true, files: imagePolicyFiles() });
    report = await verify(made.path);
  });
  after(() => made.remove());

  it('has the date, the tool, the digest, the keys, the policy and the errata', () => {
    const page = formatAudit(report, audit);
    const key = report.policies[0]?.policy.trust;
    const fingerprint = key?.kind === 'key' ? key.key.fingerprint : '';
    const facts = [
      '1 November 2026, 12:00 UTC',
      'test/1',
      made.result.digest,
      made.key.fingerprint,
      fingerprint,
      'policy openshift, unknown key',
    ];
    for (const fact of facts) expect(page).to.include(fact);
    expect(page).to.include('href="https://access.redhat.com/errata/RHSA-2023:0769"');
    expect(page).to.match(/<p class="notice good">\s*<strong>Verified\.<\/strong>/);
  });

  it('has each image with its digest, its result and its source', () => {
    const page = formatAudit(report, audit);
    for (const [name, { digest }] of made.release.images) {
      const row =
        new RegExp(`>${name}</th>\\s*<td class="digest" data-label="Digest">${digest}</td>.*?</tr>`, 's').exec(
          page,
        )?.[0] ?? '';
      expect(row, name).to.match(/complete.*verified.*github\.com.*<code>[0-9a-f]{40}/s);
      const [, , commit] = /github\.com\/([\w/-]+)\/commit\/([0-9a-f]{40})"/.exec(row) ?? [];
      expect(row).to.include(`<code>${commit ?? 'none'}</code>`);
    }
  });

  it('lists the images that changed since the base of a delta bundle', async () => {
    await using base = await makeBundle({ version: '4.12.3', components: ['etcd', 'cli'] });
    await using delta = await makeBundle({ version: '4.12.4', components: ['etcd', 'console'], base: base.path });
    const opened = await addBases(await openBundle(delta.path, makeContext()), [base.path], makeContext());
    const compared = await verifyBundle(opened, { trust: acceptUnsigned }, makeContext());
    await opened[Symbol.asyncDispose]();
    const { changes } = compared;
    expect(changes?.release).to.equal(base.release.pullspec);
    expect(changes?.images.map((each) => `${each.kind} ${each.name}`)).to.include.members([
      'removed cli',
      'added console',
    ]);
    const page = formatAudit(compared, audit);
    const title = `Changes since 4.12.3: ${String(changes?.images.length)} of 3 images`;
    expect(page).to.include(title);
    // The bundle is not signed by a trusted key, and unsigned ones are allowed.
    expect(page).to.include('no trusted key');
    expect(page).to.match(/console<\/th>\s*<td class="" data-label="Change">added<\/td>/);
    expect(formatVerified(toPlainVerified(compared, audit.keys)).text).to.match(/Changes +since 4\.12\.3: .*1 added/);
  });

  it('says which images failed', async () => {
    const root = await made.unpack();
    await rm(join(root, 'v2', releaseRepository, 'manifests', attachmentTag(made.release.digest)));
    const page = formatAudit(await verify(root), audit);
    expect(page).to.match(/<p class="notice bad">\s*<strong>FAILED\.<\/strong>/);
    expect(page).to.match(/release<\/th>.*?missing: it has no sigstore signature/s);
    const order = ['<h2>Problems', 'Next step', '<dt>Bundle', '<h2>Signatures', '<h2>Images', '>release</th>'];
    const places = order.map((text) => page.indexOf(text));
    expect(places)
      .to.deep.equal(places.toSorted((a, b) => a - b))
      .and.not.to.include(-1);
    expect(page.indexOf('missing: it')).to.be.below(page.indexOf('>verified<'));
  });

  it('lists the warnings, and links a change to the commits between two versions', () => {
    const message = 'packed again by another program';
    const [before, after] = ['a'.repeat(40), 'b'.repeat(40)];
    const { digest } = made.release;
    const from = { digest, commit: before };
    const image = { name: 'etcd', kind: 'changed', from, to: { digest, commit: after } } as const;
    const linkOf = (repository: string): string => {
      const provenance = { versions: {}, sources: new Map([['etcd', { repository, commit: after }]]) };
      const changes = { version: '4.12.3', release: made.release.pullspec, images: [image], unchanged: 3 };
      return formatAudit({ ...report, warnings: [{ kind: 'repacked', message }], changes, provenance }, audit);
    };
    for (const suffix of ['', '.git', '/']) {
      expect(linkOf(`https://github.com/openshift/etcd${suffix}`)).to.include(
        `<a href="https://github.com/openshift/etcd/compare/${before}...${after}"><code>aaaaaaaaaaaa → ` +
          'bbbbbbbbbbbb</code></a>',
      );
    }
    const page = linkOf('https://example.com/openshift/etcd');
    expect(page).to.include('<code>aaaaaaaaaaaa → bbbbbbbbbbbb</code>').and.not.include('/compare/');
    expect(page).to.match(
      /Warnings<\/h2>.*packed again by another program.*openshift of the release has an unknown key/s,
    );
    expect(formatAudit({ ...report, policies: [] }, audit)).not.to.include('Warnings</h2>');
  });

  it('escapes the texts of a bundle, and loads nothing', () => {
    const hostile = { ...report, extraImages: ['<script>alert(1)</script>'] };
    const page = formatAudit(hostile, audit);
    expect(page).not.to.include('<script>alert');
    expect(page).to.match(/Content-Security-Policy" content="default-src 'none'/);
    expect(page).not.to.match(/\bsrc=|url\(|@import/);
  });
});
