import { isSea } from 'node:sea';
import { referenceOf } from '#cluster/objects';
import { formatManifest } from '#config/manifest';
import type { Context } from '#context';
import { PluginError } from '#errors';
import { Lines } from '#text';
import { install, planManifests, type InstallResult, readExecutables } from '#update/install';
import { mirrorPort } from '#update/mirror';
import { mirrorContents } from '#update/record';
import { openCluster } from '../cli/access.ts';
import { defineCommand, inGroup } from '../cli/command.ts';
import { formatObject } from '../cli/mirroring/applyReport.ts';
import { clusterWords } from '../cli/mirroring/carriedOptions.ts';
import { clusterAccessOptions, dryRunOption, outputOption } from '../cli/options.ts';
import type { Terminal } from '../cli/terminal.ts';
import { offlineTrustOf, offlineTrustOptions } from '../cli/trust.ts';
import { parseSize } from '../cli/values.ts';
import { version } from '../cli/version.ts';
import { screenOf, screenOptions } from './node/nodeOptions.ts';

/** `install`: installs the agents that let a cluster update itself from a bundle. */
export const command = defineCommand({
  details:
    'Creates the kind UpgradeBundle and runs an agent on every node, which finds bundles on USB drives and loads ' +
    'them. Run it once for each cluster, as cluster-admin. Nothing is fetched from a registry: the agents run in the ' +
    'image of the machine config daemon. Their executable is uploaded to one node of each architecture through the ' +
    'API server, and checked there by its digest. Other nodes, and nodes that join later, get it from there. Run it ' +
    'again to repair the installation, or with another executable to update it; correct objects are left alone. -o ' +
    'yaml prints the objects and writes nothing. Apply them by other means, then run install for the token of the ' +
    'agents, which is in no file, and for the executable. Agents trust the Red Hat release key and the keys that the ' +
    'trust options of the latest run name. With --keep-images every node restarts its container runtime once, and no ' +
    'node reboots.',
  options: {
    executable: {
      type: 'string',
      repeatable: true,
      suggest: 'files',
      describe: 'Linux executable for the nodes, one for each architecture (default: this program, if it is one)',
    },
    'admission-policy': {
      type: 'string',
      choices: ['warn', 'deny', 'off'],
      default: 'warn',
      describe: 'Policy for workloads that pull at every start: warn their creator, or refuse them',
    },
    'keep-images': {
      type: 'boolean',
      describe: 'Make CRI-O keep images after a power failure (OpenShift 4.17 and later)',
    },
    metrics: {
      type: 'boolean',
      describe: 'Let OpenShift monitoring scrape the agents, with a token',
    },
    ...screenOptions,
    reports: {
      type: 'string',
      choices: ['allow', 'deny'],
      default: 'deny',
      describe: 'Let agents write signed reports of the cluster onto USB drives that hold a verified bundle',
    },
    overwrite: { type: 'boolean', describe: 'Overwrite changes that another client made' },
    wait: {
      type: 'boolean',
      default: true,
      describe: 'Wait until an agent is ready on every node; otherwise none gets its executable',
    },
    timeout: {
      type: 'number',
      isTime: true,
      default: 600,
      range: [1, 86_400],
      describe: 'Time to wait for the agents, and for each machine config pool',
    },
    ...dryRunOption,
    ...outputOption(),
    ...inGroup('Mirrors:', {
      mirror: {
        type: 'boolean',
        describe: 'Let nodes pull from mirrors on the control plane nodes, which serve the bundles that they retain',
      },
      'mirror-port': {
        type: 'number',
        needs: ['mirror'],
        range: [1024, 65_535],
        describe: `Port of the mirrors on the control plane nodes (default: as before, ${mirrorPort} at first)`,
      },
      'mirror-content': {
        type: 'string',
        needs: ['mirror'],
        choices: mirrorContents,
        describe:
          'Content of the mirrors (default: as before, all at first): whole bundles, or what the machine config ' +
          'controller reads',
      },
      'mirror-quota': {
        type: 'string',
        needs: ['mirror'],
        describe:
          'Space for retained bundles on each control plane node (default: as before), or none: only 75 % may be full',
        check: (text: string) => void parseQuota(text),
      },
      'mirror-source': {
        type: 'string',
        needs: ['mirror'],
        repeatable: true,
        describe: 'Another repository that the mirrors serve, such as that of an extra image (default: as before)',
      },
      yes: {
        type: 'boolean',
        needs: ['mirror'],
        describe: 'Accept that OpenShift before 4.17 reboots every node for --mirror',
      },
    }),
    ...offlineTrustOptions,
    ...clusterAccessOptions,
  },
  examples: [
    ['', 'Install on the cluster of the current context'],
    ['--dry-run=server', 'Print what would be done, and let the cluster validate it'],
    ['--executable=x86/oc-disconnected --executable=arm/oc-disconnected', 'Install on nodes of two architectures'],
    ['--signature-keyring=ours.asc --trust-fingerprint=…', 'Trust your own key too'],
    ['--reports=allow', 'Let a drive bring a signed report back to the engineer'],
    ['--mirror', 'Also let nodes that join or lost their images pull from the control plane'],
    ['-o yaml > install.yaml', 'Write the objects for a GitOps repository'],
  ],
  async run(args, { context, terminal, environment }) {
    const { overwrite, output, dryRun, wait, metrics } = args;
    if ((args.keepImages || args.mirror) && !wait && dryRun === 'none') {
      const option = args.mirror ? '--mirror' : '--keep-images';
      throw new PluginError('usage', `${option} needs --wait: otherwise the nodes would be rebooted`);
    }
    const isPlan = output === 'yaml' && dryRun === 'client' && args.executable.length === 0;
    const paths = isPlan || args.executable.length > 0 ? args.executable : [findItself()];
    const executables = await readExecutables(paths);
    const trust = offlineTrustOf(args);
    const admission = args.admissionPolicy === 'off' ? undefined : args.admissionPolicy;
    using cluster = await openCluster(args, environment, context);
    const time = { timeout: args.timeout * 1000 };
    const startup = wait ? time : undefined;
    const retention = args.keepImages ? time : undefined;
    const { mirrorPort: port, mirrorContent: content, mirrorSource: sources, yes: mayDisrupt } = args;
    const quota = args.mirrorQuota === undefined ? undefined : parseQuota(args.mirrorQuota);
    const mirror = args.mirror ? { ...time, port, quota, content, sources, mayDisrupt } : undefined;
    const screen = screenOf(args);
    const reports = args.reports === 'allow';
    const shown = { screen, reports, metrics };
    const options = { executables, admission, trust, ...shown, overwrite, startup, retention, mirror, version };
    if (output === 'yaml' && mirror)
      throw new PluginError(
        'usage',
        '--mirror makes a CA for this cluster, which no file may have: use it without -o yaml',
      );
    if (output === 'yaml') {
      const texts = (await planManifests(cluster, options, context)).map((object) => formatManifest(object));
      terminal.print(Lines.split(texts.join('---\n')));
      return;
    }
    const uploading = { ...context, onEvent: untilStored(terminal) };
    const tried = dryRun === 'none' ? {} : { dryRun };
    const result = await install(cluster, { ...options, ...tried }, uploading);
    const words = [
      ...result.objects.map(({ object, outcome }) => formatObject(object, outcome, dryRun)),
      ...result.removed.map((object) => formatObject(object, 'deleted', dryRun)),
      formatEnd(result, args, clusterWords(args)),
    ];
    const objects = result.objects.map(({ object, outcome }) => ({ ...referenceOf(object), outcome }));
    const plain = { dryRun: dryRun !== 'none', ...result, objects };
    await terminal.printResult(output, plain, new Lines(...words));
  },
});

/** Returns a listener that shows an upload until it is complete. Waiting for agents is not part of it. */
function untilStored(terminal: Terminal): Context['onEvent'] {
  const show = terminal.transfer('Uploading');
  return (event) => {
    show(event);
    if (event.kind === 'stored') terminal.close();
  };
}

/** Parses a size; 0 for none. */
function parseQuota(text: string): number {
  return text === 'none' ? 0 : parseSize(text);
}

function findItself(): string {
  if (isSea() && process.platform === 'linux') return process.execPath;
  const message = 'nodes cannot run this program as it is here: give one that they can with --executable';
  const hint =
    `It is in the archive oc-disconnected-${version}-linux-amd64.tar.gz (arm64 for such nodes). ` +
    'A cluster is needed too, also to print the objects.';
  throw new PluginError('usage', message, { hint });
}

function formatEnd(
  { nodes }: InstallResult,
  { dryRun, mirror }: { readonly dryRun: string; readonly mirror: boolean },
  access: string,
): string {
  if (dryRun !== 'none') return 'Nothing was written.';
  if (nodes === undefined)
    return 'The agents wait for their executable: run install again, without --wait=false, to bring it to them.';
  const where = nodes === 1 ? 'the node' : `${nodes} nodes`;
  const [more, option] = mirror ? [', and mirrors run on the control plane', ' --mirror'] : ['', ''];
  return `Agents are ready on ${where}${more}. Next: oc adm-upgrade-bundle preflight${option}${access}`;
}
