import { expect } from 'chai';
import {
  describeDelta,
  listBadFiles,
  listProblems,
  verdictError,
  verdictOf,
  type Verdict,
} from '../../../../cmd/upgrade-bundle/report/verdict.ts';
import type { Problem } from '../../../../lib/bundle/open/bundle.ts';
import type { VerifyReport } from '../../../../lib/bundle/verify.ts';

const path = '/mnt/usb/b.tar';
const problem = (kind: Problem['kind'], subject: Problem['subject'], what: string, more = {}): Problem => {
  return { kind, subject, what, images: [], message: `${what} is ${kind}`, ...more };
};
const reportOf = (problems: readonly Problem[], base?: string): VerifyReport =>
  ({ path, base, problems }) as Partial<VerifyReport> as VerifyReport;
const judge = (problems: readonly Problem[], base?: string): Verdict => verdictOf(reportOf(problems, base));

const corrupt = problem('corrupt', 'blob', 'sha256:b', { images: ['etcd'] });
const volume = problem('missing', 'volume', 'b.tar.001');
const unsigned = problem('unsigned', 'signature', 'release', { hint: 'Name the signature store.' });
const untrusted = problem('untrusted', 'signature', 'release', { hint: 'Name the key.' });
const ofBase = problem('missing', 'blob', 'sha256:d', { hint: 'Name the base.' });

describe('the verdict on a bundle', () => {
  it('is that it is verified, without problems', () => {
    expect(judge([])).to.deep.equal({ word: 'Verified', reason: '', problems: [], hint: undefined });
  });

  it('counts the problems, and has their hint if all have the same one', () => {
    expect(judge([corrupt])).to.include({ word: 'FAILED', reason: '1 problem', hint: undefined });
    const both = [unsigned, { ...unsigned, what: 'other' }];
    expect(judge(both)).to.include({ word: 'FAILED', reason: '2 problems', hint: unsigned.hint });
    expect(judge([unsigned, untrusted]).hint).to.equal(undefined);
  });

  it('is only about volumes if some are missing or corrupt, each once', () => {
    const { problems, ...verdict } = judge([corrupt, volume, { ...volume, kind: 'corrupt' }, unsigned]);
    expect(problems).to.deep.equal([volume]);
    expect(verdict).to.deep.equal({
      ...{ word: 'Incomplete', reason: 'copy 1 volume again' },
      hint: 'Copy this volume again: b.tar.001. Then verify the bundle again.',
    });
    const wrong = ['b.tar.000', 'b.tar.002'].map((name) => problem('corrupt', 'volume', name));
    expect(judge(wrong)).to.include({ word: 'FAILED', reason: 'copy 2 volumes again' });
    expect(judge(wrong).hint).to.equal('Copy these volumes again: b.tar.000, b.tar.002. The other volumes are good.');
    expect(judge([volume, ...wrong])).to.include({ word: 'FAILED' });
  });

  it('is that a delta needs its base, only if nothing else is wrong', () => {
    expect(judge([ofBase], '4.19.3')).to.include({
      word: 'Incomplete',
      reason: 'needs base 4.19.3',
      hint: ofBase.hint,
    });
    expect(judge([ofBase, corrupt], '4.19.3').word).to.equal('FAILED');
    expect(judge([ofBase]).word).to.equal('FAILED');
  });

  it('becomes an error with the settings that help', () => {
    const errorOf = (problems: readonly Problem[], base?: string) => {
      const report = reportOf(problems, base);
      const { code, message, hint, settings } = verdictError(report, verdictOf(report));
      return { code, message, hint, settings };
    };
    expect(errorOf([corrupt])).to.deep.equal({
      ...{ code: 'incomplete', message: `${path} is not a good bundle: 1 problem`, settings: [] },
      hint: 'Do not use it. Copy it again from where it came from, or create it again.',
    });
    expect(errorOf([ofBase], '4.19.3')).to.deep.equal({
      ...{ code: 'incomplete', message: `${path} is incomplete: needs base 4.19.3`, hint: ofBase.hint },
      settings: ['base'],
    });
    expect(errorOf([unsigned])).to.deep.include({ code: 'unsigned', hint: unsigned.hint });
    expect(errorOf([untrusted]).settings).to.include('trustFingerprint');
    expect(errorOf([untrusted]).code).to.equal('untrusted');
    // Another copy helps too.
    expect(errorOf([untrusted, corrupt])).to.deep.include({ code: 'incomplete', settings: [] });
  });

  it('has the files to copy again: a whole tar, its volumes, or the files of a directory', () => {
    const files = (problems: readonly Problem[], isDirectory: boolean, base?: string): string[] => {
      const report = { ...reportOf(problems, base), path: isDirectory ? '/mnt/usb' : path };
      return listBadFiles(report, verdictOf(report), isDirectory);
    };
    const manifest = problem('missing', 'manifest', 'sha256:m');
    const file = problem('corrupt', 'file', 'config/a.yaml');
    expect(files([corrupt, manifest], false)).to.deep.equal([path]);
    expect(files([volume], false)).to.deep.equal(['/mnt/usb/b.tar.001']);
    expect(files([corrupt, manifest, file], true)).to.deep.equal([
      '/mnt/usb/v2/openshift/release/blobs/sha256:b',
      '/mnt/usb/v2/openshift/release/manifests/sha256:m',
      '/mnt/usb/config/a.yaml',
    ]);
    expect(files([unsigned, problem('unexpected', 'file', 'x')], true)).to.deep.equal([]);
    expect(files([ofBase], false, '4.19.3')).to.deep.equal([]);
    expect(files([ofBase], false)).to.deep.equal([path]);
  });

  it('lists up to five problems of a kind, and counts more of them with some of their images', () => {
    const listed = (problems: readonly Problem[], base?: string) => listProblems(judge(problems, base), base);
    const many = Array.from({ length: 6 }, (_, index) =>
      problem('missing', 'blob', `b${index}`, { images: [`i${index}`] }),
    );
    expect(listed(many.slice(0, 5))).to.deep.equal(
      many.slice(0, 5).map(({ message, images }) => `  missing      ${message}, needed by ${images.join()}`),
    );
    expect(listed([unsigned, ...many])).to.deep.equal([
      '  unsigned     release is unsigned',
      '  missing      6 blobs, needed by i0, i1, i2, i3, i4 and 1 more images',
      '  (-o json lists all 7 of them)',
    ]);
    expect(listed([ofBase, ofBase], '4.19.3')).to.deep.equal(['  missing      2 blobs of the base 4.19.3']);
  });

  it('describes the content that a delta leaves out', () => {
    expect(describeDelta({}, '4.19.3')).to.equal('to 4.19.3, whose blobs it leaves out');
    expect(describeDelta({ heldBySite: { blobs: 7, bytes: 2 ** 30 } }, '4.19.3')).to.equal(
      'for a site with 4.19.3; 7 blobs (1.0 GiB) that its nodes have were not checked',
    );
  });
});
