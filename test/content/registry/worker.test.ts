import { on } from 'node:events';
import { Worker } from 'node:worker_threads';
import { expect } from 'chai';
import { TransientError } from '../../../lib/content/http/retry.ts';
import { DestinationError } from '../../../lib/content/registry/relay.ts';
import type { RegistrySettings } from '../../../lib/content/registry/session.ts';
import {
  fromPlainError,
  toPlainError,
  type Download,
  type FromWorker,
  type ToWorker,
} from '../../../lib/content/registry/worker.ts';
import { PluginError } from '../../../lib/errors.ts';
import { startRegistry, type TestRegistry } from '../../fakes/registry/registry.ts';
import { basicAuthorization } from '../../fakes/registry/tokenServer.ts';
import { addBlob, Places } from '../../support/content/places.ts';

describe('toPlainError and fromPlainError', () => {
  it('carry an error from one thread to another, with its hint', () => {
    const error = new PluginError('denied', 'no', { hint: 'ask', cause: new Error('secret') });
    const plain = structuredClone(toPlainError(error));
    expect(plain).to.deep.equal({ code: 'denied', message: 'no', hint: 'ask' });
    expect(fromPlainError(plain)).to.be.instanceOf(PluginError).and.include(plain);
    expect(fromPlainError(plain)).not.to.be.instanceOf(TransientError);
  });

  it('keep that another attempt may help, and after which time', () => {
    for (const retryAfter of [undefined, 0, 3000]) {
      const error = new TransientError('rate-limited', 'not now', { hint: 'later', retryAfter });
      const carried = fromPlainError(structuredClone(toPlainError(error)));
      expect(carried).to.be.instanceOf(TransientError);
      expect(carried).to.include({ code: 'rate-limited', message: 'not now', hint: 'later', retryAfter });
    }
  });

  it('report an error that is not a PluginError as a defect', () => {
    expect(toPlainError(new TypeError('x is not a function'))).to.include({
      code: 'internal',
      message: 'x is not a function',
    });
    expect(toPlainError('x')).to.include({ code: 'internal', message: 'x' });
  });

  it('keep that the destination failed, and not a source', () => {
    const carried = fromPlainError(
      structuredClone(toPlainError(new DestinationError(new PluginError('denied', 'no')))),
    );
    expect(carried).to.be.instanceOf(DestinationError);
    expect((carried as DestinationError).failure)
      .to.be.instanceOf(PluginError)
      .and.include({ code: 'denied' });
  });
});

describe('a download thread', () => {
  const user = { username: 'me', password: 'p-ssw-rd' };
  const header = basicAuthorization(user.username, user.password);
  let registry: TestRegistry;
  let places: Places;
  let worker: Worker;
  beforeEach(async () => {
    registry = await startRegistry({ basic: user });
    places = await Places.make();
    const settings: RegistrySettings = { insecure: true, environment: {}, maxPerRegistry: 6, userAgent: 'test' };
    worker = new Worker(new URL('../../../lib/content/registry/worker.ts', import.meta.url), { workerData: settings });
  });
  afterEach(async () => {
    await worker.terminate();
    await Promise.all([registry.stop(), places.remove()]);
  });

  /** Has the thread download a blob. Answers its questions, and returns its messages up to the end of the download. */
  const download = async (id: number, answer: (question: number) => ToWorker): Promise<FromWorker[]> => {
    const { descriptor } = addBlob(registry.content, String(id), 1000);
    const place = await places.next(descriptor.size);
    const repositories = [{ registry: registry.host, repository: 'a/b' }];
    const arrived = on(worker, 'message');
    worker.postMessage({ kind: 'download', id, download: { place, descriptor, repositories } satisfies Download });
    const messages: FromWorker[] = [];
    for await (const [message] of arrived as AsyncIterable<[FromWorker]>) {
      messages.push(message);
      if (message.kind === 'authorize') worker.postMessage(answer(message.id));
      if (message.kind === 'finished' || message.kind === 'failed') break;
    }
    return messages;
  };
  const kindsOf = (messages: readonly FromWorker[]): string[] =>
    messages.map(({ kind }) => kind).filter((kind) => kind !== 'log' && kind !== 'progress');
  const allow = (id: number): ToWorker => ({ kind: 'authorized', id, header });

  it('asks for the authorization of a repository once', async () => {
    expect(kindsOf(await download(1, allow))).to.deep.equal(['authorize', 'finished']);
    expect(kindsOf(await download(2, allow))).to.deep.equal(['finished']);
    const logged = (await download(3, allow)).filter(({ kind }) => kind === 'log');
    expect(JSON.stringify(logged)).to.contain('/v2/a/b/blobs/').and.not.contain(header);
  });

  it('asks again after an answer that the registry rejects, and after a failed one', async () => {
    const error = toPlainError(new PluginError('unauthorized', 'no password'));
    const failed = await download(1, (id) => ({ kind: 'refused', id, error }));
    expect(failed.at(-1)).to.deep.equal({ kind: 'failed', id: 1, error });
    let answers = 0;
    const both = await download(2, (id) =>
      (answers += 1) === 1 ? { kind: 'authorized', id, header: undefined } : allow(id),
    );
    expect(kindsOf(both)).to.deep.equal(['authorize', 'authorize', 'finished']);
  });
});
