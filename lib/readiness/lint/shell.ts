/** Substitutions and subshells that are nested deeper are read as plain text. */
const deepest = 50;

/**
 * Returns the simple commands of a shell text, each as its words without quotes. Includes the commands in subshells and
 * in substitutions, which the words show as `$(…)`. Comments and targets of redirections are left out. Never throws.
 */
export function listCommands(text: string): string[][] {
  const commands: string[][] = [];
  scan({ text, lastQuote: text.lastIndexOf("'"), lastBrace: text.lastIndexOf('}'), commands }, 0, undefined, 0);
  return commands;
}

interface Reading {
  readonly text: string;
  /** The positions of the last `'` and `}`: without them each unclosed one would be searched to the end of the text. */
  readonly lastQuote: number;
  readonly lastBrace: number;
  readonly commands: string[][];
}

/** Reads to the end of the text, or to the character that ends a nested part. Returns the position of that. */
function scan(reading: Reading, start: number, end: string | undefined, depth: number): number {
  const { text, lastQuote, lastBrace, commands } = reading;
  let words: string[] = [];
  let word: string | undefined;
  let isTarget = false;
  const endWord = (): void => {
    if (word !== undefined && !isTarget) words.push(word);
    if (word !== undefined) isTarget = false;
    word = undefined;
  };
  const endCommand = (): void => {
    endWord();
    isTarget = false;
    if (words.length > 0) commands.push(words);
    words = [];
  };
  const add = (part: string): void => {
    word = (word ?? '') + part;
  };
  let at = start;
  for (; at < text.length; at += 1) {
    const char = text.charAt(at);
    const next = text.charAt(at + 1);
    if (char === end) break;
    if (char === '\\') {
      if (next !== '\n') add(next);
      at += 1;
    } else if (char === "'" && at < lastQuote) {
      const close = text.indexOf("'", at + 1);
      add(text.slice(at + 1, close));
      at = close;
    } else if (char === '"') {
      const [content, close] = readQuoted(reading, at + 1, depth);
      add(content);
      at = close;
    } else if (char === '`' || (char === '$' && next === '(')) {
      at = readSubstitution(reading, at, depth);
      add('$(…)');
    } else if (char === '$' && next === '{' && at < lastBrace) {
      const close = text.indexOf('}', at);
      add(text.slice(at, close + 1));
      at = close;
    } else if (char === '(' && depth < deepest) {
      endCommand();
      at = scan(reading, at + 1, ')', depth + 1);
      endCommand();
    } else if (/[\n;&|()]/.test(char)) {
      endCommand();
    } else if (char === '#' && word === undefined) {
      const line = text.indexOf('\n', at);
      at = (line < 0 ? text.length : line) - 1;
    } else if (char === '<' || char === '>') {
      if (/^\d$/.test(word ?? '')) word = undefined;
      endWord();
      while (/[<>&|-]/.test(text.charAt(at + 1))) at += 1;
      isTarget = true;
    } else if (/\s/.test(char)) {
      endWord();
    } else {
      add(char);
    }
  }
  endCommand();
  return at;
}

/** Reads what is in double quotes. Returns it, and the position of the closing quote. */
function readQuoted(reading: Reading, start: number, depth: number): [content: string, end: number] {
  const { text } = reading;
  let content = '';
  let at = start;
  for (; at < text.length && text.charAt(at) !== '"'; at += 1) {
    const [char, next] = [text.charAt(at), text.charAt(at + 1)];
    if (char === '\\') {
      content += next === '\n' ? '' : next;
      at += 1;
    } else if (char === '`' || (char === '$' && next === '(')) {
      at = readSubstitution(reading, at, depth);
      content += '$(…)';
    } else {
      content += char;
    }
  }
  return [content, at];
}

/** Reads `$(…)` or `` `…` ``. Returns the position of its last character. */
function readSubstitution(reading: Reading, at: number, depth: number): number {
  if (depth >= deepest) return at;
  const isOld = reading.text.charAt(at) === '`';
  return scan(reading, at + (isOld ? 1 : 2), isOld ? '`' : ')', depth + 1);
}

const unitSection = /^\[(?:Unit|Service|Container|Install|Kube|Image|Build|Pod|Volume|Artifact)\]\s*$/m;
/** Files that no shell reads. */
const otherFormat = /\.(?:md|txt|html?|css|js|json|ya?ml|toml|py|lua|go|conf|cfg|ini|rules|pem|crt|key|service\.d)$/i;

/** Returns the commands of a script or a systemd unit, by its text and name; none for a text of another format. */
export function commandsIn(text: string, name: string): string[][] {
  if (unitSection.test(text)) return listUnitCommands(text);
  const [, interpreter] = /^#!\s*(.*)/.exec(text) ?? [];
  if (interpreter !== undefined) return /\b(?:ba|da|k|z)?sh\b/.test(interpreter) ? listCommands(text) : [];
  return otherFormat.test(name) ? [] : listCommands(text);
}

/** The `Exec…=` lines of a unit, and the commands of podman that Quadlet makes of its files (podman-systemd.unit). */
function listUnitCommands(text: string): string[][] {
  const joined = text.replace(/^\s*[#;].*$/gm, '').replace(/\\\n\s*/g, ' ');
  const valueOf = (key: string): string => new RegExp(`^${key}=(.*)$`, 'm').exec(joined)?.[1]?.trim() ?? '';
  const has = (section: string): boolean => new RegExp(`^\\[${section}\\]\\s*$`, 'm').test(joined);
  const [image, pull, policy] = [valueOf('Image'), valueOf('Pull'), valueOf('Policy')];
  const options = [...joined.matchAll(/^PodmanArgs=(.*)$/gm)].flatMap(([, line = '']) => listCommands(line).flat());
  const [pulls, policies] = [pull === '' ? [] : [`--pull=${pull}`], policy === '' ? [] : [`--policy=${policy}`]];
  return [
    ...[...joined.matchAll(/^Exec\w+=[-@:+!|]*(.*)$/gm)].flatMap(([, line = '']) => listCommands(line)),
    ...(has('Image') ? [['podman', 'image', 'pull', ...policies, ...options, image]] : []),
    ...(has('Artifact') ? [['podman', 'artifact', 'pull', ...options, valueOf('Artifact')]] : []),
    ...(has('Build') ? [['podman', 'build', ...pulls, ...options]] : []),
    ...(has('Container') ? [['podman', 'run', ...pulls, ...options, image]] : []),
    ...(valueOf('AutoUpdate') === 'registry' ? [['podman', 'auto-update', image]] : []),
  ];
}
