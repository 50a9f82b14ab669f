import { once } from 'node:events';
import { expect } from 'chai';
import { leadWithLease, type LeaseOptions } from '../../lib/cluster/lease.ts';
import { checkInterrupted } from '../../lib/context.ts';
import type { TestApiServer } from '../fakes/kubernetes/apiServer.ts';
import { TestClock } from '../support/clock.ts';
import { connectTo, startCluster, type StartedCluster } from '../support/cluster.ts';
import { makeContext, type TestContext } from '../support/context.ts';
import { until as waitUntil } from '../support/until.ts';

const lease = (spec: object = {}) => ({
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  metadata: { name: 'controller', namespace: 'default' },
  spec,
});

describe('leadWithLease', () => {
  let server: TestApiServer;
  let connected: StartedCluster;
  let clock: TestClock;
  let contenders: { context: TestContext; running: Promise<unknown> }[];

  beforeEach(async () => {
    connected = await startCluster();
    ({ server } = connected);
    server.put(lease());
    contenders = [];
    clock = new TestClock();
  });
  afterEach(async () => {
    for (const { context } of contenders) context.interrupt();
    await Promise.allSettled(contenders.map(({ running }) => running));
    await connected.close();
  });

  /** Contends for the Lease, and records when it leads and stops. */
  const contend = (identity: string, options: Partial<LeaseOptions> = {}) => {
    const context = makeContext();
    const log: string[] = [];
    const lead = async (signal: AbortSignal): Promise<void> => {
      log.push('leads');
      await once(signal, 'abort');
      log.push('stops');
      checkInterrupted(signal);
    };
    const given = {
      name: 'controller',
      namespace: 'default',
      identity,
      duration: 1000,
      retryPeriod: 20,
      clock,
      ...options,
    };
    const running = leadWithLease(connected.cluster, given, context, lead);
    running.catch(() => undefined);
    contenders.push({ context, running });
    return { context, log, running };
  };
  const spec = () =>
    server.find('coordination.k8s.io/v1', 'Lease', 'controller', 'default')?.['spec'] as Record<string, unknown>;
  const until = (holds: () => boolean): Promise<void> => clock.advanceUntil(holds);

  it('lets one lead, and the next when that one gives up', async () => {
    const [a, b] = [contend('a'), contend('b')];
    await until(() => a.log.length + b.log.length > 0);
    const [first, second] = a.log.length > 0 ? [a, b] : [b, a];
    const { renewTime, acquireTime } = spec();
    await until(() => spec()['renewTime'] !== renewTime);
    expect([spec()['acquireTime'], second.log]).to.deep.equal([acquireTime, []]);
    first.context.interrupt();
    await until(() => second.log.length > 0);
    expect(first.log).to.deep.equal(['leads', 'stops']);
    expect(spec()).to.include({ holderIdentity: second === a ? 'a' : 'b', leaseDurationSeconds: 1 });
    expect(spec()['leaseTransitions']).to.equal(2);
    expect(spec()['renewTime']).to.match(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);
  });

  it('takes over from a dead holder, independent of its clock', async () => {
    const renewTime = new Date(Date.now() + 3_600_000).toISOString().replace('Z', '000Z');
    server.put(lease({ holderIdentity: 'dead', leaseDurationSeconds: 1, renewTime, leaseTransitions: 4 }));
    const a = contend('a');
    await until(() => a.log.length > 0);
    expect(spec()).to.deep.include({ holderIdentity: 'a', leaseTransitions: 5 });
  });

  it('accepts a leader whose clock is far behind, as long as it renews', async () => {
    const renew = (count: number): void => {
      const renewTime = new Date(count * 1000).toISOString().replace('Z', '000Z');
      server.put(lease({ holderIdentity: 'slow', leaseDurationSeconds: 1, renewTime }));
    };
    renew(0);
    const a = contend('a');
    for (let count = 1; count < 15; count += 1) {
      await clock.advance(100);
      renew(count);
    }
    expect(a.log).to.deep.equal([]);
    await until(() => a.log.length > 0);
  });

  it('continues immediately when the same holder returns', async () => {
    server.put(lease({ holderIdentity: 'a', leaseDurationSeconds: 3600, leaseTransitions: 1 }));
    const a = contend('a');
    await until(() => a.log.length > 0);
    expect(spec()['leaseTransitions']).to.equal(1);
  });

  it('stops when it cannot renew, and leads again later', async () => {
    const a = contend('a');
    await until(() => a.log.length > 0);
    server.fault(/leases/, { noAnswer: 'reset' });
    await until(() => a.log.length > 1);
    expect(a.log).to.deep.equal(['leads', 'stops']);
    server.clearFaults();
    await until(() => a.log.length > 2);
  });

  it('counts its time from before a renewal, whose answer may be late', async () => {
    const a = contend('a', { retryPeriod: 500 });
    await until(() => a.log.length > 0);
    const before = server.requests.length;
    const { renewTime } = spec();
    server.fault(/PUT .*leases/, { delay: 200 }, { times: 1 });
    await until(() => server.requests.length > before);
    const begun = clock.now();
    await clock.advance(100);
    await waitUntil(() => spec()['renewTime'] !== renewTime);
    server.fault(/leases/, { noAnswer: 'reset' });
    await until(() => a.log.length > 1);
    // Three quarters of the duration, and one step of the clock.
    expect(clock.now() - begun).to.be.at.most(770);
  });

  it('renews with one request', async () => {
    const a = contend('a');
    await until(() => a.log.length > 0);
    const before = server.requests.length;
    await until(() => server.requests.length >= before + 4);
    expect(new Set(server.requests.slice(before).map(({ method }) => method))).to.deep.equal(new Set(['PUT']));
  });

  it('stops when another contender took the Lease, long before its own deadline', async () => {
    const a = contend('a', { duration: 200_000 });
    await until(() => a.log.length > 0);
    const taken = clock.now();
    server.put(lease({ holderIdentity: 'b', leaseDurationSeconds: 3600 }));
    await until(() => a.log.length > 1);
    expect(clock.now() - taken).to.be.below(100_000);
    expect(a.log).to.deep.equal(['leads', 'stops']);
    expect(spec()['holderIdentity']).to.equal('b');
  });

  it('does not release the Lease of another contender', async () => {
    const options = { name: 'controller', namespace: 'default', identity: 'a' };
    await leadWithLease(connected.cluster, options, makeContext(), () => {
      server.put(lease({ holderIdentity: 'b', leaseDurationSeconds: 3600 }));
      return Promise.resolve();
    });
    expect(spec()['holderIdentity']).to.equal('b');
  });

  it('creates a Lease that was deleted', async () => {
    server.objects.delete({ kind: leaseKind(), namespace: 'default', name: 'controller' }, {}, false);
    const a = contend('a');
    await until(() => a.log.length > 0);
    expect(a.context.lines).to.include('warn: created the Lease controller in default, which was missing');
    expect(spec()['holderIdentity']).to.equal('a');
  });

  it('releases the Lease when the process is interrupted, although its other requests end', async () => {
    await using own = await connectTo(server);
    const given = { name: 'controller', namespace: 'default', identity: 'a', duration: 60_000, retryPeriod: 20 };
    let leads = false;
    const running = leadWithLease(own.cluster, given, own.context, async (signal) => {
      leads = true;
      await once(signal, 'abort');
      checkInterrupted(signal);
    });
    running.catch(() => undefined);
    await until(() => leads);
    own.context.interrupt();
    await running.catch(() => undefined);
    expect(spec()['holderIdentity']).to.equal('');
  });

  it('throws the errors of the leader, and releases the Lease', async () => {
    const context = makeContext();
    const options = { name: 'controller', namespace: 'default', identity: 'a' };
    const failing = leadWithLease(connected.cluster, options, context, () => Promise.reject(new Error('broken')));
    let message = '';
    await failing.catch((error: unknown) => (message = (error as Error).message));
    expect(message).to.equal('broken');
    expect(spec()['holderIdentity']).to.equal('');
  });

  const leaseKind = () => {
    const kind = server.kinds.find((known) => known.kind === 'Lease');
    if (!kind) throw new Error('the server has no Lease');
    return kind;
  };
});
