import { takeStateLock } from '../../lib/mirror-registry/stateFolder.ts';
import type { Installation } from '../../lib/mirror-registry/installation.ts';
import type { UpgradePlan } from '../../lib/mirror-registry/change/plan.ts';
import { upgradeRegistry } from '../../lib/mirror-registry/change/upgrade.ts';
import { parseDigest } from '../../lib/oci/digest.ts';
import { defineCommand } from '../cli/command.ts';
import { executionOptions, registryHostOptions, renewalOf, renewalOptions, requestOf } from './options.ts';
import { exitCodeOf, formatPlan, makePlan, planOptions } from './planReport.ts';
import { openTarget, upgradeOptions } from './target.ts';

/** `upgrade`: carries out what `plan` shows. */
export const command = defineCommand({
  details:
    'Does what plan shows: loads the images while the registry still runs, keeps a backup, changes the units and certificates, starts the ' +
    'registry again, and waits until it is well, over TLS that is verified. When it does not get well, everything is put back, byte for byte. ' +
    'A run that was killed goes on when it is run again. A host that is up to date is not touched, and nothing is restarted.\n\n' +
    'Ends with 0 when it is done or there is nothing to do, 3 when everything was put back, 4 when that failed too. It never asks.',
  options: {
    'dry-run': { type: 'boolean', describe: 'Show what would be done, as plan does, and do nothing' },
    ...planOptions,
    digest: {
      type: 'string',
      describe: 'The digest that the whole bundle must have, or the list in a registry (sha256:<64 hex digits>)',
      check: (text) => void parseDigest(text),
    },
    ...upgradeOptions,
    ...renewalOptions,
    ...executionOptions,
    ...registryHostOptions,
  },
  examples: [
    ['--version=2.0.11', 'Upgrade to a release, with images that podman pulls'],
    ['--bundle=mirror-registry-2.0.11-x86_64.tar', 'Upgrade without a network'],
    [
      '--bundle=registry.example.com:8443/openshift/mirror-registry-bundle',
      'The same, with the newest release that the registry itself holds',
    ],
    ['--version=2.0.11 --dry-run --diff', 'Only show what would be done'],
    ['', 'Renew what certificates have to be renewed, and start the registry again'],
  ],
  async run(args, { context, terminal, environment, setExitCode }) {
    if (args.dryRun) {
      const { plan, unfinished } = await makePlan(args, environment, context);
      if (args.detailedExitcode) setExitCode(exitCodeOf(plan, unfinished, args));
      terminal.print(await formatPlan(plan, args, { outcome: 'planned' }));
      return;
    }
    const renewal = await renewalOf(args, new Date());
    const expectedDigest = args.digest === undefined ? undefined : parseDigest(args.digest);
    const host = await requestOf(args, environment);
    const { installation } = host.detected;
    const unlock = await takeStateLock(host.files, installation);
    try {
      const { target, release } = await openTarget(args, { files: host.files, installation }, environment, context);
      try {
        const request = { ...host, target, release, renewal, expectedDigest };
        const reading = { ...context, onEvent: terminal.transfer('Verifying') };
        const { outcome, plan } = await upgradeRegistry(request, reading);
        if (args.detailedExitcode) setExitCode(exitCodeOf(plan, outcome === 'resumed', args));
        const done = {
          unchanged: [],
          upgraded: [args.restart ? 'Done: the registry is well.' : describeRestart(plan, installation)],
          resumed: ['Done: what an earlier run had begun is complete.'],
        }[outcome];
        if (args.output !== undefined) terminal.print(await formatPlan(plan, args, { outcome }));
        else terminal.print([await formatPlan(plan, args), ...done, ...describeTrust(plan)].join('\n\n'));
      } finally {
        await release?.close();
      }
    } finally {
      await unlock();
    }
  },
});

function describeRestart({ restart }: UpgradePlan, { scope }: Installation): string {
  const systemctl = scope === 'user' ? 'systemctl --user' : 'systemctl';
  const units = restart.map((unit) => `${unit}.service`).join(' ');
  return `Then: ${systemctl} daemon-reload && ${systemctl} restart ${units}`;
}

function describeTrust({ certificates: { authority } }: UpgradePlan): string[] {
  if (authority.length === 0) return [];
  return [
    `The authority was renewed on its own key. Give it to clients before the old one ends: 'certs trust' prints it.`,
  ];
}
