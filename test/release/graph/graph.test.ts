import { expect } from 'chai';
import { fetchFile } from '../../../lib/content/http/fetchFile.ts';
import { openSession } from '../../../lib/content/registry/session.ts';
import { PluginError } from '../../../lib/errors.ts';
import {
  publicGraph,
  resolveVersion,
  type ClusterUpdates,
  type ResolveOptions,
} from '../../../lib/release/graph/graph.ts';
import { generatedBody } from '../../fakes/registry/content.ts';
import { startSignatureServer } from '../../fakes/registry/signatureServer.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { Graphs, graphOf, graphRepository, payloadOf } from '../../support/release/graphs.ts';

const cluster = (more: Partial<ClusterUpdates> = {}): ClusterUpdates => ({
  channel: 'stable-4.12',
  arch: 'x86_64',
  known: new Map(),
  ...more,
});

describe('resolveVersion', () => {
  const graphUrl = 'http://graph.example/api/upgrades_info/v1/graph';
  const resolve = (
    graphs: Graphs,
    version: string,
    options: Partial<ResolveOptions> = {},
    arch?: 'aarch64' | 'multi',
    context = makeContext(),
  ): Promise<string> => resolveVersion(version, arch, { fetchFile: graphs.fetchFile, ...options }, context);

  it('finds a final version in the most settled channel that has it', async () => {
    const graphs = new Graphs({ 'stable-4.12': graphOf('4.12.3', '4.12.4') });
    expect(await resolve(graphs, '4.12.4')).to.equal(payloadOf('4.12.4'));
    expect(graphs.asked).to.deep.equal(['api.openshift.com stable-4.12 amd64']);
    const young = new Graphs({ 'candidate-4.12': graphOf('4.12.4') });
    expect(await resolve(young, '4.12.4')).to.equal(payloadOf('4.12.4'));
    expect(young.asked.map((each) => each.split(' ')[1])).to.deep.equal([
      'stable-4.12',
      'fast-4.12',
      'eus-4.12',
      'candidate-4.12',
    ]);
  });

  it('looks for a pre-release among the candidates only', async () => {
    const graphs = new Graphs({ 'candidate-4.13': graphOf('4.13.0-rc.2') });
    expect(await resolve(graphs, '4.13.0-rc.2')).to.equal(payloadOf('4.13.0-rc.2'));
    expect(graphs.asked).to.deep.equal(['api.openshift.com candidate-4.13 amd64']);
  });

  it('asks for the architecture, by the name that graphs have for it', async () => {
    const graphs = new Graphs({ 'stable-4.12 multi': graphOf('4.12.4'), 'stable-4.12 arm64': graphOf('4.12.5+arm64') });
    expect(await resolve(graphs, '4.12.4', {}, 'multi')).to.equal(payloadOf('4.12.4'));
    expect(await resolve(graphs, '4.12.5', {}, 'aarch64')).to.equal(payloadOf('4.12.5+arm64'));
  });

  it('does not take a node of another architecture', async () => {
    const graphs = new Graphs({ 'stable-4.12': graphOf('4.12.4+amd64', '4.12.4+s390x') });
    expect(await resolve(graphs, '4.12.4')).to.equal(payloadOf('4.12.4+amd64'));
    await failureOf(resolve(graphs, '4.12.4', {}, 'aarch64'), 'unknown-version');
  });

  it('sends no request if the cluster knows the version', async () => {
    const graphs = new Graphs({});
    const known = new Map([['4.12.4', payloadOf('here')]]);
    expect(await resolve(graphs, '4.12.4', { cluster: cluster({ known }) })).to.equal(payloadOf('here'));
    expect(graphs.asked).to.be.empty;
  });

  it('does not trust the cluster about another architecture, or a tag', async () => {
    const graphs = new Graphs({ 'stable-4.12': graphOf('4.12.4') });
    const known = new Map([['4.12.4', payloadOf('here')]]);
    expect(await resolve(graphs, '4.12.4', { cluster: cluster({ known }) }, 'aarch64')).to.equal(payloadOf('4.12.4'));
    const tagged = new Map([['4.12.4', `${graphRepository}:4.12.4-x86_64`]]);
    expect(await resolve(graphs, '4.12.4', { cluster: cluster({ known: tagged }) })).to.equal(payloadOf('4.12.4'));
  });

  it('asks the cluster’s own graph first, for its channel and architecture, then the public one', async () => {
    const graphs = new Graphs({ 'candidate-4.13': graphOf('4.13.1') });
    const own = cluster({ upstream: 'http://osus.example/graph?id=1', channel: 'eus-4.12', arch: 's390x' });
    expect(await resolve(graphs, '4.13.1', { cluster: own })).to.equal(payloadOf('4.13.1'));
    expect(graphs.asked).to.deep.equal([
      'osus.example eus-4.12 s390x',
      'osus.example stable-4.13 s390x',
      'osus.example fast-4.13 s390x',
      'osus.example candidate-4.13 s390x',
    ]);
  });

  it('continues with the public graph if the cluster’s own does not respond, and logs it', async () => {
    const unreachable = new PluginError('unreachable', 'osus.example cannot be reached');
    const graphs = new Graphs({ 'stable-4.12': graphOf('4.12.4') }, { 'osus.example': unreachable });
    const context = makeContext();
    const own = cluster({ upstream: 'http://osus.example/graph' });
    expect(await resolve(graphs, '4.12.4', { cluster: own }, undefined, context)).to.equal(payloadOf('4.12.4'));
    expect(graphs.asked).to.deep.equal(['osus.example stable-4.12 amd64', 'api.openshift.com stable-4.12 amd64']);
    expect(context.lines).to.include('warn: osus.example cannot be reached');
  });

  it('asks a given graph alone', async () => {
    const graphs = new Graphs({});
    const own = cluster({ upstream: 'http://osus.example/graph' });
    await failureOf(resolve(graphs, '4.12.4', { cluster: own, graphUrl }), 'unknown-version');
    expect(graphs.asked.every((each) => each.startsWith('graph.example '))).to.be.true;
  });

  it('names the nearest versions of one that no graph has', async () => {
    const graphs = new Graphs({
      'stable-4.12': graphOf('4.12.1', '4.12.3'),
      'candidate-4.12': graphOf('4.12.3', '4.12.6'),
    });
    const { message, hint } = await failureOf(resolve(graphs, '4.12.4'), 'unknown-version');
    expect(message).to.equal(`${publicGraph} has no release 4.12.4 for x86_64`);
    expect(hint).to.equal('The nearest that exist: 4.12.3, 4.12.6, 4.12.1.');
  });

  it('says why no graph could be read, without the query of its address', async () => {
    const failures: [string, string | object][] = [
      ['server-error', 'no JSON at all'],
      ['server-error', '{}'],
      ['server-error', 'null'],
      ['server-error', '404'],
      ['server-error', { nodes: [{ version: '4.12.4', payload: `${graphRepository}:4.12.4` }] }],
    ];
    for (const [code, answer] of failures) {
      const graphs = new Graphs({ 'stable-4.12': answer });
      const asked = resolve(graphs, '4.12.4', { graphUrl: `${graphUrl}?secret=1` });
      const { message, hint } = await failureOf(asked, code as 'server-error');
      expect(message).to.contain('4.12.4 cannot be looked up: http://graph.example/api/upgrades_info/v1/graph ');
      expect(message).not.to.contain('secret');
      expect(hint).to.contain('name the repository with the tags of releases');
      expect(graphs.asked).to.have.length(1);
    }
    for (const code of ['unreachable', 'too-large'] as const) {
      const graphs = new Graphs({}, { 'graph.example': new PluginError(code, 'no') });
      await failureOf(resolve(graphs, '4.12.4', { graphUrl }), code);
    }
    // A proxy that cannot be used would also fail for release images.
    const graphs = new Graphs({}, { 'graph.example': new PluginError('usage', 'no', { hint: 'set it right' }) });
    expect((await failureOf(resolve(graphs, '4.12.4', { graphUrl }), 'usage')).hint).to.equal('set it right');
  });

  it('passes over nodes that are malformed', async () => {
    const nodes = [null, 5, {}, { version: 4 }, { version: '4.12.4', payload: payloadOf('x') }];
    expect(await resolve(new Graphs({ 'stable-4.12': { nodes } }), '4.12.4')).to.equal(payloadOf('x'));
  });

  it('refuses an invalid version and an invalid address', async () => {
    await failureOf(resolve(new Graphs({}), '4.12'), 'usage');
    for (const bad of ['graph', 'file:///graph', 'ftp://x/']) {
      await failureOf(resolve(new Graphs({}), '4.12.4', { graphUrl: bad }), 'usage');
    }
  });

  it('ends when it is interrupted', async () => {
    const context = makeContext();
    context.interrupt();
    await failureOf(resolve(new Graphs({}), '4.12.4', {}, undefined, context), 'interrupted');
  });

  it('reads graphs over the network, and none that is larger than any sound one', async () => {
    const context = makeContext();
    const server = await startSignatureServer();
    const settings = { insecure: false, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
    const session = openSession(settings, { authorize: () => Promise.resolve(undefined) }, context);
    try {
      const options: ResolveOptions = {
        graphUrl: `${server.url}/graph`,
        fetchFile: (url, limit) => fetchFile(session.connections, url, limit, context),
      };
      const ask = (): Promise<string> => resolveVersion('4.12.4', 'x86_64', options, context);
      const serve = (body: Buffer | ReturnType<typeof generatedBody>): unknown =>
        server.files instanceof Map && server.files.set('/graph', body);
      serve(Buffer.from(JSON.stringify(graphOf('4.12.4'))));
      expect(await ask()).to.equal(payloadOf('4.12.4'));
      serve(generatedBody(Infinity));
      await failureOf(ask(), 'too-large');
      serve(Buffer.from('<html>'));
      await failureOf(ask(), 'server-error');
      await server.stop();
      await failureOf(ask(), 'unreachable');
    } finally {
      session.close();
      await server.stop();
    }
  });
});
