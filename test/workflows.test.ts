import { globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { parse } from 'yaml';
import { upgradeBundle } from '../cmd/upgrade-bundle/commands.ts';

const root = fileURLToPath(new URL('..', import.meta.url));

interface Job {
  readonly steps: readonly { uses?: string; run?: string }[];
  readonly 'timeout-minutes'?: number;
}

interface Workflow {
  readonly permissions?: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, Job>>;
}

describe('the workflows', () => {
  const texts = globSync('.github/workflows/*.yml', { cwd: root }).map((path) =>
    readFileSync(`${root}/${path}`, 'utf8'),
  );

  it('take each action by the digest of a commit, with its version', () => {
    const recipe = readFileSync(`${root}/docs/how-to/release-gate.yml`, 'utf8');
    const uses = [...texts, recipe].flatMap((text) =>
      [...text.matchAll(/^ *- uses: (.*)$/gm)].map(([, action]) => action),
    );
    expect(uses).not.to.be.empty;
    for (const action of uses) expect(action).to.match(/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  it('have a recipe for the gate of a release whose steps are commands of the plugin', async () => {
    const { jobs } = parse(readFileSync(`${root}/docs/how-to/release-gate.yml`, 'utf8')) as Workflow;
    const steps = Object.values(jobs).flatMap((job) => job.steps.flatMap(({ run = '' }) => run.split('\n')));
    const lines = steps.filter((line) => line.startsWith('oc adm-upgrade-bundle '));
    const used = lines.map((line) => {
      const [, verb = '', rest = ''] = /^oc adm-upgrade-bundle (\S+)(.*)$/.exec(line) ?? [];
      return { verb, options: [...rest.matchAll(/ --([\w-]+)/g)].map(([, option = '']) => option) };
    });
    // Each machine runs the plugin, so each installs it first.
    for (const { steps: own } of Object.values(jobs)) {
      const runs = own.flatMap(({ run }) => run ?? []);
      const installed = runs.findIndex(
        (text) => text.includes('sha256sum --check') && text.includes('oc-adm_upgrade_bundle'),
      );
      expect(installed).to.be.within(0, runs.findIndex((text) => text.startsWith('oc adm-upgrade-bundle')) - 1);
    }
    expect(used.map(({ verb }) => verb)).to.deep.equal(['lint', 'create', 'preflight', 'apply', 'drill']);
    for (const { verb, options } of used) {
      const command = await upgradeBundle.commands.find(({ usage }) => usage.split(' ')[0] === verb)?.load();
      expect(Object.keys(command?.command.options ?? {})).to.include.members(options);
    }
  });

  it('have no write permission unless a job has it', () => {
    for (const text of texts) expect((parse(text) as Workflow).permissions).to.deep.equal({ contents: 'read' });
  });

  it('have a time limit for each job', () => {
    for (const text of texts)
      for (const job of Object.values((parse(text) as Workflow).jobs))
        expect(job['timeout-minutes']).to.be.within(1, 60);
  });

  it('run all tests on the Node.js of the executables for Linux too', () => {
    expect(texts.some((text) => text.includes('npm run test:linux-node'))).to.equal(true);
  });

  it('run everything that has to hold, on every change and before a release', () => {
    for (const text of texts) {
      const steps = Object.values((parse(text) as Workflow).jobs).flatMap((job) => job.steps);
      expect(steps.some(({ run }) => run?.includes('bash .ci/run'))).to.equal(true);
    }
  });
});
