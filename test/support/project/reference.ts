import {
  callOf,
  defaultOf,
  usageOf,
  type CommandEntry,
  type Option,
  type OptionRecord,
  type Program,
} from '../../../cmd/cli/command.ts';
import { commonOptions } from '../../../cmd/cli/commonOptions.ts';
import { exitMeanings } from '../../../cmd/cli/failure.ts';
import { clusterGroup } from '../../../cmd/cli/help.ts';
import { listConfigOptions, fieldOf } from '../../../cmd/cli/optionFile.ts';
import { clusterAccessOptions } from '../../../cmd/cli/options.ts';
import { screenCodes } from '../../../lib/update/screen/screenCode.ts';

/** Returns the reference of programs and error codes as Markdown, from the same records as the parser and the help. */
export async function writeReference(
  programs: readonly Program[],
  errorCodes: Readonly<Record<string, string>>,
): Promise<string> {
  const parts = ['# Reference', 'Generated from the option records by `npm run docs`; do not edit.'];
  for (const program of programs) {
    parts.push(`## ${program.name}`, program.describe);
    for (const entry of program.commands) {
      parts.push(...(await describeEntry(program, entry)));
    }
  }
  parts.push('## Options of every command', tableOf(commonOptions));
  parts.push(
    '## Options of the cluster connection',
    'Any command that uses a cluster takes these options. `options` lists them.',
    tableOf(clusterAccessOptions),
  );
  parts.push(
    '## Exit codes',
    table(['code', 'meaning'], Object.entries(exitMeanings)),
    'Options such as `--detailed-exitcode` and `--exit-code` have codes of their own.',
  );
  parts.push(
    '## Error codes',
    table(
      ['code', 'meaning'],
      Object.entries(errorCodes).map(([code, what]) => [`\`${code}\``, what]),
    ),
  );
  parts.push(
    '## Codes on the screens of nodes',
    '[Each code](screen-codes.md) has facts, a remedy and what to ask for.',
    table(
      ['code', 'meaning'],
      Object.values(screenCodes).map(([code, what]) => [`\`${code}\``, what]),
    ),
  );
  return `${parts.join('\n\n')}\n`;
}

async function describeEntry(program: Program, entry: CommandEntry): Promise<string[]> {
  const { command } = await entry.load();
  // The default command is under the title of its program.
  const parts = entry === defaultOf(program) ? [] : [`### ${callOf(program, entry)}`, `${entry.describe}.`];
  if (command.details !== undefined) {
    parts.push(command.details);
  }
  parts.push(['```', `${usageOf(program, entry)} [options]`, '```'].join('\n'));
  const positionals = Object.entries(command.positionals ?? {});
  if (positionals.length > 0) {
    parts.push(
      table(
        ['argument', 'meaning'],
        positionals.map(([name, option]) => [`\`${name}\``, meaningOf(option)]),
      ),
    );
  }
  const options = Object.entries(command.options);
  const own = options.filter(([, { group }]) => group !== clusterGroup);
  if (own.length > 0) parts.push(tableOf(Object.fromEntries(own)));
  if (own.length < options.length) {
    parts.push('It also takes the [options of the cluster connection](#options-of-the-cluster-connection).');
  }
  if (command.config?.kind !== undefined) {
    const fields = listConfigOptions(command.options, command.config).map(
      ([name, option]) => `\`${fieldOf(name, option)}\``,
    );
    parts.push(`Fields of \`spec\` in a ${command.config.kind} (the plural ones are lists): ${fields.join(', ')}.`);
  }
  for (const [args, what] of command.examples) {
    parts.push([`${what}:`, '', '```', `${callOf(program, entry)} ${args}`, '```'].join('\n'));
  }
  return parts;
}

function tableOf(options: OptionRecord): string {
  return table(
    ['option', 'value', 'meaning'],
    Object.entries(options).map(([name, option]) => [
      namesOf(name, option)
        .map((each) => `\`${each}\``)
        .join(', '),
      option.type === 'boolean' ? '' : (option.choices?.map((choice) => `\`${choice}\``).join(' ') ?? kindOf(option)),
      meaningOf(option),
    ]),
  );
}

function namesOf(name: string, { alias = [] }: Option): string[] {
  return [name, ...[alias].flat()].map((each) => (each.length === 1 ? `-${each}` : `--${each}`));
}

function meaningOf(option: Option): string {
  const parts = [`${option.describe}.`];
  if (option.required) {
    parts.push('Required.');
  }
  if (option.repeatable) {
    parts.push('May be given several times.');
  }
  if (option.range !== undefined) {
    const unit = option.isTime ? ' seconds' : '';
    parts.push(`From ${option.range.map(String).join(' to ')}${unit}.`);
  }
  if (option.default !== undefined) {
    parts.push(`Default: \`${String(option.default)}\`.`);
  }
  return parts.join(' ');
}

/** Returns a table in Markdown. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(header), line(header.map(() => '---')), ...rows.map(line)].join('\n');
}

function kindOf({ type, isTime }: Option): string {
  return isTime ? 'duration' : type;
}
