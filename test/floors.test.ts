import { globSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';

const root = fileURLToPath(new URL('..', import.meta.url));

/** The floors from the lowest up: a file imports from its own floor and from those below. */
const floors = [
  /^lib\/(context|errors|shellWord)\.ts$/,
  /^lib\/oci\//,
  /^lib\/store\//,
  /^lib\/copy\w*\.ts$/,
  /^lib\/release\//,
  /^lib\/config\//,
  /^lib\/bundle\//,
  /^lib\/node\//,
  /^lib\/cluster\//,
  /^lib\/host\//,
  /^cmd\//,
];

/** Who imports an outside package, and why only they. */
const owners: Record<string, { files: RegExp; reason: string }> = {
  yargs: { files: /^cmd\/program\.ts$/, reason: 'commands are plain records' },
  ora: { files: /^cmd\/terminal\.ts$/, reason: 'one place draws' },
  chalk: { files: /^cmd\/terminal\.ts$/, reason: 'one place knows colours' },
  tar: {
    files: /^lib\/(store\/(archive|tar)\w*|bundle\/layout|release\/(release|payload|graphArchive))\.ts$/,
    reason: 'its Header for archives by hand, its reader for layers of the release payload and for graph data',
  },
  openpgp: {
    files: /^lib\/release\/(keyring|signature|signingKey)\.ts$/,
    reason: 'signatures are checked in one place',
  },
  semver: { files: /^lib\/release\/version\.ts$/, reason: 'versions are compared in one place' },
  yaml: {
    files:
      /^lib\/(store\/mirrors|release\/documents|config\/manifest|config\/mirrorSets|host\/configuration)\.ts$|^cmd\/format\.ts$/,
    reason:
      'documents of others are read within limits by one file; mirror sets, manifests, Quay’s configuration; and -o yaml',
  },
  '@kubernetes/client-node': {
    files: /^lib\/cluster\/session\.ts$/,
    reason: 'a second to load: only where a cluster is talked to, for its authentication, TLS and SOCKS',
  },
  'smol-toml': { files: /^lib\/node\/toml\.ts$/, reason: 'configurations of container runtimes are read in one place' },
  ws: { files: /^lib\/cluster\/podExec\.ts$/, reason: 'commands in pods; Node’s own takes neither agents nor headers' },
  '@peculiar/x509': { files: /^lib\/host\/issuing\.ts$/, reason: 'certificates are issued in one place' },
  'reflect-metadata': { files: /^lib\/host\/issuing\.ts$/, reason: '@peculiar/x509 does not load without it' },
  'oci-registry-client': {
    files: /^lib\/(store\/(registry|transport|tokens|challenges|refusals)|oci\/descriptor)\.ts$/,
    reason: 'the vocabulary of the protocol',
  },
};

/** What lib is given by its caller, and therefore never takes for itself. */
const forbiddenInLib: readonly (readonly [pattern: RegExp, what: string])[] = [
  [/\bconsole\s*\./, 'prints'],
  [/\bprocess\s*\.\s*(stdout|stderr|stdin)\b/, 'uses the standard streams'],
  [/\bprocess\s*\.\s*(argv|env)\b/, 'reads argv or the environment'],
  [/\bprocess\s*\.\s*(exit|exitCode|abort|kill)\b/, 'ends the process'],
  [
    /\bimport\s*\{[^}]*\b(argv|env|exit|stdout|stderr|stdin)\b[^}]*\}\s*from\s*'node:process'/,
    'takes parts of process',
  ],
];

const forbiddenNames = /^(utils?|helpers?|managers?|types|constants|common|misc|index)\.ts$/i;

interface Source {
  readonly path: string;
  readonly text: string;
  /** What it imports: paths inside the project, or package names. */
  readonly imports: readonly string[];
}

const sources: Source[] = globSync('{lib,cmd}/**/*.ts', { cwd: root })
  .map((path) => path.replaceAll('\\', '/'))
  .sort()
  .map((path) => {
    const text = readFileSync(join(root, path), 'utf8');
    return { path, text, imports: importsOf(path, text) };
  });

function importsOf(path: string, text: string): string[] {
  const statement =
    /(?:^|\n)\s*(?:import|export)\s(?:[^;'"]*?\sfrom\s)?['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]/g;
  return [...text.matchAll(statement)]
    .map((match) => match[1] ?? match[2] ?? '')
    .map((name) => (name.startsWith('.') ? join(dirname(path), name).replaceAll('\\', '/') : name));
}

function packageOf(name: string): string | undefined {
  const parts = name.split('/');
  return /^(node:|lib\/|cmd\/|package\.json$)/.test(name)
    ? undefined
    : parts.slice(0, name.startsWith('@') ? 2 : 1).join('/');
}

const floorOf = (path: string): number => floors.findIndex((floor) => floor.test(path));

/** Code without its comments, for searches that comments must not answer. */
const codeOf = (text: string): string => text.replace(/\/\*.*?\*\/|^\s*\/\/.*$/gms, '');

describe('the floors', () => {
  it('hold every file of lib and cmd', () => {
    expect(sources).not.to.be.empty;
    expect(sources.filter(({ path }) => floorOf(path) < 0).map(({ path }) => path)).to.deep.equal([]);
  });

  it('are imported downward only', () => {
    const upward = sources.flatMap(({ path, imports }) =>
      imports.filter((name) => floorOf(name) > floorOf(path)).map((name) => `${path} imports ${name}`),
    );
    expect(upward).to.deep.equal([]);
  });

  it('import nothing of the project from outside lib and cmd, but for the version', () => {
    const outside = sources.flatMap(({ path, imports }) =>
      imports.filter((name) => /^(\.\.|test\/|\.c)/.test(name)).map((name) => `${path} imports ${name}`),
    );
    expect(outside).to.deep.equal([]);
  });

  it('give each outside package to one owner', () => {
    const strays = sources.flatMap(({ path, imports }) =>
      imports
        .map(packageOf)
        .filter((name) => name !== undefined)
        .filter((name) => !owners[name]?.files.test(path))
        .map((name) => `${path} imports ${name}, which is for ${String(owners[name]?.files ?? 'nobody yet')}`),
    );
    expect(strays).to.deep.equal([]);
  });

  it('have a library that neither prints, exits, nor reads argv or the environment', () => {
    const found = sources
      .filter(({ path }) => path.startsWith('lib/'))
      .flatMap(({ path, text }) =>
        forbiddenInLib.filter(([pattern]) => pattern.test(codeOf(text))).map(([, what]) => `${path} ${what}`),
      );
    expect(found).to.deep.equal([]);
  });

  it('export no function, class or constant that its own file alone uses', () => {
    const users = new Map<string, number>();
    for (const path of globSync('{lib,cmd,test,.config}/**/*.{ts,js}', { cwd: root })) {
      const words = readFileSync(join(root, path), 'utf8').match(/\w+/g);
      for (const word of new Set(words)) users.set(word, (users.get(word) ?? 0) + 1);
    }
    const exported = /^export (?:async )?(?:function\*?|class|const) (\w+)/gm;
    const lonely = sources.flatMap(({ path, text }) =>
      [...text.matchAll(exported)].flatMap(([, name = '']) => (users.get(name) === 1 ? [`${path} ${name}`] : [])),
    );
    expect(lonely).to.deep.equal([]);
  });

  it('have files of at most 300 lines, none of them a drawer for odds and ends', () => {
    const tooLong = sources.filter(({ text }) => text.split('\n').length > 301).map(({ path }) => path);
    expect(tooLong).to.deep.equal([]);
    const drawers = sources.map(({ path }) => path).filter((path) => forbiddenNames.test(basename(path)));
    expect(drawers).to.deep.equal([]);
  });
});

describe('importsOf', () => {
  it('finds static, type, side-effect, re-exported and dynamic imports', () => {
    const text = [
      `import a, {\n  type B,\n} from 'pkg/sub';`,
      `import '../x.ts';`,
      `import type { C } from './y.ts';`,
      `export { d } from "@s/p";`,
      `const e = await import('lazy');`,
    ].join('\n');
    expect(importsOf('lib/oci/z.ts', text)).to.deep.equal(['pkg/sub', 'lib/x.ts', 'lib/oci/y.ts', '@s/p', 'lazy']);
  });
});
