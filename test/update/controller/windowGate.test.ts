import { expect } from 'chai';
import { fieldsOf } from '../../../lib/fields.ts';
import type { BundleFacts } from '../../../lib/update/record/bundleFacts.ts';
import { resumeUpdate } from '../../../lib/update/record/bundleRecord.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { makeFacts, makeHops, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import { connectTo } from '../../support/cluster.ts';

/** A Saturday, and the windows of a site. */
const noon = Date.parse('2030-06-01T12:00Z');
const night = Date.parse('2030-06-01T23:00Z');
const spec = { windows: ['Sat 22:00-04:00 UTC'], windowNeeds: '2h' };

/** Returns facts whose releases were signed two years before. */
function signIn2028(facts: BundleFacts): BundleFacts {
  const signatures = new Map(
    [...facts.signatures].map(([digest, all]) => [
      digest,
      all.map((each) => ({ ...each, created: new Date('2028-05-01T00:00Z') })),
    ]),
  );
  return { ...facts, signatures, ...(facts.hops && { hops: facts.hops.map(signIn2028) }) };
}

describe('an update with maintenance windows', () => {
  let rollout: RolloutSite;
  beforeEach(async () => {
    rollout = await RolloutSite.start();
    rollout.facts = signIn2028(makeFacts());
  });
  afterEach(() => rollout.close());

  const setClock = (now: number, isSynchronized?: boolean, own = now): void => {
    rollout.clock = { now, own, isSynchronized };
  };
  const requested = (): unknown => fieldsOf(rollout.all('ClusterVersion')[0]?.['spec'])['desiredUpdate'];
  const reason = (): string => rollout.condition('Updated').split(':')[0] ?? '';
  const resume = async (): Promise<void> => {
    await using connected = await connectTo(rollout.server);
    const bundle = rollout.bundle();
    if (bundle) await resumeUpdate(connected.cluster, bundle);
  };

  it('is loaded and pinned outside of them, and requested only within one', async () => {
    setClock(noon, true);
    rollout.server.put(upgradeBundle(undefined, spec));
    await rollout.control();
    await rollout.untilPhase('Held');
    expect(rollout.condition('Updated')).to.match(
      /^False OutsideWindow: everything is ready; .* with 2h begins Sat 1 Jun 2030, 22:00 UTC, 2030-06-01T22:00:00Z; to start it now: .*resume/,
    );
    expect(rollout.bundle()?.status?.nodesReady).to.equal('3/3');
    expect(requested()).to.equal(undefined);
    expect(JSON.stringify(rollout.all('MachineHealthCheck'))).to.not.contain('paused-for');
    setClock(Date.parse('2030-06-02T02:30Z'), true);
    await rollout.until(() => rollout.condition('Updated').includes('Sat 8 Jun 2030'));
    setClock(night, true);
    await rollout.untilPhase('Completed');
  });

  it('waits at each update of several', async () => {
    rollout.facts = signIn2028(makeHops());
    setClock(night, true);
    rollout.server.put(upgradeBundle(undefined, spec));
    await rollout.control();
    await rollout.until(() => rollout.bundle()?.status?.phase === 'Upgrading');
    setClock(noon, true);
    await rollout.until(() => rollout.bundle()?.status?.version === '4.20.3' && reason() === 'False OutsideWindow');
    setClock(night, true);
    await rollout.untilPhase('Completed');
  });

  for (const [what, change, words] of [
    ['no time server sets it', () => setClock(night, false), /no time server \(NTP\) sets the clock of this node/],
    ['two clocks differ', () => setClock(night, true, night + 6 * 60_000), /differ by 6 minutes/],
    [
      'it is before the signature',
      () => setClock(Date.parse('2028-04-01T00:00Z'), true),
      /before the signature of the release/,
    ],
    [
      'it is years after the signature',
      () => setClock(Date.parse('2038-01-02T23:00Z'), true),
      /over five years after the sig/,
    ],
  ] as const)
    it(`waits for resume if the clock cannot be trusted: ${what}`, async () => {
      change();
      rollout.server.put(upgradeBundle(undefined, spec));
      await rollout.control();
      await rollout.untilPhase('Held');
      expect(reason()).to.equal('False ClockNotTrusted');
      expect(rollout.condition('Updated')).to.match(words);
      expect(requested()).to.equal(undefined);
      await resume();
      await rollout.untilPhase('Completed');
    });

  it('keeps its windows when resume removes a hold, and starts at the next resume', async () => {
    setClock(noon, true);
    rollout.server.put(upgradeBundle(undefined, { ...spec, hold: true }));
    await rollout.control();
    await rollout.until(() => reason() === 'False Held');
    await resume();
    await rollout.until(() => reason() === 'False OutsideWindow');
    expect(requested()).to.equal(undefined);
    await resume();
    await rollout.untilPhase('Completed');
  });

  it('does not start with a window that cannot be read', async () => {
    setClock(night, true);
    rollout.server.put(upgradeBundle(undefined, { windows: ['Sat 22:00-04:00 Europe/Berln'] }));
    await rollout.control();
    await rollout.untilPhase('Held');
    expect(rollout.condition('Updated')).to.match(
      /OutsideWindow: spec\.windows cannot be read: “Europe\/Berln” is not a time zone/,
    );
  });
});
