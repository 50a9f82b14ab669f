import manifest from '../../package.json' with { type: 'json' };

/** The commit that an executable was built from, which the build puts in; the sources themselves know none. */
declare const __COMMIT__: string | undefined;

/** The version of this program. */
export const version = manifest.version;

/** The commit that this executable was built from, if it was built. */
export const commit = typeof __COMMIT__ === 'string' && __COMMIT__ !== '' ? __COMMIT__ : undefined;

/** What `--version` prints: `0.1.0 (commit 0123456789ab)`, or `0.1.0` for the sources. */
export const versionText = commit === undefined ? version : `${version} (commit ${commit})`;
