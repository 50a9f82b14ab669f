/** HTML or SVG in which all external content is escaped. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** The values in a template: text, which is escaped, and markup, which is not. */
export type MarkupValue = string | number | Markup | false | undefined | readonly MarkupValue[];

/** A template for markup. Escapes all values except markup of this function. */
export function markup(parts: TemplateStringsArray, ...values: readonly MarkupValue[]): Markup {
  return new Markup(parts.map((part, index) => part + render(values[index])).join(''));
}

function render(value: MarkupValue): string {
  if (value === undefined || value === false) return '';
  if (value instanceof Markup) return value.text;
  if (typeof value === 'object') return value.map(render).join('');
  return (
    String(value)
      .replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`)
      // Invisible characters, also characters that change the direction of text.
      .replace(/[\p{Cc}\p{Cf}]/gu, '\u{fffd}')
  );
}
