import { existsSync } from 'node:fs';
import { resolve } from 'node:path';
import { isSea } from 'node:sea';
import { formatCheckTimer } from '../../lib/registry-host/change/checkTimer.ts';
import type { Installation } from '../../lib/registry-host/installation.ts';
import type { OptionRecord } from '../cli/command.ts';
import { registryHostOptions, podmanOption, renewalOptions } from './options.ts';
import { upgradeOptions } from './target.ts';

/** The exit code of `plan` in a timer if there are changes to make. No error has this code. */
const changesExitCode = 10;

const carried: OptionRecord = { ...upgradeOptions, ...renewalOptions, ...podmanOption, ...registryHostOptions };

/** Formats the timer that runs `plan` for an installation with the given options. */
export function formatTimer(
  args: Readonly<Record<string, unknown>>,
  executable: string,
  { scope }: Installation,
): string {
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
