import { basename } from 'node:path';
import manifest from '../../package.json' with { type: 'json' };
import type { Program } from './command.ts';

/** The plugins by their words on the command line, with the suffixes of their executables’ names. */
export const plugins = {
  'oc adm-upgrade-bundle': 'adm_upgrade_bundle',
  'oc adm-release-mirror-config': 'adm_release_mirror_config',
  'oc adm-mirror-registry': 'adm_mirror_registry',
};

/**
 * Chooses one of several programs in an executable: by the name of the executable, such as `oc-adm_upgrade_bundle` or
 * `kubectl-adm_upgrade_bundle.exe`, else by the first word, `adm-upgrade-bundle`, else the first program. Without
 * words, or if they ask for help, it is one that lists the programs. Never throws.
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
  if (byWord) return { program: byWord, argv: argv.slice(1) };
  return { program: /^(|help|--help|-h)$/.test(argv.join(' ')) ? listPrograms(programs) : programs[0], argv };
}

/** Returns a program whose help lists the programs of the executable. */
function listPrograms(programs: readonly Program[]): Program {
  return {
    name: manifest.name,
    describe: 'Plugins of oc for OpenShift clusters that cannot reach an image registry.',
    commands: programs.map((program) => ({
      usage: wordOf(program),
      describe: program.describe.replace(/\.$/, ''),
      load: () => Promise.reject(new Error(`${program.name} is a program`)),
    })),
  };
}

/**
 * Returns whether a program was called with the name that oc (from 4.15) or kubectl (from 1.26) uses for completing the
 * words of a plugin: `oc_complete-adm_upgrade_bundle` or `kubectl_complete-adm_upgrade_bundle`.
 */
export function isCompleter(names: readonly string[]): boolean {
  return names.some((name) => /^(oc|kubectl)_complete-/.test(basename(name)));
}

/**
 * Renames a program after the name with which it was called: `kubectl adm-upgrade-bundle` if its process has such a
 * name.
 */
export function nameAsCalled(program: Program, names: readonly string[]): Program {
  const isKubectl = names.some((name) => basename(name).startsWith('kubectl-'));
  return isKubectl ? { ...program, name: program.name.replace(/^oc /, 'kubectl ') } : program;
}

/** Returns the word after `oc`. */
function wordOf({ name }: Program): string {
  return name.replace(/^oc /, '');
}
