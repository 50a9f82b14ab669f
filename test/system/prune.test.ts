import { cp, readdir, rename, rm } from 'node:fs/promises';
import { expect } from 'chai';
import { startChangeProxy } from '../support/changeProxy.ts';
import {
  addRelease,
  openWorkshop,
  startExecutable,
  runExecutable,
  type Outcome,
  type Running,
  type Workshop,
} from '../support/content/creation.ts';
import { startDockerRegistry } from '../support/dockerRegistry.ts';
import { requirePeer } from '../support/peers.ts';
import { copyAtEachStep } from '../support/program/crashStates.ts';
import { listTags, Mirroring, readTagLinks } from '../support/release/mirroring.ts';
import type { TestRelease } from '../support/release/release.ts';

describe('oc adm-release-mirror-config prune, killed at many steps', () => {
  let workshop: Workshop;
  let mirroring: Mirroring;
  let old: TestRelease;

  before(async () => {
    workshop = await openWorkshop();
    mirroring = new Mirroring(workshop);
    old = await addRelease(workshop, { version: '4.12.3', seed: 'old' });
  });
  after(() => workshop.close());

  const both = (): string => `${old.pullspec},${workshop.release.pullspec}`;
  const words = (target: string): string[] => ['prune', '--insecure', target, '--keep=4.12.4', '--yes'];
  const prune = (target: string, env: NodeJS.ProcessEnv = {}): Running =>
    startExecutable('oc-adm_release_mirror_config', workshop.folder, words(target), env);
  const finish = async (target: string): Promise<void> => {
    const { code, stderr } = await runExecutable('oc-adm_release_mirror_config', workshop.folder, words(target));
    expect(code, stderr).to.equal(0);
  };
  /** Checks that the kept release is complete, and that the other one has its tag only if it is complete too. */
  const checkTarget = async (target: string, tags: readonly string[], at: number): Promise<void> => {
    const kept = await mirroring.succeed([target, '--dry-run']);
    expect(kept, `killed at ${at}`).to.contain('To copy: 0 of');
    if (!tags.includes(old.tag)) return;
    expect(await mirroring.succeed([target, '--dry-run'], old.pullspec), `killed at ${at}`).to.contain('To copy: 0 of');
  };

  it('serves the kept release from a directory, and the next run removes the rest', async () => {
    await mirroring.succeed(['--to-dir=full'], both());
    await mirroring.succeed(['--to-dir=alone']);
    const tagsOf = async (root: string): Promise<string[]> => [...(await readTagLinks(mirroring.path(root))).keys()];
    const contentOf = async (root: string): Promise<string[]> =>
      (await readdir(mirroring.path(root, 'v2'), { recursive: true })).sort();
    const target = '--to-dir=mirror';
    await cp(mirroring.path('full'), mirroring.path('mirror'), { recursive: true, verbatimSymlinks: true });
    const start = (env: NodeJS.ProcessEnv): Running => prune(target, env);
    const states = await copyAtEachStep(start, mirroring.path('mirror'), mirroring.path('states'));
    for (let at = 0; at < states.length; at = Math.ceil(at * 1.7) + 2) {
      await rm(mirroring.path('mirror'), { recursive: true });
      await rename(states[at] ?? '', mirroring.path('mirror'));
      await checkTarget(target, await tagsOf('mirror'), at);
      await finish(target);
      expect(await contentOf('mirror'), `killed at ${at}`).to.deep.equal(await contentOf('alone'));
    }
    expect(states).to.have.length.of.at.least(20);
  });

  it('serves the kept release from a registry, and the next run removes the rest', async function () {
    requirePeer(this, 'docker-registry', 'skopeo');
    await using site = await startDockerRegistry();
    let left = Infinity;
    let kill: () => void = () => undefined;
    await using proxy = await startChangeProxy(site.host, () => {
      left -= 1;
      if (left === 0) kill();
    });
    await mirroring.succeed([`--to=${site.host}/alone/release`]);
    const expected = await listTags(`${site.host}/alone/release`);
    let outcome: Pick<Outcome, 'code'> = { code: null };
    let kills = 0;
    for (let at = 1; outcome.code === null; at = Math.ceil(at * 1.5) + 2) {
      const repository = `site${at}/release`;
      await mirroring.succeed([`--to=${site.host}/${repository}`], both());
      const target = `--to=${site.host}/${repository}`;
      const running = prune(`--to=${proxy.host}/${repository}`);
      kill = () => void running.child.kill('SIGKILL');
      left = at;
      outcome = await running.outcome;
      left = Infinity;
      if (outcome.code === null) kills += 1;
      await checkTarget(target, await listTags(`${site.host}/${repository}`), at);
      await finish(target);
      expect(await listTags(`${site.host}/${repository}`), `killed at ${at}`).to.have.members(expected);
    }
    expect(kills).to.be.at.least(4);
  });
});
