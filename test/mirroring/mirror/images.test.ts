import { expect } from 'chai';
import { importImages, type StreamImage } from '../../../lib/mirroring/mirror/images.ts';
import { ImportingServer } from '../../fakes/kubernetes/importingServer.ts';
import { connectTo, type ConnectedCluster } from '../../support/cluster.ts';
import { failureOf } from '../../support/program/failure.ts';

describe('importImages', () => {
  let server: ImportingServer;
  let connected: ConnectedCluster;
  const images = Array.from({ length: 20 }, (_, index): StreamImage => {
    return { tag: `image-${index}`, pullspec: `quay.test/a@sha256:${String(index).padStart(64, '0')}` };
  });
  const run = (dryRun = false): Promise<void> =>
    importImages(connected.cluster, { stream: 'release', images, insecure: false, dryRun }, connected.context);

  beforeEach(async () => {
    server = new ImportingServer();
    await server.start();
    connected = await connectTo(server);
  });
  afterEach(async () => {
    await connected.close();
    await server.stop();
  });

  it('imports all images a few at a time, by digest, into their tags', async () => {
    await run();
    expect(server.imports.map(({ spec }) => spec.images.length)).to.deep.equal([13, 7]);
    const made = server.imports.flatMap(({ spec }) => spec.images.map(({ from, to }) => [to.name, from.name]));
    expect(made).to.deep.equal(images.map(({ tag, pullspec }) => [tag, pullspec]));
    expect(server.imports.every(({ metadata, spec }) => metadata.name === 'release' && spec.import)).to.equal(true);
  });

  it('imports nothing in a dry run', async () => {
    await run(true);
    expect(server.imports.some(({ spec }) => spec.import)).to.equal(false);
  });

  it('tries those again that fail', async () => {
    server.failures.set('image-3', 2);
    await run();
    expect(server.imports.map(({ spec }) => spec.images.length)).to.deep.equal([13, 7, 1, 1]);
  });

  it('names images that still fail after retries', async () => {
    server.failures.set('image-3', 99).set('image-15', 99);
    const error = await failureOf(run(), 'partial');
    expect(error.message)
      .to.match(/^2 of 20 images/)
      .and.contain('image-3 (quay.test/a@')
      .and.contain('image-15 (');
    expect(error.message).to.contain('manifest unknown');
  });
});
