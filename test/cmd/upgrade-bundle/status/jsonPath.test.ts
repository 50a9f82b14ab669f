import { expect } from 'chai';
import { checkJsonPath, formatJsonPath } from '../../../../cmd/upgrade-bundle/status/jsonPath.ts';
import { PluginError } from '../../../../lib/errors.ts';

describe('formatJsonPath', () => {
  const spec = { bundle: { digest: 'sha256:a' }, hold: true };
  const data = {
    metadata: { labels: { 'app.kubernetes.io/name': 'x' } },
    spec,
    status: {
      phase: 'Loading',
      nodes: [
        { name: 'a', phase: 'Loading', bytes: 1 },
        { name: 'b', phase: 'Loaded', bytes: 0 },
      ],
      conditions: [{ type: 'Loaded', reason: 'Loading' }],
    },
  };

  for (const [template, text] of [
    ['{.status.phase}', 'Loading'],
    ['{$.status.phase} of {@.spec.hold}', 'Loading of true'],
    ['{.status.nodes[*].name}', 'a b'],
    ['{.status.nodes[0].bytes}{.status.nodes[1].bytes}', '10'],
    ['{.status.nodes[-1].name}/{.status.absent}.', 'b/.'],
    ['{.status.nodes[2].name}{.status.phase.x}{.spec[0]}.', '.'],
    ['{.status.conditions[?(@.type=="Loaded")].reason}', 'Loading'],
    [`{.status.nodes[?(@.phase == 'Loaded')].name}`, 'b'],
    ['{.status.nodes[?(@.bytes=="0")].name}', 'b'],
    [String.raw`{range .status.nodes[*]}{.name}={.phase}{"\n"}{end}`, 'a=Loading\nb=Loaded\n'],
    [String.raw`{range .status.nodes[*]}{range .none}{.x}{end}{.name}{"\t\"\\"}{end}!`, 'a\t"\\b\t"\\!'],
    ['{range .status.none[*]}{.name}{end}none', 'none'],
    [`{"}"}{'{'}`, '}{'],
    ['{.spec}', JSON.stringify(spec)],
    ['{.spec.bundle.*}', 'sha256:a'],
    [String.raw`{.metadata.labels['app\.kubernetes\.io/name']}`, 'x'],
    ['{.}', JSON.stringify(data)],
    ['plain', 'plain'],
    ['{.__proto__}{.spec.constructor}.', '.'],
  ] as const)
    it(`fills ${template}`, () => {
      expect(formatJsonPath(template, data)).to.equal(text);
    });

  for (const [template, why] of [
    ['{.a', '“{” has no partner'],
    ['}', '“}” has no partner'],
    ['{end}', '{end} without {range}'],
    ['{range .status.nodes[*]}', '{range} without {end}'],
    ['{range .none}', '{range} without {end}'],
    ['{a b}', '“a b” is not understood'],
    ['{.a[b]}', '“[b]” is not understood'],
  ] as const)
    it(`refuses ${template}`, () => {
      expect(() => formatJsonPath(template, data))
        .to.throw(PluginError, `jsonpath=${template}: ${why}`)
        .with.property('code', 'usage');
    });

  it('is checked before there are data, and only in an output with a template', () => {
    for (const output of ['json', 'wide', 'jsonpath={.a[0].b}', 'jsonpath=x']) checkJsonPath(output);
    for (const output of ['jsonpath=', 'jsonpath={.a', 'jsonpath={end}'])
      expect(() => checkJsonPath(output), output).to.throw(PluginError, output);
  });
});
