import { createHash } from 'node:crypto';
import { expect } from 'chai';
import { formatReport } from '../../../../cmd/upgrade-bundle/report/inspectPage.ts';
import { inspectBundle } from '../../../../lib/bundle/inspect/inspect.ts';
import { inspectRelease, type ReleaseInspection } from '../../../../lib/bundle/inspect/release.ts';
import { openBundle } from '../../../../lib/bundle/open/open.ts';
import { formatBytes } from '../../../../lib/text.ts';
import { makeBundle, type TestBundle } from '../../../support/content/bundle.ts';
import { makeContext } from '../../../support/context.ts';

/** Returns the text of a page without its tags. */
const wordsOf = (page: string): string => page.replace(/<(style|script)>.*?<\/\1>/gs, '').replace(/<[^>]*>/g, ' ');

const unescape = (text: string): string =>
  text.replace(/&#(\d+);/g, (_, code: string) => String.fromCharCode(Number(code)));

describe('formatReport', () => {
  let made: TestBundle;
  let inspection: ReleaseInspection;
  let described: ReleaseInspection;
  let page: string;

  before(async () => {
    made = await makeBundle({ components: 8, previous: ['4.11.1'] });
    const bundle = await openBundle(made.path, makeContext());
    // Without the origin of the release, the page has no address.
    inspection = { ...(await inspectBundle(bundle, makeContext())), versions: {}, errata: [] };
    described = await inspectRelease(bundle, makeContext());
    await bundle[Symbol.asyncDispose]();
    page = formatReport(inspection);
  });
  after(() => made.remove());

  it('names the release, the digest and the signer, and says that nothing was verified', () => {
    const words = wordsOf(page);
    for (const fact of [inspection.release, made.result.digest, made.key.fingerprint, 'test/1', '4.11.1'])
      expect(words).to.include(fact);
    expect(words).to.include('Not verified.');
  });

  it('has every image with its digest and its sizes in a table', () => {
    for (const { name, digest, unique, size } of inspection.images) {
      const row = page.slice(page.indexOf(`<td class="digest">${digest}`) - 800).split(digest, 1)[0] ?? '';
      const words = wordsOf(row.slice(row.lastIndexOf('<tr>')));
      for (const cell of [name, formatBytes(unique), formatBytes(size)]) expect(words).to.include(cell);
    }
  });

  it('has a tile with a tooltip for every image and every shared blob', () => {
    const titles = [...page.matchAll(/<g>\s*<title>(.*?)<\/title>/g)].map(([, title = '']) => title.split(':')[0]);
    expect(titles).to.include.members(inspection.images.map(({ name }) => name));
    const shared = [...page.matchAll(/<title>(sha256:\w+):/g)].map(([, digest]) => digest);
    expect(shared).to.have.members(inspection.sharedBlobs.map(({ digest }) => digest));
  });

  it('needs no other file, and allows only its own style and script', () => {
    expect(page).not.to.match(/\b(?:src|xlink:href|style|on\w+)=/);
    expect([...page.matchAll(/href="([^"]*)"/g)].map(([, target]) => target)).to.deep.equal(['#verify']);
    expect(page).not.to.match(/url\(|@import|https?:\/\//);
    const policy = /Content-Security-Policy" content="([^"]*)"/.exec(page)?.[1] ?? '';
    expect(policy).to.match(/^default-src 'none';/);
    for (const [, tag = '', text = ''] of page.matchAll(/<(style|script)>(.*?)<\/\1>/gs)) {
      const hash = createHash('sha256').update(text).digest('base64');
      expect(policy).to.include(`${tag}-src 'sha256-${hash}'`);
    }
  });

  it('closes every element that it opens', () => {
    const open: string[] = [];
    const body = page.replace(/<(style|script)>.*?<\/\1>/gs, '').replace(/^<!doctype html>/, '');
    for (const [, close, tag = '', empty] of body.matchAll(/<(\/?)([a-z][a-z0-9]*)[^>]*?(\/?)>/g)) {
      if (close) expect(open.pop()).to.equal(tag);
      else if (!empty) open.push(tag);
    }
    expect(open).to.deep.equal([]);
  });

  it('names the images that a delta bundle does not have whole', () => {
    const images = inspection.images.map((image, index) => ({ ...image, complete: index > 0 }));
    expect(page).not.to.include('incomplete');
    expect(formatReport({ ...inspection, images }).match(/<small>incomplete/g)).to.have.length(1);
  });

  it('is the same for the same bundle, in any folder', () => {
    const elsewhere = { ...inspection, path: `/elsewhere/${made.path.split('/').at(-1) ?? ''}` };
    expect(formatReport(elsewhere)).to.equal(page);
  });

  it('lets nothing in a bundle become markup', () => {
    const hostile = `</title></svg><script>alert(1)</script><img src=x onerror="alert('1')">`;
    const [image] = inspection.images;
    if (!image) throw new Error('there is no image');
    const poisoned: ReleaseInspection = {
      ...inspection,
      path: `/x/${hostile.replaceAll('/', '')}.tar`,
      version: hostile,
      arch: hostile,
      release: `${hostile}@${image.digest}`,
      tool: hostile,
      previous: [hostile],
      notes: [hostile],
      signatures: [
        {
          digest: image.digest,
          image: hostile,
          signers: [{ signer: hostile, fingerprint: hostile }],
          held: 1,
          file: hostile,
        },
      ],
      images: [{ ...image, name: hostile, aliases: [hostile], platforms: [hostile], unique: 1e9 }],
    };
    const poisonedPage = formatReport(poisoned);
    const tagsOf = (text: string): Set<string> => new Set([...text.matchAll(/<[a-z]+[^>]*/g)].map(([tag]) => tag));
    expect([...tagsOf(poisonedPage)].filter((tag) => /^<(?:script|img)|onerror|alert/.test(tag))).to.deep.equal([
      '<script',
    ]);
    expect(poisonedPage.match(/<script/g)).to.have.length(1);
    expect(unescape(poisonedPage)).to.include(hostile);
  });

  it('prints commands that are safe in a shell, for any file name', () => {
    const odd = formatReport({ ...inspection, path: "/x/it's $(id).tar" });
    expect(unescape(odd)).to.include("oc adm-upgrade-bundle verify 'it'\\''s $(id).tar'");
    const dashed = formatReport({ ...inspection, path: '/x/-rf.tar' });
    expect(dashed).to.include('oc adm-upgrade-bundle verify ./-rf.tar');
    expect(page).not.to.contain('tar -xf');
  });

  it('explains the checks that a directory allows', () => {
    const { digest, ...rest } = inspection;
    expect(digest).not.to.equal(undefined);
    const directory = unescape(formatReport({ ...rest, form: 'directory', path: '/x/mirror' }));
    expect(directory).to.include('cd mirror/v2/openshift/release/blobs && ');
    expect(directory).to.include('cat mirror/config/signature/');
    expect(directory).not.to.match(/<pre>[^<]*tar -x/);
  });

  it('prints commands that work for volumes and for a delta bundle', () => {
    const volumes = [0, 1].map((index) => ({ name: `my bundle.tar.00${index}`, size: 1 }));
    const base = { version: '4.12.3', arch: 'x86_64' as const, release: 'q.io/a/b', blobs: 1, bytes: 1 };
    const split = unescape(formatReport({ ...inspection, path: '/x/my bundle.tar', volumes, base }));
    expect(split).to.include("cat 'my bundle.tar'.[0-9][0-9][0-9] | tar -xOf - config/signature/");
    expect(split).to.include('put the bundle of its base 4.12.3 into the same folder');
    expect(unescape(page)).not.to.include('It is a delta');
  });

  it('has the versions of Kubernetes and RHCOS, the advisory, and the source and commit of each component', () => {
    const whole = formatReport(described);
    const words = wordsOf(whole).replaceAll(/\s+/g, ' ');
    expect(words)
      .to.match(/ Kubernetes 1\.\d+\.4 /)
      .and.to.match(/ RHCOS 4\d+\.86\./);
    expect(whole).to.include('<a href="https://access.redhat.com/errata/RHSA-2023:0769">');
    const components = described.images.filter(({ kind }) => kind !== 'release');
    expect(components).to.have.length(8);
    for (const { digest, source } of components) {
      const row = whole.slice(whole.indexOf(`<td class="digest">${digest}`)).split('</tr>', 1)[0] ?? '';
      expect(source?.commit).to.match(/^[0-9a-f]{40}$/);
      expect(row).to.include(`href="${source?.repository}"`).and.to.include(source?.commit);
    }
    expect(new Set(components.map(({ source }) => source?.repository)).size).to.equal(8);
  });

  it('has a list in place of the map for narrow screens, with the same sizes', () => {
    const [list = ''] = /<ol class="bars">.*?<\/ol>/s.exec(page) ?? [];
    const rows = [...list.matchAll(/<span>(.*?)<\/span> <b>(.*?)<\/b>/g)].map(([, name, size]) => [name, size]);
    for (const { name, unique } of inspection.images) expect(rows).to.deep.include([name, formatBytes(unique)]);
    expect(list.match(/<rect class="[a-z-]+" width="100" /g)).to.have.length(1);
  });

  it('shows missing content', () => {
    const noted = formatReport({ ...inspection, notes: ['cli: a blob is missing'] });
    expect(wordsOf(noted)).to.include('cli: a blob is missing');
    expect(wordsOf(page)).not.to.include('missing');
  });
});
