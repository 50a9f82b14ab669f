import { Lines } from '#text';
import { retainBundle, type Retention } from '#update/mirror';
import { phaseOf } from '#update/record';
import { openCluster } from '../cli/access.ts';
import { defineCommand } from '../cli/command.ts';
import { suffixOf } from '../cli/mirroring/applyReport.ts';
import { clusterWords } from '../cli/mirroring/carriedOptions.ts';
import { dryRunOption, outputOption } from '../cli/options.ts';
import {
  namedArgument,
  namedOptions,
  namedTrustOptions,
  followLine,
  identifyNamed,
  requireOneBundle,
} from './namedBundle.ts';

/** `retain`: lets a cluster keep the bundle of the release that it runs. */
export const command = defineCommand({
  details:
    'Gives a cluster the bundle of the release that it runs, if that release came from an installer or a registry. ' +
    'The agents find the bundle like that of an update, and every node loads and pins its images. If the cluster has ' +
    'mirrors (install --mirror), each control plane node keeps a copy, and its mirror serves it to nodes that join ' +
    'or lost their images. Without mirrors, no copy stays. Nothing is updated: a bundle of another release is ' +
    'refused, here and by the controller. Run it again at any time: it changes nothing if everything is in place, ' +
    'and repeats what a mirror lacks.',
  positionals: namedArgument,
  options: { ...dryRunOption, ...outputOption(), ...namedOptions, ...namedTrustOptions },
  examples: [
    ['upgrade-4.19.4-x86_64.tar', 'Retain the bundle of the running release 4.19.4'],
    ['--device=/dev/sdb --digest=sha256:…', 'Retain a bundle on a device of a node'],
  ],
  async run(args, { context, terminal, environment, stdin }) {
    const named = requireOneBundle(args);
    using cluster = await openCluster(args, environment, context, args.dryRun);
    const { request, evidence } = await identifyNamed(cluster, named, args, { context, terminal, stdin });
    const retention = await retainBundle(cluster, request);
    const { bundle, outcome, version, lacking } = retention;
    if (lacking && evidence?.base)
      context.log(
        'warn',
        `a mirror serves this delta only if the bundle of ${evidence.base.version} is on the drive too`,
      );
    const { name } = bundle.metadata;
    const phase = bundle.status && phaseOf(bundle);
    const isDone = phase === 'Completed';
    const words = [
      `upgradebundle/${name} ${outcome}${suffixOf(args.dryRun)}`,
      describeRetention(retention, isDone),
      ...(isDone || args.dryRun !== 'none' ? [] : [followLine(phase, clusterWords(args))]),
    ];
    await terminal.printResult(args.output, { name, outcome, phase, version, lacking }, new Lines(...words));
  },
});

function describeRetention({ version, lacking }: Retention, isDone: boolean): string {
  if (!lacking) {
    const nodes = isDone ? 'Every node has its images pinned' : 'Every node loads and pins its images';
    return `The cluster runs ${version}. ${nodes}, and no copy stays: it has no mirrors (install --mirror).`;
  }
  if (lacking.length === 0) return `The cluster runs ${version}, and every mirror has it.`;
  return (
    `The cluster runs ${version}. Every node loads and pins its images, and these mirrors get ` +
    `it: ${lacking.join(', ')}.`
  );
}
