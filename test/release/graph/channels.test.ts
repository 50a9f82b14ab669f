import { expect } from 'chai';
import type { FetchFile } from '../../../lib/content/http/fetchFile.ts';
import { PluginError } from '../../../lib/errors.ts';
import {
  namesWith,
  readArchivedChannels,
  readServedChannels,
  requirePatch,
  versionsOf,
} from '../../../lib/release/graph/channels.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { makeArchive, soundFiles } from '../../support/release/graphArchive.ts';
import { Graphs, graphOf } from '../../support/release/graphs.ts';

const graphUrl = 'http://graph.example/graph';

describe('readArchivedChannels', () => {
  const url = 'http://mirror.example/graph-data.tar';
  const read = (...channels: [name: string, text: string][]): ReturnType<typeof readArchivedChannels> => {
    const files = channels.map(([path, text]) => ({ path: `channels/${path}`, text }));
    const fetchFile: FetchFile = async () => makeArchive([...soundFiles, ...files]);
    return readArchivedChannels(url, { fetchFile }, makeContext());
  };

  it('returns the versions of each channel, ascending, each once and without its architecture', async () => {
    const text = 'name: fast-4.12\nversions:\n- 4.12.10+amd64\n- 4.12.4\n- 4.12.10+arm64\n- x\n- 4.12.9-rc.1\n';
    const channels = await read(['fast-4.12.yaml', text], ['eus-4.12.yml', '{"versions":null}']);
    expect([...channels]).to.have.deep.members([
      ['stable-4.12', ['4.12.4']],
      ['fast-4.12', ['4.12.4', '4.12.9-rc.1', '4.12.10']],
      ['eus-4.12', []],
    ]);
  });

  it('skips files below the channels and other files', async () => {
    const channels = await read(['sub/fast-4.12.yaml', 'versions: [4.12.4]'], ['README.md', 'versions: [4.12.4]']);
    expect([...channels.keys()]).to.deep.equal(['stable-4.12']);
  });

  it('names the channel that is not YAML, and the archive', async () => {
    const { message } = await failureOf(read(['fast-4.12.yaml', 'a: [']), 'invalid-file');
    expect(message).to.match(/^channels\/fast-4\.12\.yaml in .*mirror\.example\/graph-data\.tar.* is not YAML$/);
  });
});

describe('readServedChannels', () => {
  const served = { 'stable-4.12': graphOf('4.12.10', '4.12.9', '4.12.3'), 'fast-4.12': graphOf('4.12.11', '4.12.10') };
  const read = (
    wanted: Parameters<typeof readServedChannels>[0],
    graphs = new Graphs(served),
    context = makeContext(),
  ) => readServedChannels(wanted, 'x86_64', { graphUrl, fetchFile: graphs.fetchFile }, context);

  it('reads one channel with its versions, ascending', async () => {
    const graphs = new Graphs(served);
    expect([...(await read({ channel: 'stable-4.12' }, graphs))]).to.deep.equal([
      ['stable-4.12', ['4.12.3', '4.12.9', '4.12.10']],
    ]);
    expect(graphs.asked).to.deep.equal(['graph.example stable-4.12 amd64']);
  });

  it('reads the channels that have a version', async () => {
    expect([...(await read({ version: '4.12.10' })).keys()].sort()).to.deep.equal(['fast-4.12', 'stable-4.12']);
    expect([...(await read({ version: '4.12.11' })).keys()]).to.deep.equal(['fast-4.12']);
    const { message, settings } = await failureOf(read({ version: '4.12.99' }), 'unknown-version');
    expect(message).to.equal('no channel has 4.12.99 for x86_64');
    expect(settings).to.deep.equal(['arch', 'graphUrl']);
  });

  it('asks for no more channels after an interruption', async () => {
    const graphs = new Graphs(served);
    const context = makeContext();
    context.interrupt();
    await failureOf(read({ version: '4.12.10' }, graphs, context), 'interrupted');
    expect(graphs.asked).to.deep.equal([]);
  });
});

describe('namesWith and versionsOf', () => {
  const channels = new Map([
    ['stable-4.12', ['4.12.3', '4.12.4']],
    ['fast-4.12', ['4.12.4']],
    ['empty', []],
  ]);

  it('give the channels with a version, sorted, and the versions of a channel', () => {
    expect(namesWith(channels, '4.12.4')).to.deep.equal(['fast-4.12', 'stable-4.12']);
    expect(namesWith(channels, '4.12.3')).to.deep.equal(['stable-4.12']);
    expect(namesWith(channels, undefined)).to.deep.equal(['empty', 'fast-4.12', 'stable-4.12']);
    expect(versionsOf(channels, 'stable-4.12')).to.deep.equal(['4.12.3', '4.12.4']);
  });

  it('report a version that no channel has, and a channel without versions', async () => {
    const fail = (action: () => unknown) => failureOf(Promise.resolve().then(action));
    expect(await fail(() => namesWith(channels, '4.12.5'))).to.include({
      code: 'unknown-version',
      message: 'no channel has 4.12.5',
    });
    expect(await fail(() => namesWith(new Map(), undefined))).to.include({ message: 'no channel has a version' });
    for (const channel of ['empty', 'none'])
      expect(await fail(() => versionsOf(channels, channel))).to.include({
        code: 'not-found',
        message: `there is no channel “${channel}” with versions`,
      });
  });
});

describe('requirePatch', () => {
  const versions = ['4.12.1', '4.12.10', '4.12.2', '4.11.9', '4.12.3', '4.12.4', '4.12.5', '4.12.6'];
  const check = (text: string, graphs: Graphs, context = makeContext()): Promise<void> =>
    requirePatch(text, 'aarch64', { graphUrl, fetchFile: graphs.fetchFile }, context);

  it('names the five latest patches of the minor version, the latest first', async () => {
    for (const text of ['4.12', 'v4.12']) {
      const { message, hint } = await failureOf(
        check(text, new Graphs({ 'stable-4.12': graphOf(...versions) })),
        'usage',
      );
      expect(message).to.equal(`“${text}” is not the version of a release`);
      expect(hint).to.equal('The latest patches for aarch64: 4.12.10, 4.12.6, 4.12.5, 4.12.4, 4.12.3.');
    }
  });

  it('asks less stable channels if the others have no patch', async () => {
    const graphs = new Graphs({ 'stable-4.12': graphOf('4.11.9'), 'candidate-4.12': graphOf('4.12.0-rc.1') });
    const { hint } = await failureOf(check('4.12', graphs), 'usage');
    expect(hint).to.equal('The latest patches for aarch64: 4.12.0-rc.1.');
    expect(graphs.asked.length).to.be.greaterThan(1);
  });

  it('refuses the version also without an answer of the graph, and logs why', async () => {
    const failures = { 'graph.example': new PluginError('unreachable', 'no route to host') };
    const context = makeContext();
    const { hint = '' } = await failureOf(check('4.12', new Graphs({}, failures), context), 'usage');
    expect(hint).not.to.contain('latest patches');
    expect(context.lines.join('\n')).to.match(/^debug: the latest patches are not known: .*no route to host/m);
  });

  it('asks for nothing if the text is not a minor version', async () => {
    for (const text of ['4.12.4', 'latest', '4', '4.12.x']) {
      const graphs = new Graphs({});
      await check(text, graphs);
      expect(graphs.asked).to.deep.equal([]);
    }
  });
});
