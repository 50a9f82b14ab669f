import { globSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { parseSync, Visitor, type Expression, type Span, type TemplateLiteral } from 'oxc-parser';

const root = fileURLToPath(new URL('..', import.meta.url));

/** Words that are not plain technical English, and the words to use instead. */
const words: readonly (readonly [avoid: RegExp, use: string])[] = [
  [/\bwhoever\b/i, 'the actor: the user, the administrator, the client'],
  [/\bwhatever\b/i, 'the object, or “each”, “every”, “any”'],
  [/\b(some|any|every|no)body\b/i, 'the actor: another user, each client, no key'],
  [/\bthose (that|which|who)\b/i, 'the noun, as “images that …”'],
  [/\bthe ones? (that|which|who)\b/i, 'the noun, as “the key that …”'],
  [/\bsticks?\b/i, 'USB drive'],
  [/\bcut off\b/i, 'interrupted'],
  [/\bg(o|oes|oing|one) on\b/i, 'resume (an interrupted run), continue'],
  [/\bin vain\b/i, 'failed'],
  [/\banew\b/i, 'again, or the verb with re-: reissue, rewrite'],
  [/\bonce more\b/i, 'again'],
  [/\bstart(s|ed|ing)? again\b/i, 'restart'],
  [/\bbesides\b/i, 'also, in addition to, except'],
  [/\bat hand\b/i, 'available, present'],
  [/\b(so|as) far as\b/i, 'if, the part that'],
  [/\bto be had\b/i, 'missing, available'],
  [/\bwhat is there\b/i, 'existing content, the existing files'],
  [/\b(gets?|got|is|are|be|become) (not )?well\b(?![- ](known|formed))/i, 'healthy'],
  [/\bsuperfluous\b/i, 'unexpected'],
  [/\balter(s|ed|ing)?\b/i, 'corrupt (digest differs), changed'],
  [/\bvouch(es|ed|ing)?\b/i, 'sign, verify, trust'],
  [/\bbeliev(e|es|ed|ing)\b/i, 'trust'],
  [/\b(set|sets|put|puts) [^.]{0,30}\bright\b/i, 'fix, restore'],
  [/\bmend(s|ed|ing)?\b/i, 'fix'],
  [/\b(held|holds?|holding) (it|them|this|everything) up\b/i, 'block, is not ready'],
  [/\bb(ring|rings|rought) along\b/i, 'include, contain'],
  [/\bunderneath\b/i, 'the cause'],
  [/\bwhen(so)?ever\b/i, 'if, each time'],
  [/\bwherever\b/i, 'if, everywhere'],
  [/\bwhere there (is|are|was|were)\b/i, 'if there is'],
  [/\bbut for\b/i, 'except'],
  [/\ball the same\b/i, 'still, also'],
  [/\bfor ever\b/i, 'without a limit'],
  [/\b(there|where)(by|in|of|upon)\b/i, 'a new sentence'],
  [/\bshall\b/i, 'must, will'],
  [/\b(sane|insane)\b/i, 'the limit that is exceeded'],
  [/\border of chance\b/i, 'random order'],
  [/\bno way leads\b/i, 'no route to host'],
  [/\bmade for the occasion\b/i, 'temporary'],
  [/\b(over|across) (a|the) gap\b/i, 'the site, the disconnected side'],
];

/** The same for titles of tests. */
const titleWords: typeof words = [
  ...words,
  [/\bwhat (?!(to|would|it would)\b)/i, 'the noun: the missing blobs, the output'],
];

/** The longest sentence, in words. */
const longest = 30;

interface Text {
  /** The folder of a source file, or the path of another text. */
  readonly key: string;
  readonly path: string;
  readonly paragraphs: readonly string[];
}

/** Returns the prose of a Markdown page by paragraphs, list items and table cells: without code, URLs and markup. */
function readPage(text: string): { paragraphs: string[]; cells: string[] } {
  const prose = text
    .replace(/^( *)```.*?^\1```$/gms, '')
    .replace(/``.*?``|`[^`]*`/gs, 'CODE')
    .replace(/<!--.*?-->|<[^>]*>/gs, ' ')
    .replace(/\]\([^)]*\)/g, ']')
    .replace(/\bhttps?:\S+/g, 'URL')
    .replace(/[*_[\]]/g, '');
  const lines = prose.split('\n');
  const cells = lines.filter((line) => /^\s*\|/.test(line)).flatMap((line) => line.split(/(?<!\\)\|/));
  const rest = lines.map((line) => (/^\s*(\||#)/.test(line) ? '' : line)).join('\n');
  const paragraphs = rest.split(/\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )/).map((part) => part.replace(/\s+/g, ' ').trim());
  const headings = lines.filter((line) => line.startsWith('#'));
  return { paragraphs: paragraphs.filter(Boolean), cells: [...cells, ...headings] };
}

/** Returns the texts of a source file for readers: strings and templates of two words or more. */
function readLiterals(path: string, text: string): string[] {
  const found: string[] = [];
  let end = 0;
  const add = (node: Expression): void => {
    const literal = textOf(node);
    // The parts of a sum are no texts of their own.
    if (literal === undefined || node.start < end) return;
    found.push(literal);
    if (node.type !== 'TemplateLiteral') ({ end } = node);
  };
  const skip = (node: Span): void => void ({ end } = node);
  const visitor = new Visitor({ ImportDeclaration: skip, Literal: add, TemplateLiteral: add, BinaryExpression: add });
  visitor.visit(parseSync(path, text).program);
  return found.filter((each) => /[a-z]+,? [a-z]+/i.test(each));
}

/** Returns the paragraphs of the comments in a source file. Comments in consecutive lines are one. */
function readComments(path: string, text: string): string[] {
  const groups: { start: number; end: number }[] = [];
  for (const { start, end } of parseSync(path, text).comments) {
    const last = groups.at(-1);
    if (last && text.slice(last.end, start).trim() === '') last.end = end;
    else groups.push({ start, end });
  }
  return groups
    .map(({ start, end }) => text.slice(start, end))
    .flatMap((trivia) => trivia.split(/\/\*+|\*\/|\n\s*(?:\*\s*)?\n|\n[\s*/]*- /))
    .map((part) => part.replace(/^\s*(?:\/\/+|\*) ?/gm, '').replace(/`[^`]*`/g, 'CODE'))
    .map((part) => part.replace(/\s+/g, ' ').trim())
    .filter(Boolean);
}

/** Returns the titles of the tests in a source file. */
function readTitles(path: string, text: string): string[] {
  const found: string[] = [];
  const visitor = new Visitor({
    CallExpression: ({ callee, arguments: [title] }) => {
      const isTest = /^(describe|it)/.test(text.slice(callee.start, callee.end));
      if (isTest && title && title.type !== 'SpreadElement') found.push(...[textOf(title) ?? []].flat());
    },
  });
  visitor.visit(parseSync(path, text).program);
  return found;
}

/** Returns the text of a literal, or of a sum of literals. Expressions in it become `CODE`. */
function textOf(node: Expression | TemplateLiteral): string | undefined {
  if (node.type === 'Literal') return typeof node.value === 'string' ? node.value : undefined;
  if (node.type === 'TemplateLiteral') return node.quasis.map(({ value }) => value.cooked).join('CODE');
  if (node.type !== 'BinaryExpression' || node.operator !== '+') return undefined;
  const [left, right] = [textOf(node.left), textOf(node.right)];
  return left === undefined || right === undefined ? undefined : left + right;
}

/** Returns the sentences of a paragraph with more words than the limit. */
function longSentences(paragraph: string): string[] {
  return paragraph
    .split(/(?<=[.!?][”’)]*)\s+/)
    .filter((sentence) => (sentence.match(/[\p{L}\p{N}][\p{L}\p{N}’'.,:/-]*/gu) ?? []).length > longest);
}

function avoided(text: string, list = words): string[] {
  return list.flatMap(([avoid, use]) => {
    const [match] = avoid.exec(text) ?? [];
    return match === undefined ? [] : [`“${match}” in “${text.trim().slice(0, 80)}”: ${use}`];
  });
}

const read = (path: string): string => readFileSync(join(root, path), 'utf8');
const list = (pattern: string): string[] =>
  globSync(pattern, { cwd: root })
    .map((path) => path.replaceAll('\\', '/'))
    .sort();

const pages = list('{*.md,docs/**/*.md,test/fakes/*/README.md}').filter((path) => path !== 'docs/reference.md');

const others: Text[] = [
  ...list('{lib,cmd}/**/*.ts').map((path) => ({
    key: dirname(path),
    path,
    paragraphs: readLiterals(path, read(path)),
  })),
  ...list('test/golden/help/*.txt').map((path) => ({
    key: 'test/golden/help',
    path,
    paragraphs: readHelp(read(path)),
  })),
  ...['docs/reference.md'].map((path) => {
    const { paragraphs, cells } = readPage(read(path));
    return { key: path, path, paragraphs: [...paragraphs, ...cells] };
  }),
];

/** Returns the paragraphs of a help text, without its examples. */
function readHelp(text: string): string[] {
  return (text.split('\nExamples:')[0] ?? '').split('\n\n').map((part) => part.replace(/\s+/g, ' '));
}

describe('the words of the pages', () => {
  it('are plain', () => {
    const found = pages.flatMap((path) => {
      const { paragraphs, cells } = readPage(read(path));
      return [...paragraphs, ...cells].flatMap((each) => avoided(each)).map((problem) => `${path}: ${problem}`);
    });
    expect(found, found.join('\n')).to.be.empty;
  });

  it(`are in sentences of at most ${String(longest)} words`, () => {
    const found = pages.flatMap((path) =>
      readPage(read(path))
        .paragraphs.flatMap(longSentences)
        .map((sentence) => `${path}: ${sentence}`),
    );
    expect(found, found.join('\n')).to.be.empty;
  });
});

describe('the words of comments', () => {
  it('are plain, in sentences of at most 30 words', () => {
    const found = list('{lib,cmd,test,.config,.ci}/**/*.{ts,js,mjs}').flatMap((path) => {
      const paragraphs = readComments(path, read(path));
      const problems = [...paragraphs.flatMap((each) => avoided(each)), ...paragraphs.flatMap(longSentences)];
      return problems.map((problem) => `${path}: ${problem}`);
    });
    expect(found, found.join('\n')).to.be.empty;
  });
});

describe('the words of titles of tests', () => {
  it('are plain', () => {
    const found = list('test/**/*.ts').flatMap((path) =>
      readTitles(path, read(path)).flatMap((title) =>
        avoided(title, titleWords).map((problem) => `${path}: ${problem}`),
      ),
    );
    expect(found, found.join('\n')).to.be.empty;
  });
});

describe('the words of helps and messages', () => {
  const problems = new Map<string, string[]>();
  before(() => {
    for (const { key, path, paragraphs } of others) {
      // Scripts and styles of several lines, and settings of units, are not sentences.
      const isCode = (text: string): boolean => /\n.*[;{}<>$]|[;{}<>$].*\n|^[A-Z][A-Za-z]+=/ms.test(text);
      const prose = paragraphs.filter((each) => path.endsWith('.ts') && !isCode(each));
      const long = prose.flatMap(longSentences);
      const found = [
        ...paragraphs.flatMap((each) => avoided(each)),
        ...long.map((each) => `more than ${String(longest)} words: ${each}`),
      ];
      problems.set(key, [...(problems.get(key) ?? []), ...found.map((problem) => `${path}: ${problem}`)]);
    }
  });

  it('are plain, in sentences of at most 30 words', () => {
    const found = [...problems.values()].flat();
    expect(found, found.join('\n')).to.be.empty;
  });

  it('begin in lower case in errors, which follow “error:”, except for names of products', () => {
    const capital = /new PluginError\(\s*'[a-z-]+',\s*[`'](?!Quay|PostgreSQL|PowerShell)[A-Z][a-z]* .*/g;
    const found = list('{lib,cmd}/**/*.ts').flatMap((path) => read(path).match(capital) ?? []);
    expect(found, found.join('\n')).to.be.empty;
  });
});

describe('the check of words', () => {
  it('leaves code, addresses and tables of commands alone', () => {
    const page =
      'A `stick` is [here](http://x/whoever).\n\n```\nstick\n```\n\n| `whatever` | a file |\n| --- | --- |\n';
    const { paragraphs, cells } = readPage(page);
    expect([...paragraphs, ...cells].flatMap((each) => avoided(each))).to.deep.equal([]);
  });

  it('finds words in paragraphs, lists, headings and cells', () => {
    const page = '# A stick\n\nWhoever\nreads.\n\n- in vain\n\n| anew |\n';
    const { paragraphs, cells } = readPage(page);
    expect([...paragraphs, ...cells].flatMap((each) => avoided(each))).to.have.length(4);
  });

  it('finds words in comments of each kind, but not in code', () => {
    const source =
      '/** In vain, `anew`. */\nexport function f() {\n  // Anew\n  // once\n  // more.\n  f(/* whoever */); ' +
      '// Sticks.\n}';
    const found = readComments('a.ts', `${source}\nconst text = '// in vain';\n`);
    expect(found).to.deep.equal(['In vain, CODE.', 'Anew once more.', 'whoever', 'Sticks.']);
    expect(found.flatMap((each) => avoided(each))).to.have.length(5);
  });

  it('finds the titles of tests', () => {
    const source = "describe('a', () => {\n  it(`stick ${n}`, () => it.only('c', f));\n  expect('d');\n});";
    expect(readTitles('a.ts', source)).to.deep.equal(['a', 'stick CODE', 'c']);
  });

  it('finds long sentences, and literals of sources but not their imports', () => {
    const sentence = Array.from({ length: longest }, (_, index) => `w${String(index)}`).join(' ');
    expect(longSentences(`${sentence}. ${sentence} more.`)).to.deep.equal([`${sentence} more.`]);
    expect(readLiterals('a.ts', "import 'a b';\nthrow new Error(`in ${x} vain`, 'one word', 'x');")).to.deep.equal([
      'in CODE vain',
      'one word',
    ]);
  });
});
