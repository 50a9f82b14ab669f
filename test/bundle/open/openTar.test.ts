import { appendFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { metadataPath } from '../../../lib/bundle/metadata/metadata.ts';
import type { BundlePart } from '../../../lib/bundle/open/bundle.ts';
import { openTar } from '../../../lib/bundle/open/openTar.ts';
import { Archive } from '../../../lib/content/archive/archive.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { readContent } from '../../../lib/content/store/store.ts';
import { PluginError } from '../../../lib/errors.ts';
import { makeTarFile } from '../../support/archive/archive.ts';
import { rewrite } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('openTar', () => {
  let bundle: TestBundle;
  const context = makeContext();
  const at = (name: string): string => join(bundle.folder, name);
  before(async () => {
    bundle = await makeBundle({ components: 2 });
  });
  after(() => bundle.remove());

  it('refuses a tar that does not begin with metadata.json', async () => {
    const files = [
      { path: 'config/a.yaml', content: Buffer.from('a: b\n') },
      { path: metadataPath, content: Buffer.from('{}') },
    ];
    const path = await rewrite(bundle.path, at('other.tar'), () => makeTarFile(files));
    const { message, hint } = await failureOf(openTar(path, { tolerant: true }, context), 'invalid-bundle');
    expect(message).to.equal(`${path} is a tar, but not an upgrade bundle: it does not begin with ${metadataPath}`);
    expect(hint).to.equal('Create bundles with the command create.');
  });

  it('opens a truncated tar only on request, up to its end', async () => {
    const half = bundle.result.metadata.size - 1024 - 1000;
    const path = await rewrite(bundle.path, at('cut.tar'), (bytes) => bytes.subarray(0, half));
    await failureOf(openTar(path, {}, context), 'invalid-bundle');
    await using opened = await openTar(path, { tolerant: true }, context);
    expect(opened.damage?.code).to.equal('invalid-bundle');
    expect(opened.cutEntry).to.match(/^v2\//);
    expect(opened.isCut).to.equal(true);
    expect(opened.size).to.be.lessThan(half);
    expect(opened.trailing).to.equal(0);
  });

  it('does not take a corrupt tar for a truncated one', async () => {
    const archive = await Archive.open(bundle.path, context);
    const { start } = [...archive.entries.values()][3] ?? expect.fail();
    await archive.close();
    const path = await rewrite(bundle.path, at('corrupt.tar'), (bytes) => bytes.fill('x', start - 512, start));
    await using opened = await openTar(path, { tolerant: true }, context);
    expect(opened.damage?.code).to.equal('invalid-bundle');
    expect(opened).to.include({ isCut: false, trailing: 0 });
  });

  it('keeps reading a tar after a reader stopped', async () => {
    await using opened = await openTar(bundle.path, {}, context);
    const descriptor = await opened.content.resolve(bundle.release.tag);
    const stream = await opened.content.fetch(descriptor);
    stream.destroy();
    await failureOf(
      opened.scan(() => {
        throw new PluginError('interrupted', 'enough');
      }),
      'interrupted',
    );
    expect(await readContent(opened.content, descriptor)).to.have.length(descriptor.size);
  });

  it('stops a scan that is interrupted', async () => {
    const stopped = makeContext();
    await using opened = await openTar(bundle.path, {}, stopped);
    stopped.interrupt();
    await failureOf(
      opened.scan(() => undefined),
      'interrupted',
    );
  });

  it('gives every byte to its part, in the order of the tar, and bytes after the tar as trailing', async () => {
    const path = await rewrite(bundle.path, at('longer.tar'), (bytes) => bytes);
    await appendFile(path, 'more');
    const bytes = await readFile(path);
    await using opened = await openTar(path, {}, context);
    expect(opened.trailing).to.equal(4);
    const parts: [part: BundlePart, bytes: Buffer][] = [];
    const digests = await opened.scan((part, chunk) => parts.push([part, Buffer.from(chunk)]));
    expect(digests?.digest).to.equal(digestOf(bytes));
    expect(Buffer.concat(parts.map(([, chunk]) => chunk)).equals(bytes)).to.equal(true);
    const names = parts.map(([part]) => (typeof part === 'string' ? part : part.path));
    expect(names.slice(0, 3)).to.deep.equal(['header', metadataPath, 'padding']);
    expect(names.slice(-2)).to.deep.equal(['padding', 'trailing']);
    expect(names.filter((name) => name.includes('/'))).to.deep.equal(
      opened.files.map((file) => file.path).filter((name) => name.includes('/')),
    );
    for (const [part, chunk] of parts) if (part === 'header') expect(chunk.length % 512).to.equal(0);
    expect(parts.find(([part]) => typeof part === 'object')?.[1]).to.deep.equal(await opened.read(metadataPath));
  });

  it('reads a large tar ahead, and hashes it in a thread of its own', async () => {
    const path = await rewrite(bundle.path, at('large.tar'), (bytes) =>
      Buffer.concat([bytes, Buffer.alloc(17 * 1024 * 1024, 'pattern')]),
    );
    const bytes = await readFile(path);
    await using opened = await openTar(path, { tolerant: true }, context);
    const chunks: Buffer[] = [];
    const digests = await opened.scan((_, chunk) => chunks.push(Buffer.from(chunk)));
    expect(digests).to.deep.equal({ digest: digestOf(bytes), volumes: [] });
    expect(Buffer.concat(chunks).equals(bytes)).to.equal(true);
  });
});
