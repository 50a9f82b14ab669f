import { mkdir, readdir, readFile, readlink, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { baseBlobsPath, replicaPath } from '../../../lib/node/transfer/replica.ts';
import type { RetainedBundles, RetainedFiles } from '../../../lib/update/mirror/retainedBundles.ts';
import { gatherFacts } from '../../../lib/update/record/bundleFacts.ts';
import { flipByte, makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { RetainedFolder } from '../../support/content/retainedFolder.ts';
import { makeContext, type TestContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('the bundles that a node retains', () => {
  let made: TestBundle;
  let later: TestBundle;
  let retained: RetainedFolder;
  let bundles: RetainedBundles;
  let context: TestContext;

  before(async () => {
    made = await makeBundle({ layerSize: 50_000 });
    later = await makeBundle({ layerSize: 50_000, version: '4.12.5', common: ['cli'], base: made.path });
  });
  after(async () => {
    await made.remove();
    await later.remove();
  });
  beforeEach(async () => {
    retained = await RetainedFolder.open();
    ({ bundles, context } = retained);
  });
  afterEach(() => retained.close());

  /** Returns the paths of the folder that this process has open. */
  async function listOpen(): Promise<string[]> {
    const links = (await readdir('/proc/self/fd')).map((name) => readlink(`/proc/self/fd/${name}`).catch(() => ''));
    return (await Promise.all(links)).filter((path) => path.startsWith(retained.folder));
  }
  /** Reads a blob of the files. */
  async function readBlob({ blobs }: RetainedFiles): Promise<readonly [expected: string, read: string]> {
    const [[digest, { content, size }] = expect.fail('there are no blobs')] = [...blobs];
    const mediaType = 'application/octet-stream';
    return [digest, digestOf(await buffer(await content.fetch({ digest, size, mediaType })))];
  }
  /** Lists the lines about one subject. */
  const linesOf = (words: string): string[] => context.lines.filter((line) => line.includes(words));

  it('are opened once until their file changes, and name each version once, in order', async () => {
    const copy = await retained.retain(later);
    await retained.refresh();
    await retained.retain(made, 'a');
    await retained.retain(made, 'b');
    await retained.refresh();
    expect(bundles.versions).to.deep.equal(['4.12.4', '4.12.5']);
    expect(await bundles.refresh()).to.equal(undefined);
    expect(linesOf('is served')).to.have.length(3);
    await flipByte(copy, later.release.digest);
    expect(await bundles.refresh()).not.to.equal(undefined);
  });

  it('are still read for clients that have a manifest after their removal, and until the end', async function () {
    if (process.platform !== 'linux') this.skip();
    const copy = await retained.retain(made);
    const files = await retained.refresh();
    await rm(copy);
    expect((await retained.refresh()).blobs.size).to.equal(0);
    expect(linesOf('is no longer served')).to.have.length(1);
    const [expected, read] = await readBlob(files);
    expect(read).to.equal(expected);
    expect((await listOpen()).join()).to.include(`${copy} (deleted)`);
    await retained.retain(later);
    await retained.refresh();
    await bundles.close();
    expect(await listOpen()).to.deep.equal([]);
  });

  it('are closed again if their base cannot be opened', async function () {
    if (process.platform !== 'linux') this.skip();
    await mkdir(baseBlobsPath(retained.folder, digestOf(later.path)));
    await retained.retain(later);
    expect(await bundles.refresh()).to.equal(undefined);
    expect(linesOf('is not served')).to.have.length(1);
    expect(await listOpen()).to.deep.equal([]);
  });

  it('are not refused because of an interruption', async () => {
    await retained.retain(made);
    context.interrupt();
    await failureOf(bundles.refresh(), 'interrupted');
    expect(linesOf('warn')).to.deep.equal([]);
  });

  it('are refused once, until their file changes, and keep no other bundle from being served', async () => {
    const truncated = replicaPath(retained.folder, digestOf('truncated'));
    await writeFile(truncated, (await readFile(made.path)).subarray(0, 2000));
    await writeFile(truncated.replace(/tar$/, 'json'), '{}');
    const copy = await retained.retain(made);
    await retained.refresh();
    await bundles.refresh();
    expect(bundles.paths).to.deep.equal([copy]);
    expect(linesOf('is not served')).to.have.length(1);
    await writeFile(truncated, (await readFile(made.path)).subarray(0, 3000));
    await bundles.refresh();
    expect(linesOf('is not served')).to.have.length(2);
  });

  it('are those with facts, which the agent writes once it has verified the signature', async () => {
    const copy = await retained.retain(made);
    await rm(copy.replace(/tar$/, 'json'));
    await writeFile(join(retained.folder, 'bundle-copy.tar'), '');
    expect(await bundles.refresh()).to.equal(undefined);
    expect(context.lines).to.deep.equal([]);
  });

  it('have their size by their version, and their tags', async () => {
    const copy = await retained.retain(made);
    const { tags } = await retained.refresh();
    expect(bundles.sizes).to.deep.equal({ [made.release.version]: (await stat(copy)).size });
    expect([...tags.keys()].join(' ')).to.include('.sig');
  });

  it('say that the mirror keeps other content, also if there are none', async () => {
    await mkdir(retained.certificates);
    for (const name of ['tls.crt', 'content']) await writeFile(join(retained.certificates, name), 'metadata');
    expect((await retained.refresh()).kept).to.equal('metadata');
    await rm(join(retained.certificates, 'content'));
    expect((await retained.refresh()).kept).to.equal('all');
    expect(await bundles.refresh()).to.equal(undefined);
  });

  it('are facts alone, as soon as the mirror keeps metadata only', async () => {
    const copy = await retained.retain(made);
    const facts = copy.replace(/tar$/, 'json');
    await retained.refresh();
    await using bundle = await openBundle(made.path, makeContext());
    const fetchFile = (): Promise<undefined> => Promise.resolve(undefined);
    const trust = { keyrings: [made.keyFile], fingerprints: [made.key.fingerprint], allowUnsigned: false, fetchFile };
    await gatherFacts(bundle, digestOf(await readFile(made.path)), facts, trust, makeContext());
    await mkdir(retained.certificates);
    for (const name of ['tls.crt', 'content']) await writeFile(join(retained.certificates, name), 'metadata');
    const files = await retained.refresh();
    expect([files.kept, files.tags.size]).to.deep.equal(['metadata', 0]);
    expect(files.manifests.has(made.release.digest)).to.equal(true);
    expect(bundles.paths).to.deep.equal([facts]);
    const [expected, read] = await readBlob(files);
    expect(read).to.equal(expected);
    const sizes = [...files.manifests.values(), ...files.blobs.values()].map(({ size }) => size);
    expect(bundles.sizes).to.deep.equal({ [made.release.version]: sizes.reduce((a, b) => a + b, 0) });
    await writeFile(facts, '{}');
    expect((await retained.refresh()).manifests.size).to.equal(0);
    expect(linesOf('does not have the facts of a bundle')).to.have.length(1);
  });
});
