import { expect } from 'chai';
import { platforms } from '../.config/krew.ts';
import { namesOf, readPackageArguments } from '../.config/packageArguments.ts';

const plain = { folder: undefined, withRpm: false, base: undefined, isFast: false };

describe('the arguments of npm run package', () => {
  const read = (...words: string[]) => {
    const { wanted, ...more } = readPackageArguments(words);
    return { ...plain, ...more, wanted: wanted.map((platform) => namesOf(platform)[0]) };
  };

  it('are platforms by the names of their archives or of Node.js, and a folder, in any order', () => {
    const all = platforms.map((platform) => namesOf(platform)[0]);
    expect(read()).to.deep.equal({ ...plain, wanted: all });
    expect(read('linux-amd64', '--fast')).to.deep.equal({ ...plain, wanted: ['linux-amd64'], isFast: true });
    expect(read('dist/packages', 'win32-x64', 'linux-x64')).to.deep.equal({
      ...plain,
      folder: 'dist/packages',
      wanted: ['linux-amd64', 'windows-amd64'],
    });
    expect(read('linux-arm64', '/tmp/out-arm64').folder).to.equal('/tmp/out-arm64');
  });

  it('add an rpm, and an image on a base that is given, for Linux only', () => {
    const linux = ['linux-amd64', 'linux-arm64'];
    expect(read('rpm')).to.deep.equal({ ...plain, wanted: linux, withRpm: true });
    const base = 'docker://registry.test/ubi9/ubi-minimal@sha256:00';
    expect(read('image', `--base=${base}`, 'out')).to.deep.equal({ ...plain, folder: 'out', wanted: linux, base });
    expect(read('linux-arm64', 'rpm', 'win32-x64').wanted).to.deep.equal(['linux-arm64', 'windows-amd64']);
    for (const words of [['image'], ['--base=oci:x'], ['image', '--base=x']]) {
      expect(() => read(...words), words.join(' ')).to.throw(/^an image needs a base .*\ntry: .*--base=docker:/);
    }
  });

  it('are refused if a platform is mistyped, with the right ones', () => {
    expect(() => read('linux-x32', 'dist')).to.throw(/^unknown platform: linux-x32\n/);
    for (const words of [['linux-x86'], ['linux_amd64'], ['linux-x32', 'dist'], ['--quick'], ['darwin-aarch64']]) {
      expect(() => read(...words), words.join(' ')).to.throw(
        /^unknown platform: .*\n.*linux-amd64, linux-arm64, darwin-/,
      );
    }
  });
});
