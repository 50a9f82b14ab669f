import { readFileSync } from 'node:fs';
import { basename } from 'node:path';

/** The scripts for shells that commands print, by their paths below `cmd`. */
export const shellScripts = [
  'cli/completion/completion.bash',
  'cli/completion/completion.fish',
  'cli/completion/completion.ps1',
  'cli/completion/completion.zsh',
  'upgrade-bundle/shell-hook/hook.fish',
  'upgrade-bundle/shell-hook/hook.sh',
] as const;

/**
 * The texts of these files in a built executable, in their order, as JSON, which the build defines. It is undefined in
 * the sources.
 */
declare const __SHELL_SCRIPTS__: string | undefined;

type FileOf<Path extends string> = Path extends `${string}/${infer Rest}` ? FileOf<Rest> : Path;

/** Returns a script with words in place of each `@name@`, without the last line break. */
export function fillScript(
  file: FileOf<(typeof shellScripts)[number]>,
  words: Readonly<Record<string, string>>,
): string {
  const index = shellScripts.findIndex((path) => basename(path) === file);
  const text =
    typeof __SHELL_SCRIPTS__ === 'string'
      ? (JSON.parse(__SHELL_SCRIPTS__) as string[])[index]
      : readFileSync(new URL(`../${shellScripts[index]}`, import.meta.url), 'utf8');
  return (text ?? '').trimEnd().replaceAll(/@([a-zA-Z]+)@/g, (whole, name: string) => words[name] ?? whole);
}
