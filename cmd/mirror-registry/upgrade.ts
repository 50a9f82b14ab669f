import { type UpgradePlan, upgradeRegistry } from '#registry-host/change';
import type { Installation } from '#registry-host/installation';
import { joinParagraphs } from '#text';
import { defineCommand } from '../cli/command.ts';
import { dryRunOf } from '../cli/options.ts';
import { readDigest } from '../cli/values.ts';
import { executionOptions, registryHostOptions, renewalOf, renewalOptions, requestOf } from './options.ts';
import { exitCodeOf, formatPlan, makePlan, planOptions, toPlainPlan } from './planReport.ts';
import { bundlePositional, withBundle, openTarget, releaseDigestOption, upgradeOptions } from './target.ts';

/** `upgrade`: runs the plan of an upgrade. */
export const command = defineCommand({
  details:
    'Carries out the plan: loads the images while the registry runs, makes a backup, changes the units and ' +
    'certificates, and restarts the registry. Waits until it is healthy over verified TLS, and restores everything, ' +
    'byte for byte, if it does not become healthy. An interrupted run resumes. A host that is up to date is not ' +
    'changed, and nothing is restarted. Checks no signature, because none ' +
    'covers the images of a mirror registry: --digest proves a bundle.\n\n' +
    'Exits with 0 if it is done or there is nothing to do, 3 if everything was restored, 4 if that failed too. ' +
    'Does not ask for confirmation.',
  positionals: bundlePositional,
  options: {
    ...dryRunOf('With client or server, only print the plan'),
    ...planOptions,
    digest: releaseDigestOption,
    ...upgradeOptions,
    ...renewalOptions,
    ...executionOptions,
    ...registryHostOptions,
  },
  examples: [
    ['--version=2.0.11', 'Upgrade to a release; podman pulls its images'],
    ['mirror-registry-2.0.11-x86_64.tar', 'Upgrade from a bundle'],
    [
      '--bundle=registry.example.com:8443/openshift/mirror-registry-bundle',
      'Upgrade to the newest release in the registry itself',
    ],
    ['--version=2.0.11 --dry-run --diff', 'Show what would change'],
    ['', 'Renew certificates that need it, and restart the registry'],
  ],
  async run(given, { context, terminal, environment, setExitCode }) {
    const args = withBundle(given);
    if (args.dryRun !== 'none') {
      const { plan, unfinished, forecast } = await makePlan(args, environment, context);
      if (args.detailedExitcode) setExitCode(exitCodeOf(plan, unfinished, args));
      const planned = { outcome: 'planned', ...toPlainPlan(plan, forecast) };
      await terminal.printResult(args.output, planned, formatPlan(plan, args.diff, forecast));
      return;
    }
    const renewal = await renewalOf(args, new Date());
    const expectedDigest = args.digest === undefined ? undefined : readDigest(args.digest);
    const host = await requestOf(args, environment, context.signal);
    const { installation } = host.detected;
    const { target, release } = await openTarget(args, { files: host.files, installation }, environment, context);
    await using _release = release;
    const request = { ...host, target, release, renewal, expectedDigest, sqliteStorage: args.sqliteStorage };
    const reading = { ...context, onEvent: terminal.transfer('Verifying') };
    const { outcome, plan } = await upgradeRegistry(request, reading);
    if (args.detailedExitcode) setExitCode(exitCodeOf(plan, outcome === 'resumed', args));
    const done = {
      unchanged: [],
      upgraded: [args.restart ? 'Done: the registry is healthy.' : describeRestart(plan, installation)],
      resumed: ['Done: the change of an earlier run is complete.'],
    }[outcome];
    const words = joinParagraphs(formatPlan(plan, args.diff), ...done, ...describeTrust(plan));
    await terminal.printResult(args.output, { outcome, ...toPlainPlan(plan) }, words);
  },
});

function describeRestart({ restart }: UpgradePlan, { scope }: Installation): string {
  const systemctl = scope === 'user' ? 'systemctl --user' : 'systemctl';
  const units = restart.map((unit) => `${unit}.service`).join(' ');
  return `Next, restart the registry: ${systemctl} daemon-reload && ${systemctl} restart ${units}`;
}

function describeTrust({ certificates: { authority } }: UpgradePlan): string[] {
  if (authority.length === 0) return [];
  return [
    `The CA was renewed with the same key. Give it to clients before the old one expires: 'certs trust' prints it.`,
  ];
}
