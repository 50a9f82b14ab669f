import { openBundle } from '../../lib/bundle/open.ts';
import { takeStateLock } from '../../lib/host/stateFolder.ts';
import { upgradeRegistry } from '../../lib/host/upgrade.ts';
import { parseDigest } from '../../lib/oci/digest.ts';
import { defineCommand } from '../command.ts';
import {
  executionOptions,
  hostOptions,
  renewalOf,
  renewalOptions,
  requestOf,
  targetOf,
  upgradeOptions,
} from './options.ts';
import { describePlan } from './plan.ts';

/** `upgrade`: carries out what `plan` shows. */
export const command = defineCommand({
  details:
    'Does what plan shows: loads the images while the registry still runs, keeps a backup, changes the units and certificates, starts the ' +
    'registry again, and waits until it is well, over TLS that is verified. When it does not get well, everything is put back, byte for byte. ' +
    'A run that was killed goes on when it is run again. A host that is up to date is not touched, and nothing is restarted.\n\n' +
    'Ends with 0 when it is done or there is nothing to do, 3 when everything was put back, 4 when that failed too.',
  options: {
    digest: {
      type: 'string',
      describe: 'The digest that the whole bundle must have (sha256:<64 hex digits>)',
      check: (text) => void parseDigest(text),
    },
    ...upgradeOptions,
    ...renewalOptions,
    ...executionOptions,
    ...hostOptions,
  },
  examples: [
    ['--version=2.0.11', 'Upgrade to a release, with images that podman pulls'],
    ['--bundle=mirror-registry-2.0.11-x86_64.tar', 'Upgrade without a network'],
    ['', 'Renew what certificates have to be renewed, and start the registry again'],
  ],
  async run(args, { context, terminal, environment }) {
    const renewal = renewalOf(args, new Date());
    const expectedDigest = args.digest === undefined ? undefined : parseDigest(args.digest);
    const target = await targetOf(args, context);
    const bundle = args.bundle === undefined ? undefined : await openBundle(args.bundle, context);
    try {
      const request = { ...(await requestOf(args, environment)), target, bundle, renewal, expectedDigest };
      const unlock = await takeStateLock(request.files, request.installation);
      try {
        const { outcome, plan } = await upgradeRegistry(request, {
          ...context,
          onEvent: terminal.transfer('Verifying'),
        });
        const done =
          outcome === 'resumed' ? 'Done: the upgrade that had begun is complete.' : 'Done: the registry is well.';
        const parts = [
          ...(outcome === 'resumed' ? [] : [describePlan(plan, false)]),
          ...(outcome === 'unchanged' ? [] : [done]),
        ];
        terminal.print(parts.join('\n\n'));
      } finally {
        await unlock();
      }
    } finally {
      await bundle?.close();
    }
  },
});
