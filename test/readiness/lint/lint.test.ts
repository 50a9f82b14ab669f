import { expect } from 'chai';
import { stringify } from 'yaml';
import { PluginError } from '../../../lib/errors.ts';
import { lintManifests, lintSets, type LintReport } from '../../../lib/readiness/lint/lint.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';

const image = `quay.io/x/y@sha256:${'a'.repeat(64)}`;
const container = { name: 'c', image, imagePullPolicy: 'Always' };
const metadata = { name: 'x', namespace: 'openshift-x' };
const pod = { apiVersion: 'v1', kind: 'Pod', metadata, spec: { containers: [container] } };

function lint(files: Readonly<Record<string, string>>): Promise<LintReport> {
  return lintManifests({ name: 'x', files: new Map(Object.entries(files)) }, makeContext());
}

describe('lintManifests', () => {
  it('counts definitions, parts of machine configurations, units and scripts as objects', async () => {
    const files = {
      'crd.yaml': 'apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: x\n',
      'part.yaml': 'mode: 0644\npath: /etc/x\ncontents:\n  inline: x\n',
      'x.service': '[Service]\nExecStart=/bin/true\n',
      'values.yaml': 'some: value\n',
    };
    expect(await lint(files)).to.include({ files: 4, objects: 3 });
  });

  it('refuses a set in which nothing can be checked', async () => {
    for (const text of ['', '# nothing\n', 'some: value\n', '[]\n'])
      expect(
        await failureOf(lintSets([{ name: 'dir', files: new Map([['x.yaml', text]]) }], makeContext())),
        text,
      ).to.include({ code: 'not-found', message: 'nothing in dir can be checked (files: 1)' });
  });

  it('tells the line of the field, or of the object if the field is not unique', async () => {
    const twice = [container, { ...container, name: 'd' }];
    const second = { ...pod, metadata: { name: 'y' }, spec: { containers: twice } };
    const text = [{ ...pod, metadata: { name: 'first' }, spec: {} }, pod, second]
      .map((each) => stringify(each))
      .join('---\n');
    const { findings } = await lint({ 'x.yaml': text });
    expect(findings.map(({ line }) => text.split('\n')[line - 1]?.trim())).to.deep.equal([
      'imagePullPolicy: Always',
      'name: y',
      'name: y',
    ]);
  });

  it('stops when it is interrupted', async () => {
    const signal = AbortSignal.abort(new PluginError('interrupted', 'interrupted'));
    const linting = lintManifests({ name: 'x', files: new Map([['x.yaml', 'a: b']]) }, { ...makeContext(), signal });
    await failureOf(linting, 'interrupted');
  });
});
