import { expect } from 'chai';
import { createOptions, parseReportSpace } from '../../../../cmd/upgrade-bundle/create/createOptions.ts';
import { failureOf } from '../../../support/program/failure.ts';
import { readLine } from '../../../support/program/readLine.ts';

describe('the options of create', () => {
  it('take a size of volumes with a unit, and no size below a block of a tar', () => {
    const { check } = createOptions['volume-size'];
    for (const size of ['512', '4G', '3900Mi']) check(size);
    expect(() => {
      check('4');
    })
      .to.throw('a volume of 4 bytes is smaller than one block of a tar')
      .with.property('hint', 'Add the unit: 4G.');
    expect(() => {
      check('four');
    }).to.throw('is not a size');
  });

  it('round the space for reports up to whole pages, and refuse one without space for two', () => {
    expect(parseReportSpace('64M')).to.equal(15_625 * 4096);
    expect(parseReportSpace('64Mi')).to.equal(64 * 2 ** 20);
    const [, least = ''] = /Give (\d+Mi) or more/.exec(hintOf('100K')) ?? [];
    expect(parseReportSpace(least)).to.equal(Number.parseInt(least, 10) * 2 ** 20);
    expect(hintOf(String(Number.parseInt(least, 10) * 2 ** 20 - 4096))).to.contain(least);
  });

  const hintOf = (text: string): string => {
    let hint = '';
    expect(() => parseReportSpace(text))
      .to.throw('bytes are too small for two reports')
      .with.property('hint')
      .that.satisfies((given: string) => (hint = given));
    return hint;
  };

  it('take the version and additional images by the names of other programs too', async () => {
    const words = [
      '--to-version=4.20.3',
      '--additional-image=a.test/b:1',
      '--extra-image=a.test/b:2',
      '-a',
      'package.json',
    ];
    expect(await readLine('upgrade-bundle', 'create', ...words)).to.deep.include({
      ...{ version: '4.20.3', extraImage: ['a.test/b:1', 'a.test/b:2'], pullSecret: 'package.json', output: '.' },
    });
  });

  for (const [word, message] of [
    ['--volume-size=4', '--volume-size: a volume of 4 bytes is smaller than one block of a tar'],
    ['--report-space=100K', '--report-space: 102400 bytes are too small for two reports'],
    ['--extra-image=a//b', /^--extra-image: “a\/\/b”/],
    ['--accept-risk=Slow', '--accept-risk needs --path-from or --channel or --for'],
    ['--include-held', '--include-held needs --for'],
  ] as const)
    it(`refuse ${word}`, async () => {
      const { message: said } = await failureOf(readLine('upgrade-bundle', 'create', '4.20.3', word), 'usage');
      expect(said).to.match(typeof message === 'string' ? new RegExp(`^${message}$`) : message);
    });
});
