import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { parseSync } from 'oxc-parser';
import manifest from '../package.json' with { type: 'json' };

const root = fileURLToPath(new URL('..', import.meta.url));

/** The rooms from the lowest floor up. The linter has no rule for an order. */
const rooms = [
  'lib',
  'lib/certificates',
  'lib/content',
  'lib/release',
  'lib/config',
  'lib/bundle',
  'lib/node',
  'lib/cluster',
  'lib/mirroring',
  'lib/readiness',
  'lib/update',
  'lib/drill',
  'lib/registry-host',
  'cmd',
];

/** The doors of the rooms, by name: their files. */
const doors = new Map(Object.entries(manifest.imports).map(([name, path]) => [name, path.slice(2)]));

/** The largest number of doors of a room. */
const doorLimit = 8;
/** The largest number of files in a folder. */
const fileLimit = 25;

/** The files that may import a package of others. docs/packages.md has the reasons. */
const owners: Record<string, readonly string[]> = {
  yargs: ['cmd/cli/program.ts'],
  ora: ['cmd/cli/terminal.ts'],
  chalk: ['cmd/cli/terminal.ts', 'cmd/cli/terminal.ts'],
  diff: ['cmd/cli/unifiedDiff.ts'],
  tar: ['lib/content/archive/', 'lib/release/graph/graphArchive.ts'],
  openpgp: ['lib/release/signature/'],
  semver: ['lib/release/version.ts'],
  yaml: ['lib/content/files/documents.ts', 'lib/config/manifest.ts', 'lib/config/mirrorSets.ts', 'cmd/cli/format.ts'],
  ws: ['lib/cluster/podExec.ts'],
  'smol-toml': ['lib/node/runtime/storageConfig.ts'],
  'oci-registry-client': ['lib/content/registry/', 'lib/content/oci/descriptor.ts'],
  '@kubernetes/client-node': ['lib/config/manifest.ts', 'lib/cluster/', 'lib/readiness/', 'lib/update/', 'lib/drill/'],
  '@marcbachmann/cel-js': ['lib/readiness/preflight/webhookCheck.ts'],
  '@peculiar/x509': ['lib/certificates/issuing.ts', 'lib/release/sigstore/certificateChain.ts'],
  'reflect-metadata': ['lib/certificates/issuing.ts', 'lib/release/sigstore/certificateChain.ts'],
};

/** Files of lib that pass options to other programs, or name such options in hints. */
const foreignOptions = new Set(
  `
  accessReview agentAccess agentCleanup agentObjects agentScript agentStartup agentTrust apply
  blockDevices catalogImage checkTimer clusterRestore copyImage database detect drillRegistry
  hostCommands hostStorage imageServing imageStorage images installerRelease load loginScreen media
  metricsObjects migration mirrorKeeper mirrorUnit missingUnits nodeShell operatorCheck
  osImageStreamWrite plan postgres privateMounts readiness registryRelease releaseList replacedImages
  reportWriter restart rolloutStep secrets serverSideApply shell storeRepair uninstall
  updateRequest updateService
  `.split(/\s+/),
);

const forbiddenNames = /^(utils?|helpers?|managers?|types|constants|common|misc|index)\.ts$/i;

/** An import of a path in the project, or of a package: of types only, at the start, or by `import()`. */
interface Import {
  readonly name: string;
  readonly kind: 'type' | 'static' | 'dynamic';
  /** The imported names; empty for \`import()\`. */
  readonly names: readonly string[];
}

interface Source {
  readonly path: string;
  readonly text: string;
  readonly imports: readonly Import[];
}

const sources: Source[] = globSync('{lib,cmd}/**/*.ts', { cwd: root })
  .map((path) => path.replaceAll('\\', '/'))
  .sort()
  .map((path) => {
    const text = readFileSync(join(root, path), 'utf8');
    return { path, text, imports: importsOf(path, text) };
  });

function importsOf(path: string, text: string): Import[] {
  const { staticImports, staticExports, dynamicImports } = parseSync(path, text).module;
  const resolve = (name: string): string =>
    doors.get(name) ?? (name.startsWith('.') ? join(dirname(path), name).replaceAll('\\', '/') : name);
  return [
    ...staticImports.map(({ moduleRequest, entries }): Import => ({
      name: resolve(moduleRequest.value),
      kind: entries.length > 0 && entries.every(({ isType }) => isType) ? 'type' : 'static',
      names: entries.map(({ importName }) => importName.name ?? ''),
    })),
    ...staticExports
      .flatMap(({ entries }) => entries)
      .flatMap(({ moduleRequest, isType }): Import[] =>
        moduleRequest ? [{ name: resolve(moduleRequest.value), kind: isType ? 'type' : 'static', names: [] }] : [],
      ),
    ...dynamicImports.map(({ moduleRequest: { start, end } }): Import => ({
      name: resolve(text.slice(start + 1, end - 1)),
      kind: 'dynamic',
      names: [],
    })),
  ];
}

function packageOf(name: string): string | undefined {
  const parts = name.split('/');
  return /^(node:|lib\/|cmd\/|package\.json$)/.test(name)
    ? undefined
    : parts.slice(0, name.startsWith('@') ? 2 : 1).join('/');
}

/** Returns the room of a file. */
const roomOf = (path: string): string => (/^lib\/[^/]+(?=\/)/.exec(path) ?? /^\w+/.exec(path))?.[0] ?? '';

/** Returns whether a file is the door of a folder beside it. */
const isFolderDoor = (path: string): boolean =>
  path.startsWith('lib/') && existsSync(join(root, path.slice(0, -'.ts'.length)));

const wordsOf = (text: string): string[] => text.match(/\w+/g) ?? [];

/** Returns code without its comments, for searches that must ignore comments. */
const codeOf = (text: string): string => text.replace(/\/\*.*?\*\/|^[^\S\n]*\/\/[^\n]*$/gms, '');

describe('the rooms', () => {
  it('stand on the folders and files that were agreed', function () {
    const git = spawnSync('git', ['ls-files'], { cwd: root, encoding: 'utf8' });
    // An archive of the sources has no list of its files.
    if (git.status !== 0) this.skip();
    const pages = ['CHANGELOG.md', 'CONTRIBUTING.md', 'LICENSE', 'README.md', 'SECURITY.md'];
    const own = ['cmd', 'docs', 'lib', 'package-lock.json', 'package.json', 'plugin.yaml', 'test', 'tsconfig.json'];
    const found = new Set(git.stdout.split('\n').map((path) => path.replace(/\/.*/, '')));
    expect([...found].filter((name) => !/^\.|^$/.test(name))).to.have.members([...pages, ...own]);
  });

  it('hold every file of lib and cmd', () => {
    expect(sources).not.to.be.empty;
    expect([...new Set(sources.map(({ path }) => roomOf(path)))]).to.have.members(rooms);
  });

  it('use lower rooms only', () => {
    const upward = sources.flatMap(({ path, imports }) =>
      imports
        .filter(({ name }) => /^(lib|cmd)\//.test(name) && rooms.indexOf(roomOf(name)) > rooms.indexOf(roomOf(path)))
        .map(({ name }) => `${path} imports ${name}`),
    );
    expect(upward).to.deep.equal([]);
  });

  it('have a few doors, each of which another room uses', () => {
    const counts = Map.groupBy(doors.values(), roomOf);
    expect([...counts].filter(([, files]) => files.length > doorLimit).map(([room]) => room)).to.deep.equal([]);
    const used = new Set(
      sources.flatMap(({ path, imports }) =>
        imports.map(({ name }) => name).filter((name) => roomOf(name) !== roomOf(path)),
      ),
    );
    expect([...doors.values()].filter((path) => !used.has(path))).to.deep.equal([]);
  });

  it('have a README with the purpose of each door', () => {
    const unnamed = [...doors].filter(([name, path]) => {
      return !readFileSync(join(root, roomOf(path), 'README.md'), 'utf8').includes(`| \`${name}\``);
    });
    expect(unnamed.map(([name]) => name)).to.deep.equal([]);
  });

  it('export only symbols that another room uses', () => {
    const users = new Map<string, Set<string>>();
    for (const { path, text, imports } of sources)
      for (const { name, kind, names } of imports)
        if (roomOf(name) !== roomOf(path))
          users.set(name, (users.get(name) ?? new Set()).union(new Set(kind === 'dynamic' ? wordsOf(text) : names)));
    const unused = sources
      .filter(({ path }) => isFolderDoor(path))
      .flatMap(({ path, text }) => {
        const exported = parseSync(path, text).module.staticExports.flatMap(({ entries }) => entries);
        const names = exported.map(({ exportName }) => exportName.name ?? '');
        return names.filter((name) => users.get(path)?.has(name) !== true).map((name) => `${path} ${name}`);
      });
    expect(unused).to.deep.equal([]);
  });

  it('are folders that can be seen at once', () => {
    const paths = globSync('{lib,cmd,test,.config}/**/*.{ts,js}', { cwd: root });
    const counts = Map.groupBy(paths, (path) => dirname(path));
    const large = [...counts].filter(([, files]) => files.length > fileLimit).map(([folder]) => folder);
    expect(large).to.deep.equal([]);
  });

  it('import nothing of the project from outside lib and cmd, except the version', () => {
    const outside = sources.flatMap(({ path, imports }) =>
      imports.filter(({ name }) => /^(\.\.|test\/|\.c)/.test(name)).map(({ name }) => `${path} imports ${name}`),
    );
    expect(outside).to.deep.equal([]);
  });

  it('give each package of others to a few files', () => {
    const strays = sources.flatMap(({ path, imports }) =>
      imports
        .map(({ name }) => packageOf(name))
        .filter((name) => name !== undefined)
        .filter((name) => owners[name]?.some((owner) => path.startsWith(owner)) !== true)
        .map((name) => `${path} imports ${name}`),
    );
    expect(strays).to.deep.equal([]);
  });

  it('load the Kubernetes client in one place, and elsewhere import its types only', () => {
    const strays = sources
      .filter(({ imports }) => imports.some(({ name, kind }) => name.startsWith('@kubernetes/') && kind !== 'type'))
      .map(({ path }) => path);
    expect(strays).to.deep.equal(['lib/cluster/connection/session.ts']);
  });

  it('call no mkdir that never ends below /proc: makeFolders ends', () => {
    const endless = sources.filter(({ text }) => /\bmkdir\(.*\brecursive\b/.test(codeOf(text)));
    expect(endless.filter(({ path }) => path.startsWith('lib/')).map(({ path }) => path)).to.deep.equal([]);
  });

  it('have a library that names no option of a command: errors name settings', () => {
    const literals = /'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g;
    const named = sources
      .filter(({ path }) => path.startsWith('lib/') && !foreignOptions.has(basename(path, '.ts')))
      .flatMap(({ path, text }) =>
        (codeOf(text).match(literals) ?? [])
          .filter((word) => /(?<![\w-])--[a-z]/.test(word))
          .map((word) => `${path}: ${word}`),
      );
    expect(named, named.join('\n')).to.deep.equal([]);
  });

  it('read fields by their path, and cast no value past its type', () => {
    const nested = sources.filter(({ text }) => codeOf(text).includes('fieldsOf(fieldsOf('));
    expect(nested.map(({ path }) => path)).to.deep.equal([]);
    const paths = globSync('{lib,cmd,test,.config}/**/*.{ts,js}', { cwd: root });
    const casts = paths.filter((path) => /\bas unknown\s+as\b/.test(readFileSync(join(root, path), 'utf8')));
    expect(casts).to.deep.equal([]);
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

  it('export one meaning by one name', () => {
    const exported = /^export (?:async )?(?:function\*?|class|const|interface|type) (\w+)/gm;
    const files = Map.groupBy(
      sources.flatMap(({ path, text }) => [...text.matchAll(exported)].map(([, name = '']) => ({ path, name }))),
      ({ name }) => name,
    );
    // Every file of a command exports it as `command`.
    files.delete('command');
    const shared = [...files].filter(([, places]) => places.length > 1);
    expect(shared.map(([name, places]) => `${name}: ${places.map(({ path }) => path).join(', ')}`)).to.deep.equal([]);
  });

  it('have no file that is a drawer for odds and ends', () => {
    const drawers = sources.map(({ path }) => path).filter((path) => forbiddenNames.test(basename(path)));
    expect(drawers).to.deep.equal([]);
  });
});

describe('a command', () => {
  it('is loaded by one import(), which is not in its own file', () => {
    const loaders = sources.filter(({ path, imports }) =>
      imports.some(({ name, kind }) => path.startsWith('cmd/') && kind === 'dynamic' && /^(lib|cmd)\//.test(name)),
    );
    expect(loaders.map(({ path }) => path)).to.deep.equal([
      'cmd/cli/commands/commonCommands.ts',
      'cmd/cli/completion/suggestions.ts',
      'cmd/cli/program.ts',
      'cmd/execute.ts',
      ...['mirror-registry', 'release-mirror-config', 'upgrade-bundle'].map((program) => `cmd/${program}/commands.ts`),
    ]);
  });
});

describe('the help of a program', () => {
  it('loads nothing of the library that takes time', () => {
    const loaded = new Set<string>();
    const load = (path: string): void => {
      const source = sources.find((each) => each.path === path);
      if (!source || loaded.has(path)) return;
      loaded.add(path);
      for (const { name, kind } of source.imports) if (kind === 'static') load(name);
    };
    for (const program of ['upgrade_bundle', 'mirror_registry']) load(`cmd/oc-adm_${program}.ts`);
    const library = [...loaded].filter((path) => path.startsWith('lib/'));
    expect(library.length).to.be.greaterThan(0);
    expect(library.filter((path) => !/^lib\/(context|errors|text|waiting)\.ts$/.test(path))).to.deep.equal([]);
  });
});
