import { defineCommand } from '../cli/command.ts';
import { formatFields } from '../cli/format.ts';
import { clusterOptions, outputOption, trustOptions } from '../cli/options.ts';
import { diagnose, type Diagnosis, type FoundProgram } from './diagnosis.ts';
import { Lines } from '../../lib/lines.ts';

/** `doctor`: shows what is installed on this machine, and what commands would find. */
export const command = defineCommand({
  details:
    'Searches the PATH, and asks the cluster of the kubeconfig for its version, for at most five seconds. Changes nothing. Nodes ' +
    'need the tools that load images; RHCOS has them all, and a machine that only creates bundles needs none. Aliases and functions ' +
    'of a shell are not listed: ‘type oc’ shows them.',
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
    await session.terminal.printResult(args.output, diagnosis, describe(diagnosis));
  },
});

function describe({ program, release, plugins, clients, cluster, nodeTools }: Diagnosis): Lines {
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
    ...['', 'Plugins', ...lines(plugins)],
    ...['', 'Clients', ...lines(clients)],
    ...['', 'Cluster'],
    formatFields([
      ...(cluster.name === undefined ? [] : [['Context', cluster.name]]),
      ...(cluster.server === undefined ? [] : [['Server', cluster.server]]),
      cluster.problem === undefined ? ['Version', cluster.version ?? ''] : ['Problem', cluster.problem],
      ...(cluster.agents ? [['Agents', cluster.agents.difference ?? cluster.agents.version ?? '']] : []),
    ]),
    ...['', 'Tools of a node', ...lines(nodeTools)],
  );
}
