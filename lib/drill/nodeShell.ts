import type { Cluster } from '#cluster/client';
import { parseJson } from '#content/oci';
import { type Context, awaitDone, type WaitOptions } from '#context';
import { ignoring, isPluginError, messageOf, PluginError } from '#errors';
import { fieldsOf, listOf } from '#fields';
import { drillFile, executablePath } from '#node/machine';
import {
  drillBootUnit,
  drillTraces,
  drillUnit,
  nextBootFile,
  requestsFile,
  startArguments,
  type DrillPlan,
  type DrillRequest,
} from '#node/runtime';
import { shellCommand } from '#text';
import { agentNamespace } from '#update/record';

const onHost = (words: string): string => `chroot /host ${words}`;

const scripts = {
  // systemd-run is one request to systemd: a drill exists with its end, or not at all.
  begin:
    `[ -x /host${executablePath} ] || { echo 'the agent has no executable' >&2; exit 3; }\n` +
    `${onHost(`systemctl -q is-active ${drillUnit} ${drillBootUnit}`)} && { echo 'a drill is running' >&2; ` +
    `exit 4; }\n` +
    // What an earlier drill left in the memory of systemd would keep a new one from starting.
    `${onHost(`systemctl -q reset-failed ${drillUnit} ${drillBootUnit}`)} 2>/dev/null\n` +
    `[ "$(${onHost(`systemctl show --property=LoadState --value ${drillUnit}`)})" = not-found ] ` +
    `|| ${onHost('systemctl daemon-reload')}\n` +
    `${onHost('systemd-run "$@"')} || exit\n` +
    `[ -e /host${drillFile} ] || { echo 'the drill has ended at once: see journalctl -u ${drillUnit}' >&2; exit 5; }`,
  /** Prints the requests from a byte on, less than the 64 KiB that an exec returns. */
  requests: `[ ! -e /host${requestsFile} ] || tail --bytes=+$(($1 + 1)) /host${requestsFile} | head --bytes=60000`,
  runtime: onHost('systemctl show --property=MainPID --value crio'),
  // The container runtime also carries the connection of this command.
  restartRuntime: onHost('systemctl --no-block restart crio'),
  reboot: `: > /host${nextBootFile} && sync && ${onHost('systemctl reboot')}`,
  end:
    `${onHost(`systemctl stop ${drillUnit} ${drillBootUnit}`)} 2>/dev/null\n` +
    `rm -rf ${drillTraces.map((path) => `/host${path}`).join(' ')}`,
};

/** Runs the steps of a drill on a node, in the pod of its agent. */
export class NodeShell {
  readonly node: string;
  readonly #cluster: Cluster;
  #pod: string | undefined;

  constructor(cluster: Cluster, node: string) {
    this.#cluster = cluster;
    this.node = node;
  }

  /** Returns the same with another client. */
  over(cluster: Cluster): NodeShell {
    return new NodeShell(cluster, this.node);
  }

  /** Starts the drill: when it returns, the drop-in is in force for programs that start now. Throws `busy`. */
  async begin(plan: DrillPlan): Promise<void> {
    await this.#run(scripts.begin, startArguments(plan)).catch((error: unknown) => {
      if (!/a drill is running|already loaded/.test(messageOf(error))) throw error;
      throw new PluginError('busy', `another drill is running on ${this.node}`, {
        hint: 'Wait for its end, or end it.',
        settings: ['end'],
      });
    });
  }

  /** Returns the process of the container runtime. */
  async readRuntime(): Promise<string> {
    return (await this.#run(scripts.runtime)).trim();
  }

  async restartRuntime(): Promise<void> {
    await this.#run(scripts.restartRuntime);
  }

  /** Announces the reboot to the drill, and reboots. The connection may end before the command. */
  async reboot(): Promise<void> {
    await this.#run(scripts.reboot).catch(ignoring('unreachable'));
  }

  /** Reads all requests so far. */
  async readRequests(): Promise<DrillRequest[]> {
    let text = '';
    for (;;) {
      const more = await this.#run(scripts.requests, [String(Buffer.byteLength(text))]);
      text += more;
      if (more.length === 0) break;
    }
    return text.split('\n').flatMap((line) => {
      try {
        const { time, image, client } = fieldsOf(parseJson(line));
        return [{ time: String(time), image: String(image), client: String(client) }];
      } catch {
        // The last line may be incomplete.
        return [];
      }
    });
  }

  /** Ends the drill, and removes everything that it has on the node. */
  async end(): Promise<void> {
    await this.#run(scripts.end);
  }

  /** Does the same, and tries again until the timeout, because a node that boots has no agent yet. */
  async endWithin(wait: WaitOptions, context: Pick<Context, 'signal'>): Promise<void> {
    const attempt = async (): Promise<PluginError | undefined> => {
      try {
        await this.end();
        return undefined;
      } catch (error) {
        if (isPluginError(error)) return error;
        throw error;
      }
    };
    await awaitDone(attempt, wait, context);
  }

  async #run(script: string, args: readonly string[] = []): Promise<string> {
    const pod = (this.#pod ??= await this.#findPod());
    try {
      const command = ['/bin/bash', '-c', script, 'bash', ...args];
      const { code, stdout, stderr } = await this.#cluster.exec({
        namespace: agentNamespace,
        pod,
        container: 'agent',
        command,
      });
      if (code === 0) return stdout;
      throw new PluginError('command-failed', `${this.node}: ${stderr.trim() || `exit code ${code}`}`, {
        hint: shellCommand`See the node: oc debug node/${this.node} -- chroot /host systemctl status ${drillUnit}`,
      });
    } catch (error) {
      // It may have been replaced.
      this.#pod = undefined;
      throw error;
    }
  }

  async #findPod(): Promise<string> {
    const pods = await this.#cluster.list('v1', 'Pod', { namespace: agentNamespace });
    const own = pods.find(({ metadata, spec, status }) => {
      const [container] = listOf(fieldsOf(spec)['containers']);
      const isAgent = container?.['name'] === 'agent' && fieldsOf(spec)['nodeName'] === this.node;
      return isAgent && metadata['deletionTimestamp'] === undefined && fieldsOf(status)['phase'] === 'Running';
    });
    if (own) return own.metadata.name;
    throw new PluginError('not-ready', `no agent runs on ${this.node}, and a drill needs one`, {
      hint:
        'Install the agents, or see why they do not run: oc adm-upgrade-bundle install, oc -n oc-upgrade-bundle ' +
        'get pods -o wide.',
    });
  }
}
