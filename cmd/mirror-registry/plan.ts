import { defineCommand } from '../cli/command.ts';
import { findInstallation, registryHostOptions, podmanOption, renewalOptions } from './options.ts';
import { exitCodeOf, formatPlan, makePlan, planOptions } from './planReport.ts';
import { upgradeOptions } from './target.ts';
import { formatTimer } from './timer.ts';

/** `plan`: what `upgrade` would do to this host. */
export const command = defineCommand({
  details:
    'Compares the host with what it should have: its images, the words of its units that newer images need, its certificates. Asks podman ' +
    'which images it holds, and changes nothing. What is not named stays as it is, byte for byte.',
  options: {
    ...upgradeOptions,
    timer: {
      type: 'boolean',
      describe: 'Print a systemd service and timer that run plan every week for this installation, with these options',
    },
    ...planOptions,
    ...renewalOptions,
    ...podmanOption,
    ...registryHostOptions,
  },
  examples: [
    ['', 'Show whether certificates have to be renewed'],
    ['--version=2.0.11 --diff', 'Show what a newer release would change'],
    ['--bundle=mirror-registry-2.0.11-x86_64.tar', 'The same, for the images in a bundle'],
    ['--detailed-exitcode --quiet', 'Let a script find out whether there is something to do'],
  ],
  async run(args, { terminal, environment, executable, context, setExitCode }) {
    if (args.timer) {
      const { installation } = await findInstallation(args, environment);
      terminal.print(formatTimer(args, executable, installation).trimEnd());
      return;
    }
    const { plan, unfinished } = await makePlan(args, environment, context);
    if (args.detailedExitcode) setExitCode(exitCodeOf(plan, unfinished, args));
    terminal.print(await formatPlan(plan, args));
  },
});
