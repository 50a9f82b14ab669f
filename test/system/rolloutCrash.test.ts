import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { RolloutSite } from '../fakes/cluster/rollout.ts';
import { makeFacts, upgradeBundle } from '../fakes/cluster/updatingSite.ts';
import type { RequestRecord } from '../fakes/http/faults.ts';
import { makeKubeconfigFolder } from '../support/kubeconfig.ts';

/** The result of a rollout, without the parts that differ each time. */
interface Remains {
  readonly phases: readonly string[];
  readonly requests: readonly unknown[];
  readonly others: readonly unknown[];
  readonly pins: readonly string[];
  readonly status: unknown;
}

const isWrite = ({ method, path }: RequestRecord): boolean => method !== 'GET' && !path.includes('/leases/');

describe('controlRollout, when the controller is killed', () => {
  let rollout: RolloutSite;
  const start = async (openshift = '4.19.3'): Promise<void> => {
    rollout = await RolloutSite.start({ openshift });
    // An update of a cluster takes longer than the start of another controller.
    rollout.site.updating = false;
    rollout.facts = makeFacts({ previous: [openshift] });
  };
  beforeEach(() => start());
  afterEach(() => rollout.close());

  const remains = (): Remains => ({
    phases: [...new Set(rollout.phases)],
    requests: rollout.site.requests,
    others: ['MachineHealthCheck', 'ClusterAutoscaler', 'MachineConfigPool']
      .flatMap((kind) => rollout.all(kind))
      .map(({ metadata, spec }) => [metadata['annotations'] ?? {}, spec]),
    pins: rollout.all('PinnedImageSet').map(({ metadata }) => metadata.name),
    status: ['phase', 'version', 'release', 'nodesReady', 'progress'].map(
      (field) => ({ ...rollout.bundle()?.status } as Record<string, unknown>)[field],
    ),
  });
  const put = (hold: boolean): void => {
    rollout.server.put(upgradeBundle(undefined, { hold }));
  };
  /** Runs the rollout to its end, and resumes a held update. */
  const finish = async (hold: boolean): Promise<Remains> => {
    if (hold) {
      await rollout.untilPhase('Held');
      rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { hold: false } });
    }
    await rollout.untilPhase('Upgrading');
    rollout.site.updating = true;
    rollout.site.wake();
    await rollout.untilPhase('Completed');
    // Everything that it paused is restored before it reports the end, except leftovers of the
    // killed controller.
    await rollout.until(() => remains().others.every((each) => !JSON.stringify(each).includes('upgrade-bundle')));
    return remains();
  };

  it('resumes with another process, if it is killed when a phase is reached', async () => {
    rollout.site.updating = true;
    put(true);
    const kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = await kubeconfigs.write({ cluster: { server: rollout.server.url } });
    const begin = (identity: string): ChildProcess =>
      fork(fileURLToPath(new URL('../fakes/cluster/rolloutChild.ts', import.meta.url)), [kubeconfig, identity]);
    const end = async (child: ChildProcess): Promise<void> => {
      const ended = once(child, 'exit');
      child.kill('SIGKILL');
      await ended;
    };
    const reached = new Set<string | undefined>();
    let child = begin('master-0');
    try {
      for (let count = 1; !reached.has('Completed'); count += 1) {
        await rollout.until(() => !reached.has(rollout.bundle()?.status?.phase));
        reached.add(rollout.bundle()?.status?.phase);
        if (reached.has('Held')) rollout.edit('UpgradeBundle', 'upgrade-4.19.4-amd64', { spec: { hold: false } });
        await end(child);
        child = begin(`master-${count % 2}`);
      }
    } finally {
      await end(child);
      await kubeconfigs.remove();
    }
    expect(reached.size).to.be.greaterThan(3);
    expect(remains().requests).to.have.length(1);
    expect(remains().others.some((each) => JSON.stringify(each).includes('upgrade-bundle'))).to.equal(false);
  });

  const sites = [
    { hold: false, openshift: '4.19.3', what: '' },
    { hold: true, openshift: '4.19.3', what: ', with a hold' },
    { hold: false, openshift: '4.18.3', what: ', where pools have to wait' },
  ];
  for (const { hold, openshift, what } of sites) {
    it(`resumes with another process after any last write${what}`, async () => {
      const { result, writes } = await runUndisturbed(hold, openshift);
      expect(writes).to.be.greaterThan(15);
      // A last write that does not arrive leaves what the write before leaves if it has no response. The other sites
      // try every second write.
      for (let last = 1; last <= writes; last += what === '' ? 1 : 2)
        expect(await crashAfter(last, hold, openshift), String(last)).to.deep.equal(result);
      await start();
    });
  }

  /** Runs the rollout with one controller. Returns its result, and the number of its writes. */
  async function runUndisturbed(hold: boolean, openshift: string): Promise<{ result: Remains; writes: number }> {
    await rollout.close();
    await start(openshift);
    put(hold);
    const before = remains().others;
    await rollout.control();
    const result = await finish(hold);
    expect(result.others).to.deep.equal(before);
    const writes = rollout.server.requests.filter(isWrite).length;
    await rollout.close();
    return { result, writes };
  }

  /** Runs the rollout with a controller that crashes after a write, and another one. Returns the result. */
  async function crashAfter(last: number, hold: boolean, openshift: string): Promise<Remains> {
    await start(openshift);
    let count = 0;
    const first = await rollout.control('master-0');
    const die = (): void => {
      first.crash();
      // The next controller need not wait until the Lease expires.
      const lease = rollout.all('Lease').find(({ metadata }) => metadata.name === 'controller');
      rollout.server.put({ ...lease, spec: {} });
    };
    // The last write is executed without a response.
    rollout.server.fault(
      (request) => {
        if (isWrite(request) && (count += 1) === last) setImmediate(die);
        return false;
      },
      { noAnswer: 'reset' },
    );
    put(hold);
    const finished = finish(hold);
    await rollout.until(() => count >= last || rollout.bundle()?.status?.phase === 'Completed');
    await rollout.control('worker-1');
    const result = await finished;
    await rollout.close();
    return result;
  }
});
