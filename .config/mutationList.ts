import others from './mutationsByTest.json' with { type: 'json' };

/** A change of the sources that a test must notice. */
export interface Mutation {
  readonly file: string;
  /** The text to replace, which the file has once. */
  readonly text: string;
  readonly replacement: string;
  /** The file of tests that fails with it. */
  readonly test: string;
}

/**
 * The mutations by the file of tests that fails with them. mutationsByTest.json has more of them, in the same form: one
 * or two in each file that has a test of its own, chosen at random.
 */
const byTest: Readonly<Record<string, readonly (readonly [file: string, text: string, replacement: string])[]>> = {
  'test/mirroring/prune/prunePlan.test.ts': [
    ['lib/mirroring/prune/prunePlan.ts', "'initContainers', ", ''],
    ['lib/mirroring/prune/prunePlan.ts', ", 'ephemeralContainers']", ']'],
    ['lib/mirroring/prune/prunePlan.ts', ", 'ephemeralContainerStatuses'", ''],
    ['lib/mirroring/prune/prunePlan.ts', ', ...volumes]', ']'],
    ['lib/mirroring/prune/prunePlan.ts', '[digest, ...children].some', '[digest].some'],
    ['lib/mirroring/prune/prunePlan.ts', 'needs?.versions.has(version) === true ||', ''],
  ],
  'test/mirroring/prune/pruneGuard.test.ts': [
    [
      'lib/mirroring/prune/pruneGuard.ts',
      'await checkStillThere(copied, await checkNotPruned(storesOf(copied)));',
      'await checkStillThere(copied);\n      await checkNotPruned(storesOf(copied));',
    ],
    [
      'lib/mirroring/prune/pruneGuard.ts',
      'await checkStillThere(copied, await checkNotPruned(storesOf(copied)));',
      'await checkStillThere(copied);',
    ],
  ],
  'test/update/controller/pauses.test.ts': [
    ['lib/update/controller/pauses.ts', 'metadata: { resourceVersion, annotations:', 'metadata: { annotations:'],
  ],
  'test/update/controller/updateRequest.test.ts': [
    [
      'lib/update/controller/updateRequest.ts',
      'const patch: ClusterVersionPatch = { metadata: { resourceVersion }, spec',
      'const patch: ClusterVersionPatch = { metadata: { uid: resourceVersion === undefined ? undefined : clusterVersion.metadata.uid }, spec',
    ],
  ],
  'test/content/registry/authenticatedClient.test.ts': [
    [
      'lib/content/registry/authenticatedClient.ts',
      'reply.status !== 401 || reply.isCrossOrigin ||',
      'reply.status !== 401 ||',
    ],
  ],
  'test/content/http/connections.test.ts': [
    ['lib/content/http/connections.ts', 'socket.getPeerCertificate().valid_to', 'undefined'],
  ],
  'test/registry-host/change/restoration.test.ts': [
    [
      'lib/registry-host/change/restoration.ts',
      'if (journal.database !== undefined) await stopDatabase(commands, journal);',
      '',
    ],
  ],
  'test/registry-host/change/restart.test.ts': [
    ['lib/registry-host/change/restart.ts', '    await requireStopped(commands, unit);\n', ''],
    ['lib/registry-host/change/restart.ts', '    await requireStopped(commands, quay);\n', ''],
    ['lib/registry-host/change/restart.ts', 'isForward(journal) ? (journal.retired?.units ?? []) : []', '[]'],
    [
      'lib/registry-host/change/restart.ts',
      '(journal.retired?.units ?? []) : []',
      '[] : (journal.retired?.units ?? [])',
    ],
  ],
  'test/registry-host/installation/fileChange.test.ts': [
    ['lib/registry-host/installation/fileChange.ts', 'await file.chmod(old ? old.mode & 0o777 : mode);', ''],
    ['lib/registry-host/installation/fileChange.ts', 'await file.chown(old.uid, old.gid);', ';'],
    ['lib/registry-host/installation/fileChange.ts', 'old ? old.mode & 0o777 : mode', 'mode'],
  ],
  'test/node/media/deviceWriter.test.ts': [
    ['lib/node/media/deviceWriter.ts', '    await file.sync();\n    if (head)', '    if (head)'],
    ['lib/node/media/deviceWriter.ts', 'head, 0);\n    await file.sync();', 'head, 0);'],
    ['lib/node/media/deviceWriter.ts', 'position === 0 ? Buffer.alloc(chunk.length) : chunk', 'chunk'],
  ],
  'test/release/version.test.ts': [
    [
      'lib/release/version.ts',
      'Number(first !== null) - Number(second !== null)',
      'Number(second !== null) - Number(first !== null)',
    ],
    [
      'lib/release/version.ts',
      'if (!first || !second) return Number(first !== null) - Number(second !== null);',
      'if (!first || !second) return 0;',
    ],
    ['lib/release/version.ts', 'a.major === b.major && a.minor === b.minor', 'a.minor === b.minor'],
    ['lib/release/version.ts', 'a.major < b.major ? Infinity : 0', 'Infinity'],
    ['lib/release/version.ts', 'semver.compareBuild(a, b) === 0', 'semver.compare(a, b) === 0'],
    [
      'lib/release/version.ts',
      'semver.satisfies(version, each, { includePrerelease: true })',
      'semver.satisfies(version, each)',
    ],
    [
      'lib/release/version.ts',
      'semver.satisfies(version, rest, { includePrerelease: true })',
      'semver.satisfies(version, rest)',
    ],
    ['lib/release/version.ts', 'minor % 2 === 0 || minor === 23', 'minor % 2 === 0'],
    ['lib/release/version.ts', '5 && minor % 3 === 2', '5 && minor % 3 === 1'],
    ['lib/release/version.ts', 'from.minor < 22 ?', 'from.minor < 20 ?'],
    ['lib/release/version.ts', '(release.minor % 2) : 1 +', '0 : 1 +'],
    ['lib/release/version.ts', 'target.prerelease.length === 0 && version.prerelease.length > 0 ? 1 : 0', '0'],
    ['lib/release/version.ts', ': -version.patch', ': version.patch'],
    ['lib/release/version.ts', 'count > longestSeries', 'false'],
  ],
  'test/release/catalog/selection.test.ts': [
    ['lib/release/catalog/selection.ts', '!head || others.length > 0', '!head'],
    ['lib/release/catalog/selection.ts', '[replaces, ...skips]));\n  const [head', '[replaces]));\n  const [head'],
    ['lib/release/catalog/selection.ts', 'entry && !chain.has(entry);', 'entry;'],
    ['lib/release/catalog/selection.ts', '|| skips.includes(current)', ''],
    ['lib/release/catalog/selection.ts', '...(added.get(entry) ?? [])', ''],
  ],
  'test/content/files/lock.test.ts': [
    ['lib/content/files/lock.ts', 'if (moved === content) await rm', 'if (moved !== "") await rm'],
    ['lib/content/files/lock.ts', " || (content === '' && (await isRecent(path)))", ''],
    ['lib/content/files/lock.ts', 'count({ minimum: 1 })', 'count()'],
    ['lib/content/files/lock.ts', "if ((await lstat(path)).isSymbolicLink()) return '';", ''],
    ['lib/content/files/lock.ts', 'stats?.isFile() === true && ', 'stats && '],
  ],
  'test/content/files/rootFolder.test.ts': [
    ['lib/content/files/rootFolder.ts', '!place || folderIdentity(place.stats) === identity', 'true'],
    ['lib/content/files/rootFolder.ts', 'if (!(await isSameFilesystem(from, next))) throw', 'if (false) throw'],
    ['lib/content/files/rootFolder.ts', 'mountA !== undefined && mountA === mountB', 'true'],
    ['lib/content/files/rootFolder.ts', 'if (identity !== this.#identity)', 'if (false)'],
  ],
  'test/content/files/powerFailure.test.ts': [
    ['lib/content/files/atomicWrite.ts', '  await file.sync();\n', ''],
    ['lib/content/files/atomicWrite.ts', '  await syncFolder(dirname(to));\n', ''],
    ['lib/content/files/disk.ts', '    await folder.sync();\n', ''],
    ['lib/content/store/directory.ts', '        await file.sync();\n', ''],
    [
      'lib/content/store/directory.ts',
      "for (const folder of ['blobs', 'manifests'] as const) await syncFolder(",
      "for (const folder of ['blobs'] as const) await syncFolder(",
    ],
    ['lib/content/archive/archiveWriter.ts', '      await this.#file.datasync();\n', ''],
    ['lib/content/archive/unfinished.ts', '  await syncFolder(dirname(path));\n', ''],
    ['lib/bundle/open/sidecars.ts', '    await syncFolder(dirname(path));\n', ''],
    [
      'lib/bundle/create/writeBundle.ts',
      '    await writer.finish();\n    await placeSidecars();',
      '    await placeSidecars();\n    await writer.finish();',
    ],
    [
      'lib/bundle/create/writeBundle.ts',
      '    const placeSidecars = await prepareSidecars(path, digests, metadata, sidecars);\n    await writer.finish();',
      '    await writer.finish();\n    const placeSidecars = await prepareSidecars(path, digests, metadata, sidecars);',
    ],
  ],
};

/** The mutations. */
export const mutations: readonly Mutation[] = [...Object.entries(byTest), ...Object.entries(others)].flatMap(
  ([test, changes]) => changes.map(([file = '', text = '', replacement = '']) => ({ file, text, replacement, test })),
);
