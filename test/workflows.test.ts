import { globSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { parse } from 'yaml';

const root = fileURLToPath(new URL('..', import.meta.url));

interface Workflow {
  readonly permissions?: Readonly<Record<string, string>>;
  readonly jobs: Readonly<Record<string, { readonly steps: readonly { uses?: string; run?: string }[] }>>;
}

describe('the workflows', () => {
  const texts = globSync('.github/workflows/*.yml', { cwd: root }).map((path) =>
    readFileSync(`${root}/${path}`, 'utf8'),
  );

  it('take each action by the digest of a commit, with its version', () => {
    const uses = texts.flatMap((text) => [...text.matchAll(/^ *- uses: (.*)$/gm)].map(([, action]) => action));
    expect(uses).not.to.be.empty;
    for (const action of uses) expect(action).to.match(/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  it('have no write permission unless a job has it', () => {
    for (const text of texts) expect((parse(text) as Workflow).permissions).to.deep.equal({ contents: 'read' });
  });

  it('run everything that has to hold, on every change and before a release', () => {
    for (const text of texts) {
      const steps = Object.values((parse(text) as Workflow).jobs).flatMap((job) => job.steps);
      expect(steps.some(({ run }) => run?.includes('bash .ci/run'))).to.equal(true);
    }
  });
});
