/** One assignment in a TOML file. */
export interface TomlAssignment {
  /** With its tables: `storage.options.additionalimagestores`. */
  readonly key: string;
  /** As it is written, without comments. */
  readonly value: string;
}

/**
 * Lists the assignments of a TOML file, as far as the configuration of container runtimes goes: tables, dotted keys, strings,
 * numbers, and lists over several lines. What it does not understand is left out.
 */
export function readToml(text: string): TomlAssignment[] {
  const assignments: TomlAssignment[] = [];
  const lines = text.split('\n').map(withoutComment);
  let table = '';
  for (let number = 0; number < lines.length; number++) {
    const line = lines[number]?.trim() ?? '';
    const header = /^\[\[?\s*([^\]]+?)\s*\]\]?$/.exec(line)?.[1];
    if (header !== undefined) {
      table = `${unquote(header)}.`;
      continue;
    }
    const [, name, start] = /^("[^"]+"|[\w.-]+)\s*=\s*(.+)$/.exec(line) ?? [];
    if (name === undefined || start === undefined) continue;
    let value = start;
    while (isOpen(value) && number + 1 < lines.length) value += ` ${lines[++number]?.trim() ?? ''}`;
    assignments.push({ key: table + unquote(name), value });
  }
  return assignments;
}

/** The strings in the value of an assignment: one for a string, all of a list. */
export function stringsOf(value: string): string[] {
  return [...value.matchAll(/"((?:[^"\\]|\\.)*)"|'([^']*)'/g)].map(
    ([, basic, literal]) => literal ?? (basic ?? '').replace(/\\(.)/g, '$1'),
  );
}

function withoutComment(line: string): string {
  return /^(?:[^#"']|"(?:[^"\\]|\\.)*"|'[^']*')*/.exec(line)?.[0] ?? line;
}

function isOpen(value: string): boolean {
  if (!value.startsWith('[')) return false;
  const bare = value.replace(/"(?:[^"\\]|\\.)*"|'[^']*'/g, '');
  return bare.split('[').length > bare.split(']').length;
}

function unquote(name: string): string {
  return name.replace(/["'\s]/g, '');
}
