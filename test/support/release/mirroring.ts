import { readdir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { type Digest, isDigest } from '../../../lib/content/oci/reference.ts';
import { runExecutable, startExecutable, type Running, type Workshop } from '../content/creation.ts';
import { runSuccessfully } from '../peers.ts';
import type { Execution } from '../program/execution.ts';
import type { TestRelease } from './release.ts';

/**
 * Runs `oc adm-release-mirror-config` in a workshop’s folder, for its release and with its key, and with further
 * arguments.
 */
export class Mirroring {
  readonly workshop: Workshop;

  constructor(workshop: Workshop) {
    this.workshop = workshop;
  }

  /** Starts the program. `release` is the argument; by default the workshop’s release by digest. */
  start(args: readonly string[], release?: string): Running {
    return startExecutable('oc-adm_release_mirror_config', this.workshop.folder, this.#arguments(args, release));
  }

  #arguments(args: readonly string[], release: string | undefined = this.workshop.release.pullspec): string[] {
    const { key } = this.workshop;
    const common = ['--insecure', `--trust-fingerprint=${key.fingerprint}`];
    return [...(release === '' ? [] : [release]), ...common, ...args];
  }

  /** Runs the program to its end, in this process. */
  run(args: readonly string[], release?: string, env: NodeJS.ProcessEnv = {}): Promise<Execution> {
    return runExecutable('oc-adm_release_mirror_config', this.workshop.folder, this.#arguments(args, release), env);
  }

  /** Runs the program, which must succeed, and returns its stdout. */
  async succeed(args: readonly string[], release?: string): Promise<string> {
    const { code, stdout, stderr } = await this.run(args, release);
    expect(code, stderr).to.equal(0);
    return stdout;
  }

  /** Runs the program, which must fail, and returns its stderr. */
  async fail(args: readonly string[], exit: 1 | 2 = 1, release?: string): Promise<string> {
    const { code, stderr } = await this.run(args, release);
    expect(code, stderr).to.equal(exit);
    expect(stderr).to.match(/^error \([a-z-]+\): /m);
    expect(stderr).not.to.match(/defect of this program|\n {4}at |undefined|\[object/);
    return stderr;
  }

  /** Returns a path in the workshop’s folder. */
  path(...names: string[]): string {
    return join(this.workshop.folder, ...names);
  }
}

/** Returns the tags of a repository in a mirror directory, with their digests. */
export async function readTagLinks(root: string, repository = 'openshift/release'): Promise<Map<string, string>> {
  const folder = join(root, 'v2', repository, 'manifests');
  const names = (await readdir(folder, { withFileTypes: true })).filter((entry) => entry.isSymbolicLink());
  return new Map(await Promise.all(names.map(async ({ name }) => [name, await readlink(join(folder, name))] as const)));
}

/** Returns the tags of a repository in a registry without TLS and login; empty for an unknown one. */
export async function listTags(repository: string): Promise<string[]> {
  const [, host = '', name = ''] = /^([^/]+)\/(.+)$/.exec(repository) ?? [];
  const { tags } = (await (await fetch(`http://${host}/v2/${name}/tags/list`)).json()) as { tags?: string[] | null };
  return tags ?? [];
}

/**
 * Copies an image, with all images of a manifest list, from a registry with skopeo, which checks every digest. Fails if
 * content is missing.
 */
export async function pullWhole(image: string, folder: string): Promise<void> {
  const options = ['--all', '--preserve-digests', '--src-tls-verify=false'];
  await runSuccessfully('skopeo', ['copy', ...options, `docker://${image}`, `dir:${folder}`]);
}

/**
 * Returns the tags of a mirrored release in one repository: of the release, its components and its sigstore signatures.
 */
export function mirrorTagsOf(release: TestRelease): string[] {
  const attached = [...release.content.repositories.values()].flatMap(({ tags }) => [...tags.keys()]);
  return [
    release.tag,
    ...[...release.images.keys()].map((name) => `${release.tag}-${name}`),
    ...attached.filter((tag) => tag.endsWith('.sig')),
  ];
}

/** Returns a layer of one component that no other image has. */
export function ownLayerOf({ content, images, componentRepository }: TestRelease, name: string): Digest {
  const layers = (digest: string): string[] => {
    const { bytes } = content.repositories.get(componentRepository)?.manifests.get(digest) ?? {};
    return (JSON.parse(String(bytes)) as { layers: { digest: string }[] }).layers.map((layer) => layer.digest);
  };
  const others = [...images.values()].filter((image) => image.name !== name).flatMap(({ digest }) => layers(digest));
  const own = layers(images.get(name)?.digest ?? '').find((layer) => !others.includes(layer));
  if (own === undefined || !isDigest(own)) throw new Error(`${name} shares all its layers`);
  return own;
}
