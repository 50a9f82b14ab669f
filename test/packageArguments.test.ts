import { expect } from 'chai';
import { platforms } from '../.config/krew.ts';
import { namesOf, readPackageArguments } from '../.config/packageArguments.ts';

describe('the arguments of npm run package', () => {
  const read = (...words: string[]) => {
    const { folder, wanted, isFast } = readPackageArguments(words);
    return { folder, wanted: wanted.map((platform) => namesOf(platform)[0]), isFast };
  };

  it('are platforms by the names of their archives or of Node.js, and a folder, in any order', () => {
    const all = platforms.map((platform) => namesOf(platform)[0]);
    expect(read()).to.deep.equal({ folder: undefined, wanted: all, isFast: false });
    expect(read('linux-amd64', '--fast')).to.deep.equal({ folder: undefined, wanted: ['linux-amd64'], isFast: true });
    expect(read('dist/packages', 'win32-x64', 'linux-x64')).to.deep.equal({
      ...{ folder: 'dist/packages', wanted: ['linux-amd64', 'windows-amd64'], isFast: false },
    });
    expect(read('linux-arm64', '/tmp/out-arm64').folder).to.equal('/tmp/out-arm64');
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
