import { expect } from 'chai';
import { findMissingImages } from '../../../lib/update/controller/observation.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import { startCluster, type StartedCluster } from '../../support/cluster.ts';

describe('findMissingImages', () => {
  const since = new Date('2026-11-20T10:00:00Z');
  let started: StartedCluster;
  beforeEach(async () => {
    started = await startCluster();
    started.server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'shop' } });
  });
  afterEach(() => started.close());

  /** Stores the event of a kubelet about a pod. */
  const put = (name: string, message: string, more: object = {}): void =>
    void started.server.put({
      apiVersion: 'v1',
      kind: 'Event',
      metadata: { name, namespace: 'shop' },
      involvedObject: { kind: 'Pod', namespace: 'shop', name: `${name}-1` },
      reason: 'Failed',
      message,
      lastTimestamp: '2026-11-20T10:00:00Z',
      ...more,
    });
  const failed = (image: string): string => `Failed to pull image "${image}": dial tcp: no route to host`;
  const find = (...images: string[]) => findMissingImages(started.cluster, images, since);

  it('names each image once, with a pod that needs it, in the order of images', async () => {
    put('web', failed('quay.io/shop/web:1'));
    put('again', failed('quay.io/shop/web:1'));
    put('a', failed('quay.io/shop/a:1'));
    const [first, second, ...rest] = await find();
    expect(first).to.deep.equal({ image: 'quay.io/shop/a:1', pod: 'shop/a-1', bundled: false });
    expect(second).to.deep.include({ image: 'quay.io/shop/web:1', bundled: false });
    expect(second?.pod).to.be.oneOf(['shop/web-1', 'shop/again-1']);
    expect(rest).to.deep.equal([]);
  });

  it('tells the images of the bundle by their digest, in any repository and never by a tag', async () => {
    put('dns', failed(platformImage('a').replace('quay.io', 'mirror.example')));
    put('other', failed(platformImage('b')));
    put('tag', failed('quay.io/openshift-release-dev/ocp-v4.0-art-dev:latest'));
    const found = await find(platformImage('a'), 'quay.io/openshift-release-dev/ocp-v4.0-art-dev:latest');
    expect(found.flatMap(({ pod, bundled }) => (bundled ? [pod] : []))).to.deep.equal(['shop/dns-1']);
    expect(found).to.have.length(3);
  });

  it('leaves out earlier events, those of other reasons and objects, and other failures', async () => {
    put('early', failed('quay.io/shop/early:1'), { lastTimestamp: '2026-11-20T09:59:59Z' });
    put('other', failed('quay.io/shop/other:1'), { reason: 'BackOff' });
    put('node', failed('quay.io/shop/node:1'), {
      involvedObject: { kind: 'Node', namespace: 'shop', name: 'worker-0' },
    });
    put('crash', 'Error: cannot start: Failed to pull image "quay.io/shop/crash:1"');
    put('series', failed('quay.io/shop/series:1'), { lastTimestamp: null, eventTime: '2026-11-20T10:00:00.000001Z' });
    expect((await find()).map(({ pod }) => pod)).to.deep.equal(['shop/series-1']);
  });
});
