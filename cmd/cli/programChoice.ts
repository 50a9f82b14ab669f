import { basename } from 'node:path';
import type { Program } from './command.ts';

/**
 * Which of several programs in one executable is meant: the one that the executable is called by, such as `oc-adm_upgrade_bundle` or
 * `kubectl-adm_upgrade_bundle.exe`; else the one that is the first word, `adm-upgrade-bundle`; else the first. Throws nothing.
 */
export function chooseProgram(
  programs: readonly [Program, ...Program[]],
  calledBy: string,
  argv: readonly string[],
): { readonly program: Program; readonly argv: readonly string[] } {
  const called = calledBy.replace(/\.exe$/i, '').replace(/^(oc|kubectl)(_complete)?-/, '');
  const byName = programs.find((program) => wordOf(program) === called.replaceAll('_', '-'));
  if (byName) return { program: byName, argv };
  const byWord = programs.find((program) => wordOf(program) === argv[0]);
  return byWord ? { program: byWord, argv: argv.slice(1) } : { program: programs[0], argv };
}

/**
 * Tells whether one of the names that a program is called by is the one that kubectl calls for the words of a plugin:
 * `kubectl_complete-adm_upgrade_bundle`.
 */
export function isCompleter(names: readonly string[]): boolean {
  return names.some((name) => /^(oc|kubectl)_complete-/.test(basename(name)));
}

/** Names a program as it was called: `kubectl adm-upgrade-bundle` if one of the names of its process says so. */
export function nameAsCalled(program: Program, names: readonly string[]): Program {
  const isKubectl = names.some((name) => basename(name).startsWith('kubectl-'));
  return isKubectl ? { ...program, name: program.name.replace(/^oc /, 'kubectl ') } : program;
}

/** What is typed after `oc`. */
function wordOf({ name }: Program): string {
  return name.replace(/^oc /, '');
}
