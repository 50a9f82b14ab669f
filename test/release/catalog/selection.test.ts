import { expect } from 'chai';
import type { FilteredCatalog } from '../../../lib/release/catalog/catalogImage.ts';
import type { OperatorRequest } from '../../../lib/release/catalog/selection.ts';
import { failureOf } from '../../support/program/failure.ts';
import { catalogFiles, catalogLayers } from '../../support/release/catalogImage.ts';
import { useCatalogs } from './catalogCases.ts';

describe('selectOperators', () => {
  const { filterLayers, filterOperators, entriesOf } = useCatalogs();

  const updates: readonly (readonly [title: string, request: OperatorRequest, versions: string[]])[] = [
    ['only the head by default', { name: 'web' }, ['1.3.0']],
    ['each update from an installed version', { name: 'web', installed: '1.0.0' }, ['1.3.0', '1.2.0', '1.1.0']],
    ['the update of a skipped version', { name: 'web', installed: '1.1.5' }, ['1.3.0', '1.2.0']],
    ['the update by a range of versions', { name: 'web', installed: '1.2.7' }, ['1.3.0']],
    ['the head if it is installed', { name: 'web', installed: '1.3.0' }, ['1.3.0']],
    ['another channel', { name: 'web', channel: 'fast', installed: '1.1.0' }, ['2.0.0-rc.1']],
  ];
  for (const [title, request, versions] of updates) {
    it(`takes ${title}`, async () => {
      const entries = await entriesOf(await filterOperators(request), 'web');
      expect(entries.map(({ name }) => name)).to.have.members(versions.map((version) => `web.v${version}`));
    });
  }

  it('refuses a channel with two newest versions', async () => {
    const stable = [
      { version: '1.3.0', replaces: '1.1.0' },
      { version: '1.2.0', replaces: '1.1.0' },
      { version: '1.1.0' },
    ];
    const layers = catalogLayers(catalogFiles([{ name: 'forked', channels: { stable } }]));
    const error = await failureOf(filterLayers(layers, { name: 'forked' }), 'invalid-file');
    expect(error.message).to.include('channel stable of operator forked has no single newest version');
  });

  it('reads a channel whose versions replace each other in a circle', async () => {
    const stable = [
      { version: '1.3.0', replaces: '1.2.0' },
      { version: '1.2.0', replaces: '1.1.0' },
      { version: '1.1.0', replaces: '1.2.0' },
    ];
    const layers = catalogLayers(catalogFiles([{ name: 'round', channels: { stable } }]));
    const entries = await entriesOf(await filterLayers(layers, { name: 'round' }), 'round');
    expect(entries.map(({ name }) => name)).to.deep.equal(['round.v1.3.0']);
  });

  it('takes the updates of a version that the catalog no longer has', async () => {
    const stable = [
      { version: '1.2.0', replaces: '1.1.0', skips: ['1.1.3'] },
      { version: '1.1.0', replaces: '1.0.0' },
    ];
    const layers = catalogLayers(catalogFiles([{ name: 'short', channels: { stable } }]));
    const namesFrom = async (installed: string): Promise<string[]> =>
      (await entriesOf(await filterLayers(layers, { name: 'short', installed }), 'short')).map(({ name }) => name);
    expect(await namesFrom('1.0.0')).to.have.members(['short.v1.2.0', 'short.v1.1.0']);
    expect(await namesFrom('1.1.3')).to.have.members(['short.v1.2.0']);
    await failureOf(namesFrom('0.9.0'), 'not-found');
  });

  it('takes required operators, and names operators that the catalog lacks', async () => {
    const { selection, images } = await filterOperators({ name: 'shop' });
    const names = selection.packages.map(({ name, neededBy, bundles }) => [
      name,
      neededBy,
      bundles.map((each) => each.version),
    ]);
    expect(names).to.deep.equal([
      ['queue', ['shop'], ['0.1.0']],
      ['shop', [], ['3.0.0']],
      ['web', ['shop'], ['1.3.0', '1.2.0']],
    ]);
    expect(selection.missing).to.deep.equal([
      'shop.v3.0.0 needs an operator with example.com/v1/Absent or operator gone 1.x',
    ]);
    expect(images).to.have.length(4);
  });

  describe('with versions that only another channel has', () => {
    // As in the test catalogs of oc-mirror: the default channel of bar is too new for foo.
    const alpha = [
      { version: '0.2.1', replaces: '0.1.1' },
      { version: '0.1.1', replaces: '0.1.0' },
      { version: '0.1.0' },
    ];
    const required = { packageName: 'bar', versionRange: '<0.2.0' };
    const catalog = catalogLayers(
      catalogFiles([
        { name: 'bar', channels: { stable: [{ version: '1.0.0' }], alpha, zeta: [{ version: '0.0.1' }] } },
        {
          name: 'foo',
          channels: { beta: [{ version: '0.3.0' }] },
          properties: [{ type: 'olm.package.required', value: required }],
        },
      ]),
    );
    const summarize = ({ selection: { packages, missing } }: FilteredCatalog): unknown[] => [
      ...packages.map(({ name, channels, defaultChannel, bundles }) =>
        [name, defaultChannel, [...channels.keys()].join('+'), ...bundles.map(({ version }) => version)].join(' '),
      ),
      ...missing,
    ];

    it('takes a dependency from a channel that is not the default one', async () => {
      const filtered = await filterLayers(catalog, { name: 'foo' });
      expect(summarize(filtered)).to.deep.equal(['bar alpha alpha 0.2.1 0.1.1', 'foo beta beta 0.3.0']);
    });

    it('adds that channel to a requested channel', async () => {
      const filtered = await filterLayers(catalog, { name: 'bar' }, { name: 'foo' });
      expect(summarize(filtered)[0]).to.equal('bar stable stable+alpha 1.0.0 0.2.1 0.1.1');
    });

    it('takes all channels of an operator, its own first', async () => {
      const all = await filterLayers(catalog, { name: 'bar', channel: '*', range: '>=0.0.0-0' });
      expect(summarize(all)[0]).to.equal('bar stable stable+alpha+zeta 1.0.0 0.2.1 0.1.1 0.1.0 0.0.1');
    });

    it('takes the versions of a range only, and needs no others', async () => {
      const bar = { name: 'bar', channel: 'alpha' };
      const one = await filterLayers(catalog, { name: 'foo' }, { ...bar, range: '=0.1.0' });
      expect(summarize(one)).to.deep.equal(['bar alpha alpha 0.1.0', 'foo beta beta 0.3.0']);
      const two = await filterLayers(catalog, { ...bar, range: '>=0.1.0 <0.2.0' });
      expect(await entriesOf(two, 'bar')).to.deep.equal([
        { name: 'bar.v0.1.1', replaces: 'bar.v0.1.0' },
        { name: 'bar.v0.1.0' },
      ]);
      const apart = await entriesOf(await filterLayers(catalog, { ...bar, range: '=0.1.0 || =0.2.1' }), 'bar');
      expect(apart).to.deep.equal([
        { name: 'bar.v0.2.1', replaces: 'bar.v0.1.1', skips: ['bar.v0.1.0'] },
        { name: 'bar.v0.1.0' },
      ]);
      const failure = await failureOf(filterLayers(catalog, { ...bar, range: '>=3.0.0' }), 'not-found');
      expect(failure.message).to.equal('operator bar has no version >=3.0.0 in channel alpha');
      expect(failure.hint).to.contain('0.2.1, 0.1.1');
    });
  });
});
