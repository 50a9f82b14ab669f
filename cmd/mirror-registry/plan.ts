import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { isSea } from 'node:sea';
import { PluginError } from '#errors';
import { formatCheckTimer } from '#registry-host/change';
import type { Installation } from '#registry-host/installation';
import { Lines } from '#text';
import { defineCommand, type OptionRecord } from '../cli/command.ts';
import { findInstallation, registryHostOptions, podmanOption, renewalOptions } from './options.ts';
import { exitCodeOf, formatPlan, makePlan, planOptions, toPlainPlan } from './planReport.ts';
import { bundlePositional, withBundle, upgradeOptions } from './target.ts';

/** `plan`: shows the changes of an upgrade. */
export const command = defineCommand({
  details:
    'Compares the images, units and certificates of the host with the given release. Asks podman which images it ' +
    'has, and changes nothing. Everything that the plan does not list stays as it is, byte for byte. Checks no ' +
    'signature: none covers the images of a mirror registry.',
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

/** The exit code of `plan` in a timer if there are changes to make. No error has this code. */
const changesExitCode = 10;

const carried: OptionRecord = { ...upgradeOptions, ...renewalOptions, ...podmanOption, ...registryHostOptions };

/** Formats the timer that runs `plan` for an installation with the given options. */
function formatTimer(args: Readonly<Record<string, unknown>>, executable: string, { scope }: Installation): string {
  const program = isSea() ? [process.execPath] : [process.execPath, resolve(executable)];
  const options = Object.entries({ ...carried }).flatMap(([name, option]) => {
    const value = name === 'scope' ? scope : args[name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase())];
    if (value === undefined || value === false || (value === option.default && name !== 'scope')) return [];
    if (value === true) return [`--${name}`];
    return ([value].flat() as (string | number)[]).map((each) => `--${name}=${absolute(String(each), option.suggest)}`);
  });
  const command = [...program, 'plan', '--detailed-exitcode', `--changes-exitcode=${changesExitCode}`, ...options];
  return formatCheckTimer({ command, isUser: scope === 'user', changesExitCode });
}

/**
 * Makes the path of a file absolute, because a service runs in another folder. Other values are references or names of
 * programs.
 */
function absolute(value: string, suggest: string | undefined): string {
  return (suggest === 'files' || suggest === 'folders') && existsSync(value) ? resolve(value) : value;
}
