import { realpath } from 'node:fs/promises';
import { isSea } from 'node:sea';
import { isPluginError } from '#errors';
import { runCommand, findOnPath } from '#node/machine';
import { loadKeyring, findSignedFile, type SignedFile } from '#release/signature';
import { Lines } from '#text';
import { compareAgents, readAgentVersion } from '#update/install';
import { clusterOpener } from '../cli/access.ts';
import { defineCommand, type Arguments, type CommandSession } from '../cli/command.ts';
import { formatFields } from '../cli/format.ts';
import { clusterOptions, outputOption, trustOptions } from '../cli/options.ts';
import { plugins } from '../cli/programChoice.ts';
import { commit, version } from '../cli/version.ts';

/** `doctor`: shows what is installed on this machine, and what commands would find. */
export const command = defineCommand({
  details:
    'Searches the PATH, and asks the cluster of the kubeconfig for its version, for at most five seconds. Changes ' +
    'nothing. Nodes need the tools that load images; RHCOS has them all, and a machine that only creates bundles ' +
    'needs none. Aliases and functions of a shell are not listed: ‘type oc’ shows them.',
  options: {
    ...outputOption(),
    checksums: {
      type: 'string',
      describe: 'SHA256SUMS of the release, with SHA256SUMS.asc beside it: fail unless it has this executable',
      suggest: 'files',
    },
    'signature-keyring': trustOptions['signature-keyring'],
    'trust-fingerprint': trustOptions['trust-fingerprint'],
    ...clusterOptions,
  },
  examples: [
    ['', 'Show what is installed'],
    [
      '--checksums=SHA256SUMS --signature-keyring=oc-disconnected.asc --trust-fingerprint=FINGERPRINT',
      'Check that the installed executable is that of a release',
    ],
    ['--kubeconfig=site.kubeconfig', 'Check whether a cluster can be reached'],
    ['-o json', 'Print everything as JSON, for a bug report'],
  ],
  async run(args, session) {
    const diagnosis = await diagnose(args, session);
    await session.terminal.printResult(args.output, diagnosis, describeDiagnosis(diagnosis));
  },
});

function describeDiagnosis({ program, release, plugins, clients, cluster, nodeTools }: Diagnosis): Lines {
  const { version, commit, runtime, platform, executable } = program;
  const width = Math.max(...[...plugins, ...clients, ...nodeTools].map(({ name }) => name.length));
  const lines = (programs: readonly FoundProgram[]): string[] =>
    programs.map(({ name, path, ...more }) => {
      const notes = [path ?? 'not on the PATH', more.version, more.purpose && `(${more.purpose})`];
      return `  ${name.padEnd(width)}  ${notes.filter((note) => note !== undefined).join('  ')}`;
    });
  return new Lines(
    `oc-disconnected ${version}`,
    formatFields([
      ...(commit === undefined ? [] : [['Commit', commit]]),
      ['Runs on', `${runtime}, ${platform}`],
      ['From', executable],
      ...(release ? [['Released', `as ${release.name}, signed by ${release.userId} (${release.fingerprint})`]] : []),
    ]),
    '',
    'Plugins',
    ...lines(plugins),
    '',
    'Clients',
    ...lines(clients),
    '',
    'Cluster',
    formatFields([
      ...(cluster.name === undefined ? [] : [['Context', cluster.name]]),
      ...(cluster.server === undefined ? [] : [['Server', cluster.server]]),
      cluster.problem === undefined ? ['Version', cluster.version ?? ''] : ['Problem', cluster.problem],
      ...(cluster.agents ? [['Agents', cluster.agents.difference ?? cluster.agents.version ?? '']] : []),
    ]),
    '',
    'Tools of a node',
    ...lines(nodeTools),
  );
}

/** A program that was searched on the PATH. */
interface FoundProgram {
  /** The name on the command line. */
  readonly name: string;
  /** The path; undefined if it is not on the PATH. */
  readonly path: string | undefined;
  /** The version, if it is a client of clusters and prints one. */
  readonly version?: string;
  /** The purpose, if it is a tool of a node. */
  readonly purpose?: string;
}

/** The cluster that commands would use. */
interface FoundCluster {
  /** The name of the context; undefined if the cluster is not configured. */
  readonly name: string | undefined;
  readonly server: string | undefined;
  /** The version of OpenShift, or of Kubernetes if it is not OpenShift. */
  readonly version: string | undefined;
  /** The version of its agents, and how they differ from this program; undefined without agents. */
  readonly agents?: { readonly version: string | undefined; readonly difference: string | undefined };
  /** The reason why the cluster, or its version, is unknown. */
  readonly problem: string | undefined;
}

/** The result of `doctor`: this program, other programs on this machine, and the agents in the cluster. */
export interface Diagnosis {
  readonly program: {
    version: string;
    commit: string | undefined;
    runtime: string;
    platform: string;
    executable: string;
  };
  /** The line of the executable in the signed checksums; absent if they were not asked for. */
  readonly release?: SignedFile;
  readonly plugins: readonly FoundProgram[];
  readonly clients: readonly FoundProgram[];
  readonly cluster: FoundCluster;
  readonly nodeTools: readonly FoundProgram[];
}

/** The programs that loading a bundle runs on a node, and their purposes. */
const nodeTools = {
  skopeo: 'copies images into the image store',
  crictl: 'tells what the container runtime has',
  podman: 'unpacks the image of the operating system',
  'rpm-ostree': 'installs the operating system',
  mount: 'mounts a USB drive',
  systemctl: 'reloads the container runtime',
};

interface Asked extends Arguments<typeof clusterOptions> {
  readonly checksums: string | undefined;
  readonly signatureKeyring: readonly string[];
  readonly trustFingerprint: readonly string[];
}

/**
 * Examines the machine, the PATH and the cluster. Changes nothing. Throws `interrupted`, and the errors of the
 * checksums.
 */
async function diagnose(args: Asked, session: CommandSession): Promise<Diagnosis> {
  const { environment, context } = session;
  const { checksums, signatureKeyring: files, trustFingerprint } = args;
  const executable = isSea() ? process.execPath : await realpath(session.executable).catch(() => process.execPath);
  const release =
    checksums === undefined
      ? undefined
      : await findSignedFile(executable, checksums, await loadKeyring({ files }, trustFingerprint, context));
  return {
    program: {
      version,
      commit,
      runtime: `Node.js ${process.versions.node}`,
      platform: `${process.platform} ${process.arch}`,
      executable,
    },
    release,
    plugins: await Promise.all(
      Object.entries(plugins).map(async ([name, end]) => ({
        name,
        path: (await findOnPath(`oc-${end}`, environment)) ?? (await findOnPath(`kubectl-${end}`, environment)),
      })),
    ),
    clients: await Promise.all(['oc', 'kubectl'].map((name) => findClient(name, session))),
    cluster: await findCluster(args, session),
    nodeTools: await Promise.all(
      Object.entries(nodeTools).map(async ([name, purpose]) => ({
        name,
        purpose,
        path: await findOnPath(name, environment),
      })),
    ),
  };
}

async function findClient(name: string, { environment, context: { signal } }: CommandSession): Promise<FoundProgram> {
  const path = await findOnPath(name, environment);
  if (path === undefined) return { name, path, version: undefined };
  const options = { environment, signal: AbortSignal.any([signal, AbortSignal.timeout(5000)]) };
  const result = await runCommand([path, 'version', '--client', '--output=json'], options).catch(() => undefined);
  const answer = result?.code === 0 ? result.stdout : '';
  // oc prints the version of its release. kubectl, also the one in oc, prints the version of Kubernetes.
  const match = /"releaseClientVersion":\s*"([^"]+)"/.exec(answer) ?? /"gitVersion":\s*"([^"]+)"/.exec(answer);
  return { name, path, version: match?.[1] };
}

async function findCluster(
  args: Arguments<typeof clusterOptions>,
  { environment, context }: CommandSession,
): Promise<FoundCluster> {
  const noCluster = { name: undefined, server: undefined, version: undefined, problem: undefined };
  const timeout = AbortSignal.timeout(5000);
  const failed = (error: unknown): { problem: string } => {
    if (!isPluginError(error) || context.signal.aborted) throw error;
    return { problem: timeout.aborted ? 'it has not answered within five seconds' : error.message };
  };
  try {
    const limited = { ...context, signal: AbortSignal.any([context.signal, timeout]) };
    using cluster = await clusterOpener(args, environment, limited)();
    const named = { ...noCluster, name: cluster.name, server: cluster.server };
    try {
      const openshift = (await cluster.clusterVersion())?.version;
      const agentVersion = await readAgentVersion(cluster);
      const agents = agentVersion && {
        version: agentVersion.version,
        difference: compareAgents(agentVersion, version),
      };
      return {
        ...named,
        agents,
        version: openshift ? `OpenShift ${openshift}` : `Kubernetes ${(await cluster.version()).gitVersion}`,
      };
    } catch (error) {
      return { ...named, ...failed(error) };
    }
  } catch (error) {
    return { ...noCluster, ...failed(error) };
  }
}
