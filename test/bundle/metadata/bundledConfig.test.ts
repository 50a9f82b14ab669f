import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import {
  findExcess,
  listConfig,
  parseConfig,
  readBundledConfig,
  readBundledSignatures,
  readConfigFolder,
  readFolderSignatures,
  type BundledConfig,
  type ConfigText,
} from '../../../lib/bundle/metadata/bundledConfig.ts';
import { openBundle } from '../../../lib/bundle/open/open.ts';
import { formatManifest } from '../../../lib/config/manifest.ts';
import { signatureConfigMap } from '../../../lib/config/signatures.ts';
import { RootFolder } from '../../../lib/content/files/rootFolder.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { repack } from '../../support/archive/repack.ts';
import { makeBundle, type TestBundle } from '../../support/content/bundle.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';

const digest = digestOf('a release');
const mebibyte = 1024 * 1024;

/** A file with signatures of the release, each of its own bytes. */
const signed = (path: string, ...signatures: string[]): ConfigText => {
  const bytes = signatures.map((text) => Buffer.from(text));
  return { path, text: formatManifest(signatureConfigMap(digest, bytes, { signer: 'A' }).object) };
};
const plain = (path: string, text: string): ConfigText => ({ path, text });

describe('listConfig', () => {
  const files = ['metadata.json', 'config/a.yaml', 'config/b/c.json', 'config/run.sh', 'other/a.yaml'].map((path) => ({
    path,
    size: 1,
  }));
  const listed = (form: 'tar' | 'directory'): string[] => listConfig({ files, form }).map(({ path }) => path);

  it('lists all files below config in a tar, and the manifests there in a directory', () => {
    expect(listed('tar')).to.deep.equal(['config/a.yaml', 'config/b/c.json', 'config/run.sh']);
    expect(listed('directory')).to.deep.equal(['config/a.yaml', 'config/b/c.json']);
  });
});

describe('findExcess', () => {
  const files = (count: number, size: number) =>
    Array.from({ length: count }, (_, index) => ({ path: `config/${index}.yaml`, size }));

  it('accepts files up to each limit', () => {
    for (const accepted of [files(1000, 100), files(4, mebibyte), []]) expect(findExcess(accepted)).to.equal(undefined);
  });

  it('names the limit that is exceeded, and the file', () => {
    const messageOf = (list: ReturnType<typeof files>): string | undefined => findExcess(list)?.message;
    expect(messageOf(files(1001, 1))).to.equal(
      'config has 1001 files, more than the limit of 1000: nothing of it is read',
    );
    expect(messageOf(files(5, mebibyte))).to.equal(
      `config has ${5 * mebibyte} bytes, more than the limit of ${4 * mebibyte}: nothing of it is read`,
    );
    expect(findExcess([...files(1, 1), { path: 'config/x.yaml', size: mebibyte + 1 }])).to.deep.include({
      kind: 'unexpected',
      subject: 'file',
      what: 'config/x.yaml',
    });
  });
});

describe('parseConfig', () => {
  const parse = (...texts: ConfigText[]): Promise<BundledConfig> => parseConfig(texts, makeContext());
  const messagesOf = ({ problems }: BundledConfig): string[] => problems.map(({ message }) => message);

  it('returns the objects of each file, and the signatures of all, each once', async () => {
    const { files, signatures, problems } = await parse(
      signed('config/a.yaml', 'one', 'two'),
      signed('config/b.yaml', 'two', 'three'),
      plain('config/c.yaml', 'kind: Secret\napiVersion: v1\nmetadata: {name: x}\n'),
    );
    expect(problems).to.deep.equal([]);
    expect(files.map(({ path, objects }) => [path, objects.map(({ kind }) => kind)])).to.deep.equal([
      ['config/a.yaml', ['ConfigMap']],
      ['config/b.yaml', ['ConfigMap']],
      ['config/c.yaml', ['Secret']],
    ]);
    expect([...signatures.keys()]).to.deep.equal([digest]);
    expect(signatures.get(digest)?.map(String)).to.have.members(['one', 'two', 'three']);
  });

  it('reports unreadable files, reads the others, and stops after five', async () => {
    const bad = (count: number): ConfigText[] =>
      Array.from({ length: count }, (_, index) => plain(`config/${index}.yaml`, 'a: ['));
    const some = await parse(...bad(4), signed('config/x.yaml', 'one'));
    expect(some.problems.map(({ kind, what }) => [kind, what])).to.deep.equal(
      bad(4).map(({ path }) => ['corrupt', path]),
    );
    expect(some.files).to.have.length(1);
    const many = await parse(...bad(9), signed('config/x.yaml', 'one'));
    expect(many.problems).to.have.length(5);
    expect(many.files).to.deep.equal([]);
  });

  it('limits the YAML of all files together', async () => {
    const large = (path: string): ConfigText => plain(path, `a: [${'x,'.repeat(5_000)}]\nkind: X\napiVersion: v1\n`);
    expect((await parse(large('config/a.yaml'))).problems).to.deep.equal([]);
    const config = await parse(...Array.from('abcdefghijklmnopqrst', (name) => large(`config/${name}.yaml`)));
    expect(messagesOf(config)).to.deep.equal(['config has more YAML than any release needs']);
    expect(config.files.length).to.be.within(5, 19);
  });

  it('uses no signature of a release that has more of them than any release', async () => {
    const names = Array.from({ length: 33 }, (_, index) => `signature ${index}`);
    expect((await parse(signed('config/a.yaml', ...names.slice(1)))).signatures.get(digest)).to.have.length(32);
    const { signatures, problems } = await parse(signed('config/a.yaml', ...names));
    expect(signatures.size).to.equal(0);
    expect(problems).to.have.length(1);
    expect(problems[0]).to.deep.include({ kind: 'unexpected', subject: 'signature', what: digest });
    expect(problems[0]?.message).to.equal(`config has 33 signatures of ${digest}, more than any release has`);
  });

  it('stops between two files if it is interrupted', async () => {
    const context = makeContext();
    const reading = parseConfig([plain('config/a.yaml', 'a: b'), plain('config/b.yaml', 'a: b')], context);
    context.interrupt();
    await failureOf(reading, 'interrupted');
  });
});

describe('the configuration of a bundle', () => {
  let made: TestBundle;
  before(async () => {
    made = await makeBundle({ components: 1 });
  });
  after(() => made.remove());

  it('has the signatures of its release', async () => {
    await using bundle = await openBundle(made.path, makeContext());
    expect([...(await readBundledSignatures(bundle, makeContext())).keys()]).to.deep.equal([made.release.digest]);
  });

  it('is not read if it exceeds a limit', async () => {
    const path = await repack(made.path, join(made.folder, 'large.tar'), ({ files }) => {
      files.set('config/x.yaml', Buffer.alloc(mebibyte + 1, ' '));
    });
    await using bundle = await openBundle(path, makeContext());
    const { files, signatures, problems } = await readBundledConfig(bundle, makeContext());
    expect({ files, signatures }).to.deep.equal({ files: [], signatures: new Map() });
    expect(problems.map(({ what }) => what)).to.deep.equal(['config/x.yaml']);
    const { message } = await failureOf(readBundledSignatures(bundle, makeContext()), 'invalid-file');
    expect(message).to.match(new RegExp(`^${path}: config has config/x.yaml of ${mebibyte + 1} bytes`));
  });
});

describe('a folder of manifests', () => {
  let folder: string;
  const { signal } = makeContext();
  beforeEach(async () => {
    folder = await makeFolder();
    await mkdir(join(folder, 'config', 'signature'), { recursive: true });
  });
  afterEach(() => removeFolder(folder));

  it('is read with its subfolders, and without other files', async () => {
    const { text } = signed('', 'one');
    await writeFile(join(folder, 'config', 'signature', 'a.yaml'), text);
    await writeFile(join(folder, 'config', 'notes.txt'), '{');
    expect(await readConfigFolder(new RootFolder(folder), 'config', signal)).to.deep.equal([
      { path: join(folder, 'config', 'signature', 'a.yaml'), text },
    ]);
    const signatures = await readFolderSignatures(new RootFolder(folder), makeContext());
    expect(signatures.get(digest)?.map(String)).to.deep.equal(['one']);
    expect(await readConfigFolder(new RootFolder(folder), 'absent', signal)).to.deep.equal([]);
  });

  it('is refused if it exceeds a limit, or has a file that is not YAML', async () => {
    await writeFile(join(folder, 'config', 'a.yaml'), 'a: [');
    await failureOf(readFolderSignatures(new RootFolder(folder), makeContext()), 'invalid-file');
    await writeFile(join(folder, 'config', 'a.yaml'), Buffer.alloc(mebibyte + 1));
    const { message } = await failureOf(readConfigFolder(new RootFolder(folder), 'config', signal), 'too-large');
    expect(message).to.match(new RegExp(`^${folder}: config has config/a.yaml of ${mebibyte + 1} bytes`));
  });
});
