import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { callOf, commandNameOf, defaultName, defaultOf, type Program } from '../../../cmd/cli/command.ts';

const file = fileURLToPath(new URL('../../golden/outputs.json', import.meta.url));

/** The fields of an output with their types, such as `string | null`. The name of an optional field ends in `?`. */
export type Fields = Record<string, string>;

/**
 * Returns the fields of the JSON that each command prints, by the words that call the command and its action. If the
 * output is a list, the fields are those of its items.
 */
export function readOutputs(): Record<string, Fields> {
  return JSON.parse(readFileSync(file, 'utf8')) as Record<string, Fields>;
}

/**
 * Expects the JSON that a command line printed to have the fields of test/golden/outputs.json, if the command is in that
 * file. With UPDATE_GOLDEN in the environment, adds new commands, fields and types to the file instead. Review it before
 * the commit.
 */
export function expectOutput(program: Program, args: readonly string[], stdout: string): void {
  if (!/ (-o|--output|--format)[= ]?json( |$)/.test(` ${args.join(' ')}`) || stdout === '') return;
  const call = callFor(program, args);
  const outputs = readOutputs();
  for (const item of parse(stdout)) {
    const known = outputs[call];
    const printed = typesOf(item);
    if (process.env['UPDATE_GOLDEN']) outputs[call] = known ? merge(known, printed) : printed;
    else if (known)
      expect(differences(known, printed), `${call} differs from test/golden/outputs.json`).to.deep.equal([]);
  }
  if (process.env['UPDATE_GOLDEN']) {
    const sorted = Object.entries(outputs).sort(([a], [b]) => (a < b ? -1 : 1));
    writeFileSync(file, `${JSON.stringify(Object.fromEntries(sorted), null, 2)}\n`);
  }
}

function callFor(program: Program, args: readonly string[]): string {
  const named = program.commands.find((entry) => args.includes(commandNameOf(entry)));
  const entry = named ?? defaultOf(program);
  expect(entry, args.join(' ')).not.to.equal(undefined);
  if (!entry) return defaultName;
  const action = entry.usage.includes('<action>') ? [args[args.indexOf(commandNameOf(entry)) + 1]] : [];
  return [callOf(program, entry), ...action].join(' ');
}

/** Reads one document, or a line for each document. Returns the items of lists. */
function parse(stdout: string): unknown[] {
  try {
    return [JSON.parse(stdout) as unknown].flat();
  } catch {
    return stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown);
  }
}

function typesOf(item: unknown): Fields {
  return Object.fromEntries(Object.entries(item as object).map(([name, value]) => [name, typeOf(value)]));
}

function typeOf(value: unknown): string {
  if (Array.isArray(value)) return value.length === 0 ? '[]' : `${typeOf(value[0])}[]`;
  return value === null ? 'null' : typeof value;
}

/** Returns the fields that are missing, new or of another type. An empty list has the type of any list. */
export function differences(known: Fields, printed: Fields): string[] {
  const missing = Object.keys(known).filter((name) => !name.endsWith('?') && !(name in printed));
  const others = Object.entries(printed).filter(([name, type]) => {
    const types = (known[name] ?? known[`${name}?`])?.split(' | ') ?? [];
    return !types.includes(type) && !(type === '[]' && types.some((each) => each.endsWith('[]')));
  });
  return [...missing, ...others.map(([name, type]) => `${name}: ${type}`)];
}

function merge(known: Fields, printed: Fields): Fields {
  const names = [...new Set([...Object.keys(known).map((name) => name.replace('?', '')), ...Object.keys(printed)])];
  return Object.fromEntries(
    names.map((name) => {
      const types = [...(known[name] ?? known[`${name}?`] ?? '').split(' | '), printed[name] ?? ''].filter(Boolean);
      const kept = types.filter((type) => type !== '[]' || !types.some((each) => each !== '[]' && each.endsWith('[]')));
      const isOptional = !(name in known) || !(name in printed);
      return [isOptional ? `${name}?` : name, [...new Set(kept)].sort().join(' | ')];
    }),
  );
}
