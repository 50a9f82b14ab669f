import { expect } from 'chai';
import { describeUnfinished, exitCodeOf, formatPlan, toPlainPlan } from '../../../cmd/mirror-registry/planReport.ts';
import type { UpgradePlan } from '../../../lib/registry-host/change/plan.ts';
import { makeFixture, type FixtureOptions } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { planFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';
import { imagesOf } from '../../fakes/mirror-registry/mirrorRegistryUnits.ts';

describe('the report of a plan', () => {
  const { postgres: _, ...latest } = imagesOf('2.0.11');
  const plan = async (options: FixtureOptions, target = latest): Promise<UpgradePlan> => {
    await using fixture = await makeFixture({ configuration: 'EXTERNAL_TLS_TERMINATION: true\n', ...options });
    return await planFixture(fixture, target);
  };
  const linesOf = (...report: Parameters<typeof formatPlan>): string[] => [...formatPlan(...report).lines];
  let upgrade: UpgradePlan;
  let upToDate: UpgradePlan;
  before(async () => {
    upgrade = await plan({ age: '2.0.7' });
    upToDate = await plan({ age: '2.0.11' });
  });

  it('has the images, the changed files with reasons, and the units to restart in order', () => {
    const [title, , head, ...lines] = linesOf(upgrade, false);
    expect(title).to.equal('An upgrade from 2.0.7 to 2.0.11');
    expect(head).to.match(/^IMAGE +FROM +TO$/);
    for (const { component, from, to } of upgrade.images)
      expect(lines.map((line) => line.split(/ {2,}/))).to.deep.include([component, from, to]);
    for (const { path, reasons } of upgrade.units) expect(lines).to.include(`change ${path}: ${reasons.join('; ')}`);
    expect(lines).to.include('restart quay-redis, quay-app');
    expect(lines.join('\n')).not.to.contain('@@');
  });

  it('has the diff of the units only on request, and always as data', () => {
    const { units } = toPlainPlan(upgrade) as { units: { path: string; diff: string }[] };
    expect(units.map(({ path }) => path)).to.deep.equal(upgrade.units.map(({ path }) => path));
    const lines = linesOf(upgrade, true);
    for (const { path, diff } of units) {
      expect(diff).to.match(new RegExp(`^--- .*${path}\\n\\+\\+\\+ .*\\n@@ `));
      expect(lines).to.include.members(diff.trimEnd().split('\n'));
      expect(JSON.stringify(units)).not.to.contain('"before"');
    }
  });

  it('tells an image that another one replaces under the same name', () => {
    const [image] = upgrade.images;
    const same = image ? [{ ...image, to: image.from }] : [];
    expect(linesOf({ ...upgrade, images: same }, false).join('\n')).to.contain(
      `${image?.from}  another image of that name`,
    );
  });

  it('calls another minor version of Quay by name, and describes the move of a database', async () => {
    const moved = await plan({ age: '1.3.11' });
    const lines = linesOf(moved, false);
    expect(lines[0]).to.match(/^An upgrade from 1\.3\.11 to 2\.0\.11, with another minor version of Quay$/);
    expect(lines).to.include.members([
      'move the database from PostgreSQL to SQLite in sqlite-storage',
      `change ${moved.migration?.configuration}: DB_URI`,
      'disable quay-postgres.service, and keep it for a rollback',
    ]);
  });

  it('says that there is nothing to do only if nothing is due or blocked', () => {
    const nothing = 'The mirror registry is up to date: there is nothing to do.';
    expect(linesOf(upToDate, false)).to.deep.equal([nothing]);
    expect(linesOf({ ...upToDate, warnings: ['a'] }, false)).to.deep.equal([nothing, 'note: a']);
    const due = { ...upToDate, due: ['b'], warnings: ['a'] };
    expect(linesOf(due, false)).to.deep.equal(['The mirror registry needs your attention.', 'DUE: b', 'note: a']);
    const blocked = { ...due, blockers: ['c'] };
    const [title, ...notes] = linesOf(blocked, false);
    expect(title).to.equal('The upgrade of the mirror registry is blocked.');
    expect(notes).to.deep.equal(['BLOCKED: c', 'DUE: b', 'note: a']);
  });

  it('has exit codes for nothing to do, a change, and a blocked one', () => {
    const codeOf = (changes: Partial<UpgradePlan>, base = upToDate, isUnfinished = false): number =>
      exitCodeOf({ ...base, ...changes }, isUnfinished, { changesExitcode: 10 });
    expect(codeOf({})).to.equal(0);
    expect(codeOf({}, upgrade)).to.equal(10);
    expect(codeOf({ due: ['a'] })).to.equal(10);
    expect(codeOf({}, upToDate, true)).to.equal(10);
    expect(codeOf({ blockers: ['a'] }, upgrade, true)).to.equal(1);
  });

  describe('with a forecast', () => {
    const forecast = {
      databaseSize: 3 * 2 ** 30,
      copyTime: 90,
      lastOutage: undefined,
      backupSize: 2 ** 30,
      free: 2 ** 40,
    };

    it('answers how long the registry is down, and how to go back', () => {
      const text = linesOf(upgrade, false, forecast).join('\n');
      expect(text)
        .to.match(
          /How long is it down\? 3\.0+ GiB of database are copied and checked, in about 1 ?m.* Not measured on this/,
        )
        .and.to.contain('The backup needs 1.0 GiB, and 1.0 TiB are free.')
        .and.to.contain('Images pushed since then have to be pushed again.');
    });

    it('has the last measured time, and no loss of images without a change of the database', () => {
      const text = linesOf(upgrade, false, { ...forecast, databaseSize: 0, lastOutage: 42 }).join('\n');
      expect(text)
        .to.match(/How long is it down\? Quay restarts\. The last such change took 42 ?s; the limit is 300 s/)
        .and.not.to.contain('pushed again');
    });
  });

  it('names the commands that end an unfinished change', () => {
    const words = describeUnfinished({ title: 'the upgrade to 2.0.11', phase: 'stopped', begun: '2026-01-01' });
    expect(words).to.match(
      /^the upgrade to 2\.0\.11 is unfinished \(stopped\): .*'rollback', or 'rollback --abandon'$/,
    );
  });
});
