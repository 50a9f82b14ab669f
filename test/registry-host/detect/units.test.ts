import { expect } from 'chai';
import { parseUnitFile, settingsOf, applyEdits } from '../../../lib/registry-host/detect/units.ts';

const text = `# a comment
[Unit]
Description=Bob's "own" registry
[Service]
Environment=A=1 "B=two words"
ExecStart=-/usr/bin/podman run \\
    -v /a\\x20b:/c \\
# not part of it
    ; nor this
    'quay io' "with \\
line" %t/%n \\
    image:1
ExecStop=
`;

describe('parseUnitFile', () => {
  const { settings } = parseUnitFile('/u.service', text);

  it('reads continued lines, comments between them, quotes, escapes and specifiers', () => {
    const [, , start] = settings;
    expect(start?.words.map((word) => word.text)).to.deep.equal([
      '-/usr/bin/podman',
      'run',
      '-v',
      '/a b:/c',
      'quay io',
      'with  line',
      '%t/%n',
      'image:1',
    ]);
    expect(start?.words.map(({ line }) => line)).to.deep.equal([6, 6, 7, 7, 10, 10, 11, 12]);
    expect(settings.map(({ key, line }) => [key, line])).to.deep.equal([
      ['Description', 3],
      ['Environment', 5],
      ['ExecStart', 6],
      ['ExecStop', 13],
    ]);
  });

  it('does not let a quote that is not closed swallow the next lines', () => {
    expect(settings[0]?.words.map((word) => word.text)).to.deep.equal(['Bobs "own" registry']);
  });

  it('keeps all other words when one is replaced', () => {
    const image = settings[2]!.words.at(-1)!;
    expect(text.slice(image.start, image.end)).to.equal('image:1');
    const spliced = applyEdits(text, [{ start: image.start, end: image.end, text: 'image:2' }]);
    expect(spliced).to.equal(text.replace('image:1', 'image:2'));
  });

  it('reads files with Windows line ends and without a last one', () => {
    const { settings: found } = parseUnitFile('u', '[Service]\r\nExecStart=a \\\r\n  b\r\nUser=c');
    expect(found.map(({ words }) => words.map((word) => word.text))).to.deep.equal([['a', 'b'], ['c']]);
  });
});

describe('settingsOf', () => {
  it('tells the settings of sections apart', () => {
    const file = parseUnitFile('f', '[Unit]\nRequires=a\n[Service]\nRequires=b\n');
    const found = settingsOf({ name: 'u', files: [file] }, 'Unit', 'Requires');
    expect(found.map(({ words }) => words[0]?.text)).to.deep.equal(['a']);
  });

  it('resets earlier values by an empty assignment, in drop-ins too', () => {
    const files = ['[Service]\nExecStart=a\n', '[Service]\nExecStart=\nExecStart=b\n'].map((each, index) =>
      parseUnitFile(`f${index}`, each),
    );
    const found = settingsOf({ name: 'u', files }, 'Service', 'ExecStart');
    expect(found.map(({ words, file }) => [words[0]?.text, file.path])).to.deep.equal([['b', 'f1']]);
  });
});
