import { buffer } from 'node:stream/consumers';
import { expect } from 'chai';
import { Certificates } from '../../../lib/content/http/certificates.ts';
import { Connections } from '../../../lib/content/http/connections.ts';
import { FallbackSource, firstSuccess } from '../../../lib/content/registry/fallbackSource.ts';
import { Registry } from '../../../lib/content/registry/registry.ts';
import { ReferrersApi } from '../../../lib/content/registry/tags.ts';
import { Transport } from '../../../lib/content/registry/transport.ts';
import type { Context } from '../../../lib/context.ts';
import { PluginError } from '../../../lib/errors.ts';
import { repositoryOf } from '../../fakes/registry/content.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { describeSource, makeSample, type Sample } from '../store/contract.ts';

const nobody = { authorize: () => Promise.resolve(undefined) };

function connect(context: Context = makeContext()): { connections: Connections; transport: Transport } {
  const connections = new Connections({ certificates: new Certificates({ insecure: true }) });
  return { connections, transport: new Transport(connections, nobody, context, { insecure: true, attempts: 1 }) };
}

describeSource('FallbackSource', async (content, repository, context) => {
  const [without, has] = [await startRegistry(), await startRegistry({ content })];
  const { connections, transport } = connect(context);
  const at = ({ host }: TestRegistry): Registry => new Registry({ registry: host, repository }, transport, context);
  return {
    store: new FallbackSource([at(without), at(has)]),
    damage: (digest, change) => {
      content.blobs.set(digest, change(content.blobs.get(digest) as Buffer));
      return Promise.resolve();
    },
    remove: async () => {
      connections.close();
      await Promise.all([without.stop(), has.stop()]);
    },
  };
});

describe('FallbackSource', () => {
  let sample: Sample;
  let mirror: TestRegistry;
  let source: TestRegistry;
  let connections: Connections;
  let both: FallbackSource;
  beforeEach(async () => {
    sample = makeSample();
    mirror = await startRegistry({ content: makeSample().content });
    source = await startRegistry({ content: sample.content });
    const { transport, ...rest } = connect();
    connections = rest.connections;
    const at = ({ host }: TestRegistry): Registry =>
      new Registry({ registry: host, repository: sample.repository }, transport, makeContext());
    both = new FallbackSource([at(mirror), at(source)]);
  });
  afterEach(async () => {
    connections.close();
    await Promise.all([mirror.stop(), source.stop()]);
  });

  it('reports unreachable mirrors only if the repository itself cannot be asked', async () => {
    const reasons: string[] = [];
    const { host: silent } = source;
    const { connections: own, transport } = connect();
    try {
      const at = ({ host }: TestRegistry): Registry =>
        new Registry({ registry: host, repository: sample.repository }, transport, makeContext());
      const doubting = new FallbackSource([at(mirror), at(source)], ({ message }) => reasons.push(message));
      await failureOf(doubting.resolve('none'), 'not-found');
      expect(reasons).to.deep.equal([]);
      await source.stop();
      await failureOf(doubting.resolve('none'), 'not-found');
      expect(reasons).to.have.length(1);
      expect(reasons[0]).to.match(new RegExp(`^${silent} cannot be reached`));
    } finally {
      own.close();
    }
  });

  it('is called as the source, and leaves it alone while the mirror can answer', async () => {
    expect(both.name).to.contain(source.host);
    await both.resolve('1.0-multi');
    await buffer(await both.fetch(sample.image));
    expect(await both.exists(sample.layer)).to.equal(true);
    expect(await both.tags()).to.have.length(2);
    expect(source.requests).to.deep.equal([]);
  });

  it('knows the tags of all sources, and none if one of them does not list its tags', async () => {
    repositoryOf(source.content, sample.repository).tags.set('only-here', sample.image.digest);
    expect([...((await both.knownTags(1)) ?? [])])
      .to.include('only-here')
      .and.to.have.length(3);
    source.fault(/\/tags\/list/, { answer: { status: 403 } });
    expect(await both.knownTags(1)).to.equal(undefined);
  });

  it('lists no referrers if each source has none, and does not know if one cannot list them', async () => {
    await using able = await startRegistry({ content: sample.content, referrers: true });
    const { connections: own, transport } = connect();
    const at = ({ host }: TestRegistry): Registry =>
      new Registry({ registry: host, repository: sample.repository }, transport, makeContext(), {
        referrersApi: new ReferrersApi(transport),
      });
    const list = (...[first, second]: [TestRegistry, TestRegistry]): Promise<unknown> =>
      new FallbackSource([at(first), at(second)]).referrers(sample.image.digest);
    try {
      expect(await list(able, able)).to.deep.equal([]);
      expect(await list(able, source)).to.equal(undefined);
    } finally {
      own.close();
    }
  });

  it('passes over a mirror that has a manifest wrong', async () => {
    const stored = repositoryOf(mirror.content, sample.repository).manifests.get(sample.image.digest);
    if (stored) stored.bytes = Buffer.from(stored.bytes.toString().replace('"', "'"));
    const bytes = await buffer(await both.fetch(sample.image));
    expect(bytes).to.have.length(sample.image.size);
    expect(source.requests).to.have.length(1);
  });

  it('asks the source when the mirror is down, for everything', async () => {
    await mirror.stop();
    expect((await both.resolve('1.0-multi')).digest).to.equal(sample.list.digest);
    expect(await buffer(await both.fetch(sample.layer, 1000))).to.have.length(sample.layer.size - 1000);
    expect(await both.exists(sample.layer)).to.equal(true);
    expect(await both.tags()).to.have.length(2);
    expect(await both.exists({ ...sample.layer, digest: `sha256:${'0'.repeat(64)}` })).to.equal(false);
  });

  it('does not report missing content if the source is unreachable and no mirror responded', async () => {
    const hosts = [mirror.host, source.host];
    await Promise.all([mirror.stop(), source.stop()]);
    const { message } = await failureOf(both.exists(sample.layer), 'unreachable');
    for (const host of hosts) expect(message).to.contain(host);
  });
});

describe('firstSuccess', () => {
  const places = [{ name: 'host-a' }, { name: 'host-b' }, { name: 'host-c' }];
  const asking = async (...codes: (PluginError['code'] | Error)[]): Promise<{ error: unknown; asked: number }> => {
    let asked = 0;
    const error = await firstSuccess(places, () => {
      const code = codes[(asked += 1) - 1] ?? 'internal';
      return Promise.reject(typeof code === 'string' ? new PluginError(code, `${code}!`) : code);
    }).catch((thrown: unknown) => thrown);
    return { error, asked };
  };

  it('ends with the first that can answer', async () => {
    const asked: string[] = [];
    const answer = await firstSuccess(places, ({ name }) => {
      asked.push(name);
      return name === 'host-b' ? Promise.resolve(1) : Promise.reject(new PluginError('denied', 'no'));
    });
    expect({ answer, asked }).to.deep.equal({ answer: 1, asked: ['host-a', 'host-b'] });
  });

  it('has the messages of all, and the code of the last', async () => {
    const { error } = await asking('denied', 'not-found', 'digest-mismatch');
    expect(error).to.include({
      code: 'digest-mismatch',
      message: 'host-a: denied!; host-b: not-found!; host-c: digest-mismatch!',
    });
  });

  it('fails with not-found if all reachable places agree', async () => {
    expect((await asking('not-found', 'not-found', 'unreachable')).error).to.include({ code: 'not-found' });
    expect((await asking('unreachable', 'tls', 'unreachable')).error).to.include({ code: 'unreachable' });
  });

  it('ends immediately if no other place would help', async () => {
    for (const code of ['interrupted', 'disk-full', 'not-writable', new TypeError('a defect')] as const) {
      expect((await asking(code)).asked).to.equal(1);
    }
  });

  it('needs a place to ask', async () => {
    await failureOf(
      firstSuccess([], () => Promise.resolve(1)),
      'internal',
    );
  });
});
