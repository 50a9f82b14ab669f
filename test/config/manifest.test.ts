import { mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import {
  formatManifest,
  type KubernetesObject,
  readObjects,
  findManifestFiles,
  writeTextFile,
} from '../../lib/config/manifest.ts';
import { PluginError } from '../../lib/errors.ts';
import { failureOf } from '../support/program/failure.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';

describe('formatManifest', () => {
  const object: KubernetesObject = {
    spec: { b: ['x', 'y'], a: { z: 1, name: 'n' } },
    kind: 'Thing',
    metadata: { namespace: 'ns', name: 'thing', labels: { b: '', a: 'yes' } },
    apiVersion: 'v1',
  };

  it('writes the same bytes in any order of the keys, the identity first', () => {
    const text = formatManifest(object);
    const other = {
      apiVersion: 'v1',
      metadata: object.metadata,
      kind: 'Thing',
      spec: { a: { name: 'n', z: 1 }, b: ['x', 'y'] },
    };
    expect(formatManifest(other)).to.equal(text);
    expect(text).to.match(
      /^apiVersion: v1\nkind: Thing\nmetadata:\n {2}name: thing\n {2}namespace: ns\n {2}labels:\n {4}a: "yes"\n {4}b: ""\n/,
    );
    expect(parse(text)).to.deep.equal(object);
  });

  it('quotes strings that YAML 1.1 reads as another type', () => {
    const words = [
      'yes',
      'no',
      'on',
      'off',
      'y',
      'true',
      'null',
      '1.10',
      '012',
      '1e3',
      '12:30:45',
      '2023-01-01',
      '~',
      '- a',
      '#',
    ];
    const text = formatManifest({ ...object, spec: words });
    expect(parse(text, { version: '1.1' }))
      .to.have.property('spec')
      .that.deep.equals(words);
    expect(parse(text)).to.have.property('spec').that.deep.equals(words);
  });

  it('does not fold long lines and makes no anchors', () => {
    const shared = { base64: 'QUJD'.repeat(500) };
    const text = formatManifest({ ...object, spec: { one: shared, two: shared } });
    expect(text.split('\n').filter((line) => line.includes('QUJD'))).to.have.length(2);
    expect(text).not.to.contain('&');
  });
});

describe('readObjects', () => {
  it('reads the objects of all documents, and those inside of lists', () => {
    const text = 'kind: A\n---\n---\nkind: List\nitems:\n- kind: B\n- kind: List\n  items: [{kind: C}]\n';
    expect(readObjects(text, 'x.yaml').map(({ kind }) => kind)).to.deep.equal(['A', 'B', 'C']);
    expect(readObjects('{"kind": "D"}', 'x.json')).to.deep.equal([{ kind: 'D' }]);
  });

  it('reads no object from an empty text, and an empty one from a scalar', () => {
    expect(readObjects('', 'x.yaml')).to.deep.equal([]);
    expect(readObjects('just words', 'x.yaml')).to.deep.equal([{}]);
  });

  it('names a file that is neither YAML nor JSON', () => {
    expect(() => readObjects('a: [', 'broken.yaml')).to.throw(PluginError, /broken\.yaml is neither/);
  });
});

describe('writeTextFile', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await makeFolder();
  });
  afterEach(() => removeFolder(folder));

  it('makes a file with its folders, and says whether it changed', async () => {
    const path = join(folder, 'a/b/c.yaml');
    expect(await writeTextFile(folder, 'a/b/c.yaml', 'one\n')).to.equal('created');
    const { mtimeMs } = await stat(path);
    expect(await writeTextFile(folder, 'a/b/c.yaml', 'one\n')).to.equal('unchanged');
    expect((await stat(path)).mtimeMs).to.equal(mtimeMs);
    expect(await writeTextFile(folder, 'a/b/c.yaml', 'two\n')).to.equal('configured');
    expect(await readFile(path, 'utf8')).to.equal('two\n');
    expect(await readdir(join(folder, 'a/b'))).to.deep.equal(['c.yaml']);
  });

  it('only says so in a dry run', async () => {
    const path = join(folder, 'a/c.yaml');
    expect(await writeTextFile(folder, 'a/c.yaml', 'one\n', true)).to.equal('created');
    expect(await readdir(folder)).to.deep.equal([]);
    await mkdir(join(folder, 'a'));
    await writeFile(path, 'one\n');
    expect(await writeTextFile(folder, 'a/c.yaml', 'two\n', true)).to.equal('configured');
    expect(await readFile(path, 'utf8')).to.equal('one\n');
  });

  it('follows no link below the named folder, which may be one', async () => {
    const elsewhere = join(folder, 'elsewhere');
    const named = join(folder, 'named');
    await mkdir(join(folder, 'real'));
    await mkdir(elsewhere);
    await symlink(join(folder, 'real'), named);
    await symlink(elsewhere, join(named, 'a'));
    for (const dryRun of [false, true]) {
      for (const path of ['a/c.yaml', 'a/b/c.yaml']) {
        const error = await failureOf(writeTextFile(named, path, 'one\n', dryRun), 'not-writable');
        expect(error.message).to.equal(`${join(named, 'a')} is a symbolic link, which is not followed for writing`);
        expect(error.hint).to.include('Remove the link');
      }
    }
    await writeFile(join(elsewhere, 'kept'), 'kept');
    await symlink(join(elsewhere, 'kept'), join(named, 'c.yaml'));
    const { message } = await failureOf(writeTextFile(named, 'c.yaml', 'one\n'), 'not-writable');
    expect(message).to.equal(`${join(named, 'c.yaml')} is a link, a pipe or another special file`);
    expect(await readdir(elsewhere)).to.deep.equal(['kept']);
    expect(await writeTextFile(named, 'd/c.yaml', 'one\n')).to.equal('created');
    expect(await readFile(join(folder, 'real/d/c.yaml'), 'utf8')).to.equal('one\n');
  });

  it('says which file cannot be written', async () => {
    await writeFile(join(folder, 'a'), '');
    expect((await failureOf(writeTextFile(folder, 'a/b.yaml', 'one\n'), 'not-writable')).message).to.equal(
      `${join(folder, 'a')} is not a folder`,
    );
  });
});

describe('findManifestFiles', () => {
  it('finds manifests at any depth, and refuses more than 1000', async () => {
    const folder = await makeFolder();
    try {
      await mkdir(join(folder, 'a/b'), { recursive: true });
      for (let index = 0; index < 1000; index += 1) await writeFile(join(folder, 'a/b', `${index}.yaml`), '');
      await writeFile(join(folder, 'README'), '');
      expect(await findManifestFiles(folder)).to.have.length(1000);
      await writeFile(join(folder, 'last.json'), '');
      await failureOf(findManifestFiles(folder), 'too-large');
    } finally {
      await removeFolder(folder);
    }
  });
});
