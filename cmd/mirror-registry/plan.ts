import { formatCheckTimer } from '../../lib/host/checkTimer.ts';
import { isUpToDate } from '../../lib/host/plan.ts';
import { defineCommand } from '../command.ts';
import { hostOptions, renewalOptions } from './options.ts';
import { formatPlan, makePlan, planOptions } from './planReport.ts';
import { upgradeOptions } from './target.ts';

/** `plan`: what `upgrade` would do to this host. */
export const command = defineCommand({
  details:
    'Compares the host with what it is to have: its images, the words of its units that newer images need, its certificates. Nothing is ' +
    'run and nothing is written. What is not named stays as it is, byte for byte.',
  options: {
    ...upgradeOptions,
    timer: {
      type: 'boolean',
      describe: 'Print a systemd service and timer that look every week and tell, and change nothing',
    },
    ...planOptions,
    ...renewalOptions,
    ...hostOptions,
  },
  examples: [
    ['', 'Show whether certificates have to be renewed'],
    ['--version=2.0.11 --diff', 'Show what a newer release would change'],
    ['--bundle=mirror-registry-2.0.11-x86_64.tar', 'The same, for the images in a bundle'],
    ['--detailed-exitcode --quiet', 'Let a script find out whether there is something to do'],
  ],
  async run(args, { terminal, environment, executable, context, setExitCode }) {
    if (args.timer) {
      terminal.print(formatCheckTimer(executable, args.scope === 'user', args.bundle).trimEnd());
      return;
    }
    const { plan, unfinished } = await makePlan(args, environment, context);
    if (args.detailedExitcode) setExitCode(plan.blockers.length > 0 ? 1 : isUpToDate(plan) && !unfinished ? 0 : 2);
    terminal.print(await formatPlan(plan, args));
  },
});
