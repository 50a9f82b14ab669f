import { PluginError } from '#errors';
import { isFields } from '#fields';

/** A step of a path: a field, an item (negative from the end), all items, or the items whose field has a value. */
type Step =
  | { readonly field: string }
  | { readonly index: number }
  | { readonly all: true }
  | { readonly where: string; readonly is: string };

const stepPattern =
  /^(?:\.([\w-]+)|\['((?:[^'\\]|\\.)+)'\]|\[(-?\d+)\]|(\[\*\]|\.\*)|\[\?\(@\.([\w.-]+) ?== ?["']([^"']*)["']\)\])/;

/**
 * Fills a template of `-o jsonpath` as kubectl does: `{.status.phase}`, `{.items[0].name}`, `{.nodes[*].name}`,
 * `{.conditions[?(@.type=="Stalled")].message}`, `{range .nodes[*]}{.name}{"\n"}{end}`. A missing field is empty.
 * Throws `usage` for anything else.
 */
export function formatJsonPath(template: string, data: unknown): string {
  const parts = [...template.matchAll(/\{((?:"(?:[^"\\]|\\.)*"|'[^']*'|[^{}"'])*)\}|([^{}]+)|[{}]/g)];
  const [text, rest] = fill(parts, 0, data, template);
  if (rest < parts.length) throw invalid(template, '{end} without {range}');
  return text;
}

/** Throws `usage` for the value of an `-o` with a template that is empty or malformed. */
export function checkJsonPath(output: string): void {
  const [, template] = /^jsonpath=(.*)$/s.exec(output) ?? [];
  if (template === '') throw invalid(template, 'it has no template');
  if (template !== undefined) formatJsonPath(template, {});
}

/** Returns the text of the parts from `start` to an `{end}`, and the index after them. */
function fill(parts: readonly RegExpExecArray[], start: number, data: unknown, template: string): [string, number] {
  let text = '';
  for (let index = start; index < parts.length; index += 1) {
    const [whole = '', expression, plain] = parts[index] ?? [];
    if (plain !== undefined) text += plain;
    else if (expression === undefined) throw invalid(template, `“${whole}” has no partner`);
    else if (expression.trim() === 'end') return [text, index];
    else if (expression.startsWith('range ')) {
      const items = select(expression.slice(6).trim(), data, template).flat();
      let end = index + 1;
      if (items.length === 0) [, end] = fill(parts, index + 1, undefined, template);
      for (const item of items) {
        const [inner, after] = fill(parts, index + 1, item, template);
        text += inner;
        end = after;
      }
      if (parts[end]?.[1]?.trim() !== 'end') throw invalid(template, '{range} without {end}');
      index = end;
    } else text += evaluate(expression.trim(), data, template);
  }
  return [text, parts.length];
}

function evaluate(expression: string, data: unknown, template: string): string {
  const [, double, single] = /^(?:"((?:[^"\\]|\\.)*)"|'([^']*)')$/.exec(expression) ?? [];
  const literal = double ?? single;
  if (literal !== undefined) return literal.replace(/\\([nt"\\])/g, (_, sign: string) => signs[sign] ?? sign);
  return select(expression, data, template)
    .map((value) => (typeof value === 'string' ? value : JSON.stringify(value)))
    .join(' ');
}

const signs: Readonly<Record<string, string>> = { n: '\n', t: '\t' };

/** Returns the values at a path. */
function select(path: string, data: unknown, template: string): unknown[] {
  let values: unknown[] = [data];
  let rest = path.replace(/^[$@]/, '');
  if (rest === '' || rest === '.') return values;
  while (rest !== '') {
    const match = stepPattern.exec(rest);
    if (!match) throw invalid(template, `“${rest}” is not understood`);
    rest = rest.slice(match[0].length);
    values = values.flatMap((value) => take(stepOf(match), value)).filter((value) => value !== undefined);
  }
  return values;
}

function stepOf([, field, quoted, index, all, where, is]: RegExpExecArray): Step {
  if (where !== undefined) return { where, is: is ?? '' };
  if (all !== undefined) return { all: true };
  return index === undefined ? { field: field ?? quoted?.replaceAll('\\', '') ?? '' } : { index: Number(index) };
}

function take(step: Step, value: unknown): unknown[] {
  if ('field' in step) return isFields(value) && Object.hasOwn(value, step.field) ? [value[step.field]] : [];
  if ('all' in step && isFields(value)) return Object.values(value);
  if (!Array.isArray(value)) return [];
  if ('index' in step) return [value.at(step.index)];
  if ('all' in step) return value;
  return value.filter((item) => String(select(`.${step.where}`, item, step.where)[0]) === step.is);
}

function invalid(template: string, why: string): PluginError {
  return new PluginError('usage', `jsonpath=${template}: ${why}`, {
    hint: 'An example is jsonpath={.status.phase}. Quote it for the shell.',
  });
}
