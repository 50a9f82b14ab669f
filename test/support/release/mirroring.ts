import { readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { runExecutable, startExecutable, type Running, type Workshop } from '../content/creation.ts';
import type { Execution } from '../program/execution.ts';
import { runSuccessfully } from '../peers.ts';

/** Runs `oc adm-release-mirror-config` in a workshop’s folder, for its release and with its key, and with some more arguments. */
export class Mirroring {
  readonly workshop: Workshop;

  constructor(workshop: Workshop) {
    this.workshop = workshop;
  }

  /** Starts it; `release` is the argument, the workshop’s release by digest unless it says otherwise. */
  start(args: readonly string[], release?: string): Running {
    return startExecutable('oc-adm_release_mirror_config', this.workshop.folder, this.#arguments(args, release));
  }

  #arguments(args: readonly string[], release: string | undefined = this.workshop.release.pullspec): string[] {
    const { key } = this.workshop;
    const common = ['--insecure', `--trust-fingerprint=${key.fingerprint}`];
    return [...(release === '' ? [] : [release]), ...common, ...args];
  }

  /** Runs it to its end, in this process. */
  run(args: readonly string[], release?: string): Promise<Execution> {
    return runExecutable('oc-adm_release_mirror_config', this.workshop.folder, this.#arguments(args, release));
  }

  /** Runs it, which must succeed, and gives its stdout. */
  async succeed(args: readonly string[], release?: string): Promise<string> {
    const { code, stdout, stderr } = await this.run(args, release);
    expect(code, stderr).to.equal(0);
    return stdout;
  }

  /** Runs it, which must fail, and gives its stderr. */
  async fail(args: readonly string[], exit: 1 | 2 = 1, release?: string): Promise<string> {
    const { code, stderr } = await this.run(args, release);
    expect(code, stderr).to.equal(exit);
    expect(stderr).to.match(/^error: /m);
    expect(stderr).not.to.match(/defect of this program|\n {4}at |undefined|\[object/);
    return stderr;
  }

  /** A path in the workshop’s folder. */
  path(...names: string[]): string {
    return join(this.workshop.folder, ...names);
  }
}

/** The tags of a repository in a mirror directory with the digests that they lead to. */
export async function readTagLinks(root: string, repository = 'openshift/release'): Promise<Map<string, string>> {
  const folder = join(root, 'v2', repository, 'manifests');
  const names = (await readdir(folder, { withFileTypes: true })).filter((entry) => entry.isSymbolicLink());
  return new Map(await Promise.all(names.map(async ({ name }) => [name, await readlink(join(folder, name))] as const)));
}

/** The tags of a repository in a registry, by skopeo. */
export async function listTags(repository: string): Promise<string[]> {
  const text = await runSuccessfully('skopeo', ['list-tags', '--tls-verify=false', `docker://${repository}`]);
  return (JSON.parse(text) as { Tags: string[] }).Tags;
}

/** Copies an image, all of a list, out of a registry by skopeo, which checks every digest; fails where anything is missing. */
export async function pullWhole(image: string, folder: string): Promise<void> {
  const options = ['--all', '--preserve-digests', '--src-tls-verify=false'];
  await runSuccessfully('skopeo', ['copy', ...options, `docker://${image}`, `dir:${folder}`]);
}
