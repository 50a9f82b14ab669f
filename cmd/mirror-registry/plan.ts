import { PluginError } from '../../lib/errors.ts';
import { defineCommand } from '../cli/command.ts';
import { findInstallation, registryHostOptions, podmanOption, renewalOptions } from './options.ts';
import { exitCodeOf, formatPlan, makePlan, planOptions, toPlainPlan } from './planReport.ts';
import { bundlePositional, withBundle, upgradeOptions } from './target.ts';
import { Lines } from '../../lib/lines.ts';
import { formatTimer } from './timer.ts';

/** `plan`: shows the changes of an upgrade. */
export const command = defineCommand({
  details:
    'Compares the images, units and certificates of the host with the given release. Asks podman which images it has, and changes nothing. ' +
    'Everything that the plan does not list stays as it is, byte for byte. Checks no signature: none covers the images of a mirror registry.',
  positionals: bundlePositional,
  options: {
    ...upgradeOptions,
    timer: {
      type: 'boolean',
      describe: 'Print a systemd service and timer that run plan every week with these options',
    },
    ...planOptions,
    ...renewalOptions,
    ...podmanOption,
    ...registryHostOptions,
  },
  examples: [
    ['', 'Show whether certificates need renewal'],
    ['--version=2.0.11 --diff', 'Show what an upgrade would change, as a diff'],
    ['mirror-registry-2.0.11-x86_64.tar', 'Plan an upgrade from a bundle'],
    ['--detailed-exitcode --quiet', 'Tell a script whether there is something to do'],
  ],
  async run(given, { terminal, environment, executable, context, setExitCode }) {
    const args = withBundle(given);
    if (args.timer && args.output !== undefined) throw new PluginError('usage', '--timer excludes --output');
    if (args.timer) {
      const { installation } = await findInstallation(args, environment);
      terminal.print(Lines.split(formatTimer(args, executable, installation)));
      return;
    }
    const { plan, unfinished, forecast } = await makePlan(args, environment, context);
    if (args.detailedExitcode) setExitCode(exitCodeOf(plan, unfinished, args));
    await terminal.printResult(args.output, toPlainPlan(plan, forecast), formatPlan(plan, args.diff, forecast));
  },
});
