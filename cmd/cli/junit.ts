/** A test; `time` in seconds. With neither `failure` nor `skipped` (the reason), it passed. */
export interface JunitCase {
  readonly classname: string;
  readonly name: string;
  readonly time: number;
  readonly failure?: { readonly type: string; readonly message: string; readonly details?: string };
  readonly skipped?: string;
  readonly output?: string;
}

/** A suite of tests; `time` in seconds; `skipped` counts, where tests can be skipped. */
export interface JunitSuite {
  readonly name: string;
  readonly timestamp?: string;
  readonly skipped?: number;
  readonly time: number;
  readonly cases: readonly JunitCase[];
}

/** Formats suites of tests as JUnit XML. */
export function formatJunit(name: string, suites: readonly JunitSuite[]): string {
  const totals = { name, ...countTests(suites.flatMap(({ cases }) => cases)) };
  const root = tag('testsuites', totals, ['', ...suites.map(formatSuite), ''].join('\n'));
  return `<?xml version="1.0" encoding="UTF-8"?>\n${root}\n`;
}

function formatSuite({ name, timestamp, skipped, time, cases }: JunitSuite): string {
  const attributes = { name, timestamp, ...countTests(cases), errors: 0, skipped, time };
  return tag('testsuite', attributes, ['', ...cases.map(formatCase), ''].join('\n'));
}

function formatCase({ classname, name, time, failure, skipped, output }: JunitCase): string {
  const content = [
    skipped === undefined ? '' : tag('skipped', { message: skipped }),
    failure ? tag('failure', { type: failure.type, message: failure.message }, escapeXml(failure.details ?? '')) : '',
    output === undefined ? '' : tag('system-out', {}, escapeXml(output)),
  ];
  return tag('testcase', { classname, name, time }, content.join(''));
}

function countTests(cases: readonly JunitCase[]): { tests: number; failures: number } {
  return { tests: cases.length, failures: cases.filter(({ failure }) => failure).length };
}

/** Formats an XML element. The content is XML already; attributes are escaped, and those without a value left out. */
function tag(name: string, attributes: Readonly<Record<string, string | number | undefined>>, content = ''): string {
  const pairs = Object.entries(attributes)
    .filter(([, value]) => value !== undefined)
    .map(([key, value]) => ` ${key}="${escapeXml(String(value))}"`);
  return content === '' ? `<${name}${pairs.join('')}/>` : `<${name}${pairs.join('')}>${content}</${name}>`;
}

/** Escapes a text for XML, which has no control characters at all. */
function escapeXml(text: string): string {
  const entities: Readonly<Record<string, string>> = {
    '&': '&amp;',
    '<': '&lt;',
    '>': '&gt;',
    '"': '&quot;',
    '\n': '&#10;',
  };
  const plain = text.toWellFormed().replace(/[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]/g, '\ufffd');
  return plain.replace(/[&<>"\n]/g, (char) => entities[char] ?? char);
}
