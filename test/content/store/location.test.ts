import { execFileSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join, relative, resolve } from 'node:path';
import { expect } from 'chai';
import { openLocation, parseLocation } from '../../../lib/content/store/location.ts';
import { readContent } from '../../../lib/content/store/store.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { layOutAsOc, makeFolder, removeFolder } from '../../support/release/mirrorDirectory.ts';
import { makeSample, type Sample } from './contract.ts';

describe('parseLocation', () => {
  let folder: string;
  before(async () => {
    folder = await makeFolder();
    await mkdir(join(folder, 'mirror'));
    await writeFile(join(folder, 'upgrade-4.12.4-x86_64.tar'), '');
    await writeFile(join(folder, 'copy'), '');
  });
  after(() => removeFolder(folder));

  it('takes a folder for a mirror directory, however it is written', async () => {
    const path = join(folder, 'mirror');
    for (const text of [
      path,
      `${path}/`,
      `file://${path}`,
      relative(process.cwd(), path),
      `file://${relative(process.cwd(), path)}`,
    ]) {
      expect(await parseLocation(text), text).to.deep.equal({ kind: 'directory', path });
    }
  });

  it('accepts any file name for an archive', async () => {
    for (const name of ['upgrade-4.12.4-x86_64.tar', 'copy']) {
      const path = join(folder, name);
      expect(await parseLocation(path)).to.deep.equal({ kind: 'archive', path });
    }
  });

  it('takes anything else for a reference into a registry', async () => {
    const [repository, tag] = ['openshift-release-dev/ocp-release', '4.12.4-x86_64'];
    const reference = { registry: 'quay.io', repository, tag, digest: undefined };
    const text = 'quay.io/openshift-release-dev/ocp-release:4.12.4-x86_64';
    expect(await parseLocation(text)).to.deep.equal({ kind: 'registry', reference });
    expect(await parseLocation(`docker://${text}`)).to.deep.equal({ kind: 'registry', reference });
  });

  it('fails with not-found for a missing path, and never takes it for a registry', async () => {
    for (const text of [join(folder, 'nope'), './nope', '../nope/nope', 'file://nope', 'nope.tar', 'some/nope.tar']) {
      const error = await failureOf(parseLocation(text), 'not-found');
      expect(error.message).to.include(resolve(text.replace('file://', '')));
    }
  });

  it('refuses a text that is neither', async () => {
    await failureOf(parseLocation('/dev/null'), 'usage');
    await failureOf(parseLocation('quay.io/UPPER/case'), 'invalid-reference');
  });
});

describe('openLocation', () => {
  const context = makeContext();
  let folder: string;
  let sample: Sample;
  before(async () => {
    folder = await makeFolder();
    sample = makeSample();
    await layOutAsOc(join(folder, 'mirror'), sample.content);
    const tar = join(folder, 'mirror.tar');
    // Without the hard links: a bundle has each manifest once or twice, and links only for tags.
    execFileSync('tar', ['--hard-dereference', '--format=posix', '-cf', tar, '-C', join(folder, 'mirror'), 'v2']);
  });
  after(() => removeFolder(folder));

  for (const name of ['mirror', 'mirror.tar']) {
    it(`opens ${name}`, async () => {
      await using opened = await openLocation(await parseLocation(join(folder, name)), context);
      expect(opened.repositories).to.deep.equal([sample.repository]);
      expect(opened.repository('other/place')).to.equal(undefined);
      const source = opened.repository(sample.repository);
      if (!source) throw new Error('it is not there');
      expect(await source.resolve('1.0-multi')).to.deep.include({ digest: sample.list.digest });
      expect(await readContent(source, sample.image)).to.have.length(sample.image.size);
    });
  }

  it('refuses a folder that is no mirror directory, a file that is no archive, and a registry', async () => {
    await failureOf(
      openLocation(await parseLocation('registry.example.com:5000/openshift/release:1.0'), context),
      'usage',
    );
    await failureOf(openLocation(await parseLocation(folder), context), 'not-found');
    await writeFile(join(folder, 'text'), 'x'.repeat(1024));
    await failureOf(openLocation(await parseLocation(join(folder, 'text')), context), 'invalid-bundle');
  });
});
