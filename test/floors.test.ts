import { spawnSync } from 'node:child_process';
import { globSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { parseSync } from 'oxc-parser';

const root = fileURLToPath(new URL('..', import.meta.url));

/**
 * The folders of the project from the lowest floor up, each with its front doors. A file imports from its own folder
 * and from folders above it in this list. From another folder below `lib`, it imports only front doors. Linters have
 * rules for pairs of folders, which would be 1,900 here, but none for an order.
 */
const folders: readonly (readonly [folder: string, doors: string])[] = [
  ['lib', 'byteSize context errors failures fields lines shellWord unifiedDiff urlPasswords waiting workerThread'],
  ['lib/certificates', 'issuing nameConstraints'],
  ['lib/content/oci', 'attachment descriptor digest reference syntax'],
  [
    'lib/content/files',
    'atomicWrite disk documents fileContent fileRange lock openedFolder partials process regularFile rootFolder smallFile',
  ],
  [
    'lib/content/http',
    'certificates connections fetchFile idleTimeout listener networkErrors preSharedKey proxy redirect requestLimiter responseBody retry',
  ],
  [
    'lib/content/store',
    'derivedImage directory directoryNames directoryRemoval imageGraph ociLayout overlay repositories store',
  ],
  [
    'lib/content/archive',
    'archive archiveWriter digestThread layer layerReader sameBytes tarHeader tarLayout tarStream unfinished volumeDigests volumes writeTurn',
  ],
  ['lib/content/store/location.ts', 'location'],
  ['lib/content/server', 'pageServer server'],
  ['lib/content/registry/auth', 'credentials'],
  ['lib/content/registry', 'mirrors registries relay transport'],
  ['lib/content/copy', 'copy copyFailure keepAttachments releaseOrder tally'],
  ['lib/release/signature', 'checksums encryption keyring signature trust'],
  ['lib/release/sigstore', 'envelope imagePolicy policyKey policyKeys releaseCheck'],
  [
    'lib/release',
    'adminGates featureGates load manifestFilter osImageStreamObject osImageStreams payload payloadPolicies provenance release version',
  ],
  ['lib/release/graph', 'archivedPath channels graph graphData updateGraph updatePath'],
  ['lib/release/catalog', 'catalogImage selection'],
  [
    'lib/config',
    'catalogSource certificateAuthority manifest manifestFile mirrorSets objects releaseManifests signatures siteReport siteText siteTypes updateReport updateService',
  ],
  [
    'lib/bundle',
    'bundle bundledConfig configCheck deltaBase entryKind extraImages identity images metadata metadataFacts open openTar originalNames problem sidecars signatureCheck signatureFolder signedBundle',
  ],
  ['lib/bundle/verify', 'receipt scan updatePlan verify walk'],
  ['lib/bundle/inspect', 'inspect inventory release'],
  [
    'lib/bundle/create',
    'artifacts base catalogs contents create layout localOrigin origin plannedReleases releaseSource request siteCheck writeBundle',
  ],
  ['lib/bundle/diff', 'diff'],
  ['lib/bundle/deliver', 'push serve'],
  ['lib/node/machine', 'clock host hostCommands hostFiles hostFolder loginScreen nodeSignal paths programs'],
  ['lib/node', 'baseBlobs clusterBackup contentCheck remoteBundle remoteServer replica transfer'],
  [
    'lib/node/media',
    'blockDevices deviceEvents deviceWriter hungDevices media medium privateMounts reportRegion reportWriter',
  ],
  ['lib/node/runtime', 'drillRegistry drillUnit mirror pins pullRecords toml'],
  ['lib/node/images', 'diskFloor hostStorage imageStore layerCheck load loadPlan storeRepair'],
  ['lib/cluster/connection', 'kubeconfig'],
  [
    'lib/cluster',
    'acceptedKinds accessReview apply client clusterVersion clusterView compatibility discovery finding ignoredFindings imageStream labelSelector lease manifestFolder platformStops podExec refusals serverSideApply servedObjects storedObject',
  ],
  ['lib/readiness/lint', 'baseline container embedded image lint lintFinding lintResult manifestSource rule rules'],
  [
    'lib/mirroring',
    'clusterConfig configFiles configuration destination filledRepositories measure mirrorGroup mirroring plan pruneGuard pushedBundle registryTrust releases request',
  ],
  ['lib/mirroring/prune', 'prune prunePlan'],
  [
    'lib/readiness/preflight',
    'acknowledgements admissionCheck agentImage drainCheck drillRecord imageRetention mirroredStreams node nodeCheck nodeDisks operatorCheck osImageStreamCheck pinnedImageSets podTemplate preflight site survey versionCheck webhookCheck',
  ],
  [
    'lib/update',
    'bundleRecord clusterRestore gatherState maintenanceWindow mirrorContent mirrorStates osImageStreamWrite redaction upgradeBundle',
  ],
  ['lib/update/report', 'fleet reportFiles reportKey'],
  ['lib/update/mirror', 'mirrorCheck mirrorInstallation mirrorServer mirrorSite mirrorUnit retainBundle'],
  ['lib/update/screen', 'screenCode'],
  ['lib/update/agent', 'agent agentServer'],
  ['lib/update/controller', 'rollout'],
  ['lib/update/install', 'agentScript agentSilence agentTrustCheck agentVersion executable install uninstall'],
  ['lib/readiness/drill', 'drill nodePool releaseNode'],
  ['lib/registry-host', 'certificatePaths installation stateFolder versions'],
  ['lib/registry-host/detect', 'detect registryState scopes'],
  ['lib/registry-host/certificates', 'certificates renewal trust'],
  ['lib/registry-host/migration', ''],
  ['lib/registry-host/releases', 'images pushedRelease registryBundle registryRelease'],
  [
    'lib/registry-host/change',
    'certificateChange checkTimer openRegistry plan rollback survey uninstall upgrade upgradeJournal',
  ],
  ['lib/registry-host/backup', 'backup restore'],
  ['cmd/cli/values', ''],
  ['cmd/cli', ''],
  ['cmd/cli/bundle', ''],
  ['cmd/cli/completion', ''],
  ['cmd/cli/commands', ''],
  ['cmd/mirror-registry', ''],
  ['cmd/release-mirror-config', ''],
  ['cmd/upgrade-bundle/create', ''],
  ['cmd/upgrade-bundle/report', ''],
  ['cmd/upgrade-bundle/fleet', ''],
  ['cmd/upgrade-bundle/drill', ''],
  ['cmd/upgrade-bundle/lint', ''],
  ['cmd/upgrade-bundle/node', ''],
  ['cmd/upgrade-bundle/inspect', ''],
  ['cmd/upgrade-bundle/shell-hook', ''],
  ['cmd/upgrade-bundle/status', ''],
  ['cmd/upgrade-bundle', ''],
  ['cmd', ''],
];

/** The largest number of files in a folder. */
const fileLimit = 25;

/** The files that may import an outside package, and the reason. */
const owners: Record<string, { files: RegExp; reason: string }> = {
  yargs: { files: /^cmd\/cli\/program\.ts$/, reason: 'commands are plain records' },
  ora: { files: /^cmd\/cli\/terminal\.ts$/, reason: 'one place draws' },
  chalk: { files: /^cmd\/cli\/(colors|terminal)\.ts$/, reason: 'one place knows colours' },
  tar: {
    files: /^lib\/(content\/archive\/(archive|tar|layerReader)\w*|release\/graph\/graphArchive)\.ts$/,
    reason: 'its Header for archives by hand, its reader for layers of the release payload and for graph data',
  },
  openpgp: {
    files: /^lib\/release\/signature\/(encryption|keyring|signature|signingKey)\.ts$/,
    reason: 'signatures are checked in one place',
  },
  diff: {
    files: /^lib\/unifiedDiff\.ts$/,
    reason: 'differences are formatted in one place',
  },
  '@marcbachmann/cel-js': {
    files: /^lib\/readiness\/preflight\/webhookCheck\.ts$/,
    reason: 'conditions of webhooks are expressions of CEL',
  },
  semver: { files: /^lib\/release\/version\.ts$/, reason: 'versions are compared in one place' },
  yaml: {
    files: /^(lib\/(content\/files\/documents|config\/manifest|config\/mirrorSets)|cmd\/cli\/format)\.ts$/,
    reason: 'documents of others are read within limits by one file; manifests, mirror sets and -o yaml are written',
  },
  '@kubernetes/client-node': {
    files: /^lib\/(cluster|readiness|update)\//,
    reason: 'types of objects; a second to load, so that only clientPackage loads it, for auth-providers and SOCKS',
  },
  'smol-toml': {
    files: /^lib\/node\/runtime\/toml\.ts$/,
    reason: 'configurations of container runtimes are read in one place',
  },
  ws: {
    files: /^lib\/cluster\/podExec\.ts$/,
    reason: 'commands in pods; Node’s own takes neither agents nor headers',
  },
  '@peculiar/x509': {
    files: /^lib\/(?:certificates\/issuing|release\/sigstore\/certificate)\.ts$/,
    reason: 'certificates are issued in one place',
  },
  'reflect-metadata': {
    files: /^lib\/(?:certificates\/issuing|release\/sigstore\/certificate)\.ts$/,
    reason: '@peculiar/x509 does not load without it',
  },
  'oci-registry-client': {
    files:
      /^lib\/content\/(registry\/(registry|transport|refusals|auth\/tokens|auth\/challenges)|oci\/descriptor)\.ts$/,
    reason: 'the vocabulary of the protocol',
  },
};

/** Files of lib that pass options to other programs, or name such options in hints. */
const foreignOptions: readonly (readonly [files: RegExp, program: string])[] = [
  [
    /^lib\/node\/(images\/(copyImage|load|storeRepair)|media\/(deviceEvents|devicePrograms|privateMounts|reportWriter))\.ts$/,
    'skopeo, podman, udev, mount, lsblk, blkid, blockdev, losetup',
  ],
  [/^lib\/update\/mirror\/mirrorUnit\.ts$/, 'mirror-serve on the node'],
  [/^lib\/update\/(mirror\/mirrorKeeper|agent\/imageServing)\.ts$/, 'systemctl'],
  [/^lib\/update\/osImageStreamWrite\.ts$/, 'machine-config-controller'],
  [/^lib\/node\/machine\/clock\.ts$/, 'timedatectl'],
  [/^lib\/update\/install\/reportAccess\.ts$/, 'agent and controller on the node'],
  [/^lib\/node\/machine\/hostCommands\.ts$/, 'systemctl, cp, rm, chown, setpriv'],
  [
    /^lib\/(readiness\/drill\/nodeShell|node\/runtime\/drillUnit)\.ts$/,
    'systemd-run, systemctl, and drill-node on the node',
  ],
  [/^lib\/registry-host\/backup\/imageStorage\.ts$/, 'podman, find, tar'],
  [
    /^lib\/registry-host\/releases\/(images|installerImages|installerRelease|contentRelease|releaseList)\.ts$/,
    'podman, skopeo',
  ],
  [/^lib\/(node\/images\/hostStorage|registry-host\/(releases\/missingUnits|change\/replacedImages))\.ts$/, 'podman'],
  [
    /^lib\/registry-host\/change\/(checkTimer|uninstall|database|databaseKind|migration|postgres|restart|plan|readiness|secrets)\.ts$|^lib\/unifiedDiff\.ts$/,
    'podman, systemctl, pg_dump, psql',
  ],
  [
    /^lib\/registry-host\/detect\/detect\.ts$/,
    'the option that says where Quay is, as the place of a setting in -o json',
  ],
  [
    /^lib\/(config\/updateService|cluster\/(accessReview|apply|serverSideApply)|readiness\/preflight\/operatorCheck)\.ts$/,
    'oc',
  ],
  [/^lib\/release\/catalog\/catalogImage\.ts$/, 'opm'],
  [/^lib\/readiness\/lint\/(script|rules)\.ts$/, 'podman and the programs that scripts run'],
  [/^lib\/update\/install\/(executableUpload|agentScript|agentCleanup|strandedImages)\.ts$/, 'the shell of a node'],
  [/^lib\/node\/machine\/loginScreen\.ts$/, 'agetty'],
  [/^lib\/update\/install\/(agentObjects|agentTrust|metricsObjects)\.ts$/, 'the agent: the arguments of its container'],
  [/^lib\/update\/(clusterRestore|controller\/(riskCheck|rolloutStep))\.ts$/, 'oc'],
];

const forbiddenNames = /^(utils?|helpers?|managers?|types|constants|common|misc|index)\.ts$/i;

/** An import of a path in the project, or of a package: of types only, at the start, or by `import()`. */
interface Import {
  readonly name: string;
  readonly kind: 'type' | 'static' | 'dynamic';
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
    name.startsWith('.') ? join(dirname(path), name).replaceAll('\\', '/') : name;
  return [
    ...staticImports.map(({ moduleRequest, entries }): Import => ({
      name: resolve(moduleRequest.value),
      kind: entries.length > 0 && entries.every(({ isType }) => isType) ? 'type' : 'static',
    })),
    ...staticExports
      .flatMap(({ entries }) => entries)
      .flatMap(({ moduleRequest, isType }): Import[] =>
        moduleRequest ? [{ name: resolve(moduleRequest.value), kind: isType ? 'type' : 'static' }] : [],
      ),
    ...dynamicImports.map(({ moduleRequest: { start, end } }): Import => ({
      name: resolve(text.slice(start + 1, end - 1)),
      kind: 'dynamic',
    })),
  ];
}

function packageOf(name: string): string | undefined {
  const parts = name.split('/');
  return /^(node:|lib\/|cmd\/|package\.json$)/.test(name)
    ? undefined
    : parts.slice(0, name.startsWith('@') ? 2 : 1).join('/');
}

/** Returns the folder of a file, as in `folders`. */
const folderOf = (path: string): string => (path === 'lib/content/store/location.ts' ? path : dirname(path));

const floorOf = (path: string): number => folders.findIndex(([folder]) => folder === folderOf(path));

/** Returns the folder of a file whose doors others use: directly below `lib` or one of its two rooms of rooms; for all of `cmd`, `cmd`. */
const familyOf = (path: string): string =>
  path.startsWith('cmd/') ? 'cmd' : (/^lib\/(?:(?:content|readiness)\/)?[^/]*/.exec(folderOf(path))?.[0] ?? path);

function isDoor(path: string): boolean {
  return folders[floorOf(path)]?.[1].split(' ').includes(basename(path, '.ts')) ?? false;
}

/** Returns code without its comments, for searches that must ignore comments. */
const codeOf = (text: string): string => text.replace(/\/\*.*?\*\/|^[^\S\n]*\/\/[^\n]*$/gms, '');

describe('the floors', () => {
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
    expect(sources.filter(({ path }) => floorOf(path) < 0).map(({ path }) => path)).to.deep.equal([]);
  });

  it('are imported downward only', () => {
    const upward = sources.flatMap(({ path, imports }) =>
      imports.filter(({ name }) => floorOf(name) > floorOf(path)).map(({ name }) => `${path} imports ${name}`),
    );
    expect(upward).to.deep.equal([]);
  });

  it('are imported through their front doors', () => {
    const past = sources.flatMap(({ path, imports }) =>
      imports
        .filter(({ name }) => /^(lib|cmd)\//.test(name) && familyOf(name) !== familyOf(path) && !isDoor(name))
        .map(({ name }) => `${path} imports ${name}, which is no door of ${folderOf(name)}`),
    );
    expect(past).to.deep.equal([]);
  });

  it('have no door that leads nowhere', () => {
    const used = new Set(
      sources.flatMap(({ path, imports }) =>
        imports.map(({ name }) => name).filter((name) => familyOf(name) !== familyOf(path)),
      ),
    );
    const doors = folders.flatMap(([folder, names]) =>
      names
        .split(' ')
        .filter((name) => name !== '')
        .map((name) => (folder.endsWith('.ts') ? folder : `${folder}/${name}.ts`)),
    );
    expect(doors.filter((path) => !used.has(path))).to.deep.equal([]);
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

  it('give each outside package to one owner', () => {
    const strays = sources.flatMap(({ path, imports }) =>
      imports
        .map(({ name }) => packageOf(name))
        .filter((name) => name !== undefined)
        .filter((name) => !owners[name]?.files.test(path))
        .map((name) => `${path} imports ${name}, which is for ${String(owners[name]?.files ?? 'nobody yet')}`),
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
      .filter(({ path }) => path.startsWith('lib/') && !foreignOptions.some(([files]) => files.test(path)))
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
      'cmd/cli/commonCommands.ts',
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
    expect(
      library.filter(
        (path) => !/^lib\/(byteSize|context|errors|failures|lines|shellWord|urlPasswords|waiting)\.ts$/.test(path),
      ),
    ).to.deep.equal([]);
  });
});
