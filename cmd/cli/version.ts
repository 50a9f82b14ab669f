import manifest from '../../package.json' with { type: 'json' };

/** The commit of a built executable, which the build defines. It is undefined in the sources. */
declare const __COMMIT__: string | undefined;

/** The version in package.json. */
export const version = manifest.version;

/** The commit of a built executable; undefined in the sources. */
export const commit = typeof __COMMIT__ === 'string' && __COMMIT__ !== '' ? __COMMIT__ : undefined;

/** The output of `--version`: `0.1.0 (commit 0123456789ab)`, or `0.1.0` in the sources. */
export const versionText = commit === undefined ? version : `${version} (commit ${commit})`;
