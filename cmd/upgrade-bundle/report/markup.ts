/** A piece of HTML or SVG in which everything that came from outside is escaped. */
export class Markup {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** What a template may hold: text, which is escaped, and markup, which is not. */
export type MarkupValue = string | number | Markup | false | undefined | readonly MarkupValue[];

/** A template for markup: everything put into it is escaped, but for markup made by this very function. */
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
      // Invisible characters, among them those that turn the direction of the text around them.
      .replace(/[\p{Cc}\p{Cf}]/gu, '\u{fffd}')
  );
}
