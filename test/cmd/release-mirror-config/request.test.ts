import { expect } from 'chai';
import {
  configFolderOf,
  readReleases,
  readRequest,
  requireTagEach,
  type MirrorArguments,
} from '../../../cmd/release-mirror-config/request.ts';
import { formatPlace, releaseName } from '../../../lib/mirroring/mirror/destination.ts';
import { failureOf } from '../../support/program/failure.ts';
import { readLine } from '../../support/program/readLine.ts';

const to = '--to=registry.test/a/b';

/** Returns the arguments of a command line. */
const read = async (...words: string[]): Promise<MirrorArguments> =>
  (await readLine('release-mirror-config', ...words)) as MirrorArguments;

describe('the request of a mirroring', () => {
  const request = async (...words: string[]) => readRequest(await read('4.12.4', ...words));

  const refused: readonly (readonly [args: readonly string[], message: RegExp])[] = [
    [[], /^nothing says where the release goes$/],
    [[to, '--to-image-stream=release'], /exclude each other/],
    [[to, '--skip-release-image', '--to-release-image=registry.test/a/c:d'], /leaves out the image/],
    [['--to-release-image=registry.test/a/c:d', '--config-to-dir=c'], /^--to-release-image needs --to or --to-dir/],
    [['--config-to-dir=c', '--graph-data=https://graph.test/x.tar'], /^--graph-data needs/],
    [['--apply-config', '--additional-image=quay.io/a/b:1'], /^--additional-image needs --to or --to-dir$/],
    [[to, '--overwrite'], /^--overwrite replaces objects/],
  ];
  for (const [args, message] of refused)
    it(`is refused with ${args.join(' ') || 'a release only'}`, async () => {
      expect((await failureOf(request(...args), 'usage')).message).to.match(message);
    });

  for (const args of [
    ['--to-image-stream=release'],
    ['--to-dir=m', '--to-image-stream=release'],
    ['--config-to-dir=c'],
    ['--release-image-signature-to-dir=s'],
    ['--apply-config', '--overwrite'],
    ['--apply-release-image-signature', '--overwrite'],
  ])
    it(`has no place for images with ${args.join(' ')}`, async () => {
      expect((await request(...args)).destination).to.equal(undefined);
    });

  /** Returns where the release image goes, as text. */
  const placeOf = async (...words: string[]): Promise<string> => {
    const { destination } = await request(...words);
    const target = destination?.(releaseName, { version: '4.12.4', arch: 'x86_64' });
    return target ? `${formatPlace(target.place)}:${target.tag}` : 'none';
  };

  it('has a repository or a folder as its place, and a folder for the configuration', async () => {
    expect(await placeOf(to, '--to-dir=m')).to.equal('registry.test/a/b:4.12.4-x86_64');
    expect(await placeOf('--to-dir=m')).to.match(/^file:\/\/.*:4\.12\.4-x86_64$/);
    const { configFolder, configRoot } = await request(to, '--to-dir=m');
    expect([configFolder, configRoot]).to.deep.equal(['m/config', 'm']);
    expect(await request('--to-dir=m', '--config-to-dir=c')).to.include({ configFolder: 'c', configRoot: 'c' });
    expect(configFolderOf({ configToDir: undefined, toDir: undefined })).to.equal(undefined);
  });

  it('has the default place of oc for a mapping without a destination', async () => {
    expect(await placeOf('--to-mirror')).to.equal('docker.io/openshift/release:4.12.4-x86_64');
    expect(await placeOf('--to-mirror', '--to-dir=m')).to.equal(await placeOf('--to-dir=m'));
  });

  it('applies the configuration, or only the signatures, or nothing', async () => {
    const applied = async (...words: string[]): Promise<string> => (await request(to, ...words)).apply;
    expect(await applied()).to.equal('nothing');
    expect(await applied('--apply-release-image-signature')).to.equal('signatures');
    expect(await applied('--apply-config', '--apply-release-image-signature')).to.equal('configuration');
  });

  it('allows unsigned releases by either name, has no mirror set on request, and a dry run only if it is one', async () => {
    const allows = async (...words: string[]): Promise<boolean> => (await request(to, ...words)).trust.allowUnsigned;
    expect([await allows(), await allows('--skip-verification'), await allows('--allow-unsigned')]).to.deep.equal([
      ...[false, true, true],
    ]);
    expect((await request(to)).mirrorSet).to.equal('idms');
    expect((await request(to, '--print-mirror-instructions=NONE')).mirrorSet).to.equal(undefined);
    expect(await request(to)).not.to.have.property('dryRun');
    expect(await request(to, '--dry-run=server')).to.include({ dryRun: 'server' });
  });
});

describe('the releases of a mirroring', () => {
  const releases = async (...words: string[]) => readReleases(await read(to, ...words));

  const refused: readonly (readonly [args: readonly string[], message: RegExp])[] = [
    [[], /^no release is named$/],
    [['4.12.4', '--from=4.12.4'], /given twice/],
    [['--version=4.12.4', '--from=4.12.4'], /given twice/],
    [['--path-from=4.12.4'], /^a path of updates has two ends$/],
    [['--to-version=4.12.5'], /^a path of updates has two ends$/],
    [['4.12.4', '--path-from=4.12.4', '--to-version=4.12.5'], /named twice: by a path/],
    [['4.12.4', '--channel=stable-4.12'], /named twice: by --channel/],
    [['--channel=stable-4.12', '--path-from=4.12.4', '--to-version=4.12.5'], /named twice: by --channel/],
    [['4.12.4,'], /has a comma without a release/],
    [['4.12.4,4.12.4'], /4\.12\.4/],
    [['4.12.4,4.12.5', '--to-release-image=registry.test/a/b:c'], /several releases need one each/],
    [['--channel=stable-4.12', '--to-release-image=registry.test/a/b:c'], /several releases need one each/],
  ];
  for (const [args, message] of refused)
    it(`are refused with ${args.join(' ') || 'no name'}`, async () => {
      expect((await failureOf(releases(...args), 'usage')).message).to.match(message);
    });

  it('are those of the argument, of --from or --version, with commas between them', async () => {
    for (const words of [['4.12.4,4.12.5'], ['--from=4.12.4,4.12.5'], ['--version=4.12.4,4.12.5']])
      expect(await releases(...words)).to.deep.equal({ releases: ['4.12.4', '4.12.5'], ranges: [] });
  });

  it('may be a path with a comma', async () => {
    expect((await releases('./a,b.tar')).releases).to.deep.equal(['./a,b.tar']);
  });

  it('are those on a path of updates, or of channels', async () => {
    const path = { from: '4.12.4', to: '4.13.2' };
    expect(await releases('--path-from=4.12.4', '--to-version=4.13.2')).to.deep.equal({
      releases: [],
      path,
      ranges: [],
    });
    const { ranges, ...others } = await releases('--channel=stable-4.12');
    expect([ranges?.length, others]).to.deep.equal([1, { releases: [] }]);
  });

  it('get one tag each, with the version in it or without any tag', () => {
    for (const toReleaseImage of ['r.test:5000/a/b', 'r.test:5000/a/b:${version}-x', undefined])
      requireTagEach({ toReleaseImage });
    expect(() => {
      requireTagEach({ toReleaseImage: 'r.test:5000/a/b:c' });
    }).to.throw('--to-release-image has one tag');
  });
});
