import { expect } from 'chai';
import { stringify } from 'yaml';
import type { ErrorCode } from '../../../lib/errors.ts';
import type { OperatorRequest } from '../../../lib/release/catalog/selection.ts';
import { makeFileLayer } from '../../support/content/layers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { catalogDocuments, catalogFiles, catalogLayers } from '../../support/release/catalogImage.ts';
import { operators, useCatalogs } from './catalogCases.ts';

describe('readCatalog', () => {
  const { filterLayers } = useCatalogs();

  it('reads the files that are in the image: of upper layers, YAML too, not deleted ones', async () => {
    const file = (name: string, version: string): string =>
      catalogDocuments({ name, channels: { stable: [{ version }] } })
        .map((each) => stringify(each))
        .join('---\n');
    const lower = new Map([
      ['configs/web.yaml', file('web', '1.0.0')],
      ['configs/old/a.yaml', file('old', '1.0.0')],
      ['configs/b/b.yaml', file('b', '1.0.0')],
    ]);
    const upper = new Map([
      ['configs/web.yaml', file('web', '2.0.0')],
      ['configs/.wh.old', ''],
      ['configs/b/.wh..wh..opq', ''],
    ]);
    const layers = [makeFileLayer(lower), makeFileLayer(upper)];
    expect((await filterLayers(layers, { name: 'web' })).selection.packages[0]?.bundles[0]?.version).to.equal('2.0.0');
    const failure = await failureOf(filterLayers(layers, { name: 'old' }), 'not-found');
    expect([failure.message, failure.hint]).to.deep.equal(['the catalog has no operator old', 'It has web.']);
  });

  const refusals: readonly (readonly [
    title: string,
    files: Record<string, string> | undefined,
    request: OperatorRequest,
    code: ErrorCode,
    message: RegExp,
  ])[] = [
    ['an unknown operator', undefined, { name: 'webb' }, 'not-found', /no operator webb/],
    ['an unknown channel', undefined, { name: 'web', channel: 'slow' }, 'not-found', /web has no channel slow/],
    [
      'a version without updates',
      undefined,
      { name: 'web', installed: '0.5.0' },
      'not-found',
      /no update from 0\.5\.0 to web\.v1\.3\.0/,
    ],
    [
      'half a document',
      { 'web/catalog.json': '{"schema": "olm.package"' },
      { name: 'web' },
      'invalid-file',
      /ends in the middle of an object/,
    ],
    [
      'text between documents',
      { 'web/catalog.json': '{"schema": "x"} and' },
      { name: 'web' },
      'invalid-file',
      /text between its objects/,
    ],
    [
      'malformed JSON',
      { 'web/catalog.json': '{"schema": nothing}' },
      { name: 'web' },
      'invalid-file',
      /malformed at line 1/,
    ],
    ['an empty catalog', { 'README.md': 'nothing' }, { name: 'web' }, 'unsupported', /has no operator/],
    [
      'a name that leaves the folder',
      Object.fromEntries(catalogFiles([{ name: '../../etc', channels: { a: [{ version: '1.0.0' }] } }])),
      { name: '../../etc' },
      'not-found',
      /no operator/,
    ],
  ];
  for (const [title, files, request, code, message] of refusals) {
    it(`refuses ${title}`, async () => {
      const given = files ? new Map(Object.entries(files)) : catalogFiles(operators);
      expect((await failureOf(filterLayers(catalogLayers(given), request), code)).message).to.match(message);
    });
  }
});
