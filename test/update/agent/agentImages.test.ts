import { chmod, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { AgentImages } from '../../../lib/update/agent/agentImages.ts';
import { makeFacts } from '../../fakes/cluster/updatingSite.ts';
import { makeContext } from '../../support/context.ts';

describe('the pull of lost images', () => {
  const facts = makeFacts();
  let folder: string;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'pull-'));
    await mkdir(join(folder, 'bin'));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  /** Returns the images of a node with an empty store, whose crictl notes its arguments, and ends as `last` says. */
  const makeImages = async (last: string): Promise<AgentImages> => {
    const place = `graphroot = "${folder}/store"\nrunroot = "${folder}/run"\n`;
    await writeFile(join(folder, 'storage.conf'), `[storage]\ndriver = "overlay"\n${place}`);
    const crictl = join(folder, 'bin/crictl');
    await writeFile(crictl, `#!/bin/sh\necho "$@" >> '${folder}/calls'\n${last}\n`);
    await chmod(crictl, 0o755);
    const PATH = `${folder}/bin:${process.env['PATH'] ?? ''}`;
    return new AgentImages({ root: '/', environment: { PATH, CONTAINERS_STORAGE_CONF: `${folder}/storage.conf` } }, 0);
  };
  const calls = async (): Promise<string[]> => (await readFile(join(folder, 'calls'), 'utf8')).trim().split('\n');

  it('asks CRI-O for each image that the store lacks, and not again for some minutes', async () => {
    const images = await makeImages('exit 0');
    expect(await images.pull(facts, makeContext())).to.equal(true);
    expect((await calls()).sort()).to.deep.equal(facts.metadata.images.map((name) => `pull ${name}`).sort());
    expect(await images.pull(facts, makeContext())).to.equal(false);
    expect(await calls()).to.have.length(facts.metadata.images.length);
  });

  it('ends with the first image that no mirror gives, so that the node asks other nodes for the bundle', async () => {
    const images = await makeImages('exit 1');
    expect(await images.pull(facts, makeContext())).to.equal(false);
    expect(await calls()).to.have.length(1);
  });
});
