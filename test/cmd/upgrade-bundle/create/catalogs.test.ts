import { expect } from 'chai';
import { catalogOptions, requestOperators } from '../../../../cmd/upgrade-bundle/create/catalogs.ts';
import { PluginError } from '../../../../lib/errors.ts';
import { failureOf } from '../../../support/program/failure.ts';

describe('create --operator', () => {
  const parse = (text: string): object | undefined =>
    requestOperators({ catalog: ['quay.io/example/index:v1'], operator: [text], skipMissingOperatorImages: false })
      .operators[0];

  const forms: readonly (readonly [text: string, request: object])[] = [
    ['bar', {}],
    ['bar@alpha', { channel: 'alpha' }],
    ['bar@alpha:0.1.0', { channel: 'alpha', installed: '0.1.0' }],
    ['bar@stable-4.20:v1.2.3-4+5.6', { channel: 'stable-4.20', installed: 'v1.2.3-4+5.6' }],
    ['bar@alpha:bar.v0.1.0', { channel: 'alpha', installed: 'bar.v0.1.0' }],
    ['bar@alpha:=0.1.0', { channel: 'alpha', range: '=0.1.0' }],
    ['bar@alpha:>=0.1.0 <0.2.0', { channel: 'alpha', range: '>=0.1.0 <0.2.0' }],
    ['bar@alpha:~0.1.0 || ^2.0.0', { channel: 'alpha', range: '~0.1.0 || ^2.0.0' }],
  ];
  for (const [text, request] of forms) {
    it(`reads ${text}`, () => {
      const { name, channel, installed, range } = parse(text) as Record<string, string | undefined>;
      expect(JSON.parse(JSON.stringify({ name, channel, installed, range }))).to.deep.equal({
        name: 'bar',
        ...request,
      });
    });
  }

  for (const text of [
    '',
    '@alpha',
    'bar@',
    'bar@:0.1.0',
    'bar@alpha:',
    'bar@alpha:0.1',
    'bar@alpha:1.x',
    'bar@alpha:>=abc',
    'bar@a@b',
  ]) {
    it(`refuses “${text}”, and shows the forms`, async () => {
      const attempt = (): Promise<void> => Promise.resolve().then(() => catalogOptions.operator.check(text));
      const failure = await failureOf(attempt(), 'usage');
      expect(failure).to.be.instanceOf(PluginError);
      expect(failure.hint).to.contain('web-terminal@fast:1.10.0').and.contain('web-terminal@fast:>=1.9.0 <1.11.0');
    });
  }
});
