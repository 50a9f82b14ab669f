import { readFile, rm } from 'node:fs/promises';
import { writeAtomically } from '#content/files';
import { repositoryIn } from '#content/oci';
import type { Context } from '#context';
import { isPluginError, PluginError, type ErrorCode } from '#errors';
import { pathOnHost, type Host, mirrorFile, runProgram } from '#node/machine';
import { redirectRuntimes, refuseOthers, findVerifyingPolicy } from '#node/runtime';
import { imagePort, imageUnitFile, imageUnitName, mirrorUnit } from '../mirror/mirrorUnit.ts';

/**
 * Gives the images of an update to the runtime of the node, for kubelets that request images which are present. The
 * runtime then fetches a manifest and a configuration, and the kubelet notes the pull as its own. A unit serves the
 * copies of the agent from before the runtime starts, because pods of the network may need them first. It stays as long
 * as the cluster has the UpgradeBundle: an image that no pod has needed yet has no note.
 */
export class ImageServing {
  readonly #host: Host;
  readonly #executable: string;
  #isStarted = false;

  /** `executable`: the SHA-256 of the executable on the node, in hex digits. */
  constructor(host: Host, executable: string) {
    this.#host = host;
    this.#executable = executable;
  }

  /** Returns the policy of the kubelet if it makes it request some of these images although they are loaded. */
  findPolicy(images: readonly string[]): Promise<string | undefined> {
    return findVerifyingPolicy(this.#host, images);
  }

  /** Returns whether it can serve these images: the site has no configuration for their repositories. */
  async canServe(images: readonly string[]): Promise<boolean> {
    try {
      await refuseOthers(this.#host, images.map(repositoryIn));
      return true;
    } catch (error) {
      if (isPluginError(error, 'conflict')) return false;
      throw error;
    }
  }

  /** Starts to serve, or continues. Throws `conflict` if `canServe` is false, `command-failed` and `not-writable`. */
  async start(images: readonly string[], context: Context): Promise<void> {
    const unit = mirrorUnit({ port: imagePort, executable: this.#executable, isLocal: true });
    await refuseOthers(this.#host, images.map(repositoryIn));
    // The unit is there as long as the redirection, also after a kill: `stop` finds both by the unit.
    if (!this.#isStarted || (await this.#readUnit()) !== unit) {
      await writeAtomically(pathOnHost(this.#host, imageUnitFile), unit);
      for (const args of [['daemon-reload'], ['enable', imageUnitName], ['restart', imageUnitName]])
        await this.#systemctl(args, context);
    }
    const isNew = await redirectRuntimes(this.#host, images.map(repositoryIn), imagePort);
    if (isNew || !this.#isStarted) await this.#systemctl(['reload', 'crio'], context);
    this.#isStarted = true;
  }

  /** Ends serving, also that of an earlier process. Throws `command-failed`. */
  async stop(context: Context): Promise<void> {
    this.#isStarted = false;
    if ((await this.#readUnit()) === undefined) return;
    await rm(pathOnHost(this.#host, mirrorFile), { force: true });
    await this.#systemctl(['reload', 'crio'], context);
    await this.#systemctl(['disable', '--now', imageUnitName], context);
    await rm(pathOnHost(this.#host, imageUnitFile), { force: true });
    await this.#systemctl(['daemon-reload'], context);
  }

  async #readUnit(): Promise<string | undefined> {
    return await readFile(pathOnHost(this.#host, imageUnitFile), 'utf8').catch(() => undefined);
  }

  async #systemctl(args: readonly string[], context: Context): Promise<void> {
    const { code, stderr } = await runProgram(this.#host, 'systemctl', args, context);
    if (code !== 0) throw new PluginError('command-failed', `systemctl ${args.join(' ')}: ${stderr.trim()}`);
  }
}

/** Errors that a corrupt bundle, or a corrupt medium, may cause. */
const contentFaults: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'digest-mismatch',
  'size-mismatch',
  'incomplete',
  'invalid-bundle',
  'invalid-manifest',
  'partial',
  'not-readable',
]);

/** Returns whether a corrupt bundle, or a corrupt medium, may have caused an error. */
export function isContentFault(error: unknown): error is PluginError {
  return isPluginError(error) && contentFaults.has(error.code);
}
