import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import type { ConfigManifest } from '../../lib/config/manifest.ts';
import { parseManifests, readManifestTexts } from '../../lib/mirroring/manifestFolder.ts';
import { failureOf } from '../support/program/failure.ts';

const readManifests = async (folder: string): Promise<ConfigManifest[]> =>
  parseManifests(await readManifestTexts(folder), folder);

describe('readManifestTexts and parseManifests', () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'manifests-'));
    await mkdir(join(folder, 'signature', 'sha256'), { recursive: true });
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  const put = (path: string, text: string) => writeFile(join(folder, path), text);
  const object = (name: string) => JSON.stringify({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name } });

  it('finds YAML and JSON at any depth, several documents and lists, sorted by path', async () => {
    await put('signature/sha256/b.yaml', `${object('b1')}\n---\n# nothing\n---\n${object('b2')}\n`);
    await put('a.json', `{"apiVersion":"v1","kind":"List","items":[${object('a1')},${object('a2')}]}`);
    await put('c.yml', object('c'));
    await put('README.md', 'not a manifest');
    const found = await readManifests(folder);
    expect(found.map(({ path, object: { metadata } }) => `${path} ${metadata.name}`)).to.deep.equal([
      'a.json a1',
      'a.json a2',
      'c.yml c',
      'signature/sha256/b.yaml b1',
      'signature/sha256/b.yaml b2',
    ]);
    expect(await readManifests(join(folder, 'c.yml'))).to.have.length(1);
  });

  it('refuses a file that is not an object, and names it', async () => {
    for (const text of [
      '{"kind": "ConfigMap"}',
      'just words',
      '{broken',
      '{"apiVersion":"v1","kind":"X","metadata":{}}',
      '{"apiVersion":"v1","kind":"X","metadata":{"name":""}}',
    ]) {
      await put('x.yaml', text);
      const failure = await failureOf(readManifests(folder), 'invalid-file');
      expect(failure.message).to.contain(join(folder, 'x.yaml'));
    }
  });

  it('says when there is no folder, or nothing in it', async () => {
    await failureOf(readManifests(join(folder, 'absent')), 'not-found');
    expect((await failureOf(readManifests(folder), 'not-found')).hint).to.contain('config');
  });

  it('does not follow links out of the folder or in circles, and reads no devices', async () => {
    await put('a.json', object('a'));
    await symlink('.', join(folder, 'circle'));
    await symlink(tmpdir(), join(folder, 'elsewhere'));
    await symlink('a.json', join(folder, 'b.json'));
    expect((await readManifests(folder)).map(({ path }) => path)).to.deep.equal(['a.json', 'b.json']);
    await symlink('/etc/hosts', join(folder, 'c.yaml'));
    expect((await failureOf(readManifests(folder), 'invalid-file')).message).to.contain('leads out of the folder');
    await rm(join(folder, 'c.yaml'));
    await symlink('/dev/zero', join(folder, 'c.yaml'));
    expect((await failureOf(readManifests(folder), 'invalid-file')).message).to.contain('not a regular file');
  });

  it('refuses files that are too large, and aliases that multiply', async () => {
    await put('x.yaml', `# ${'x'.repeat(5 * 1024 * 1024)}`);
    await failureOf(readManifests(folder), 'too-large');
    const levels = Array.from(
      'bcdefgh',
      (name, index) => `${name}: &${name} [${`*${'abcdefgh'.charAt(index)},`.repeat(9)}]`,
    );
    await put('x.yaml', ['a: &a [x]', ...levels].join('\n'));
    expect((await failureOf(readManifests(folder), 'invalid-file')).message).to.contain('aliases');
  });
});
