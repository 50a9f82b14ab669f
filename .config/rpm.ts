/** Packs the files of an archive for Linux into an rpm, with rpmbuild. The same files give the same bytes. */
import { execFileSync } from 'node:child_process';
import { copyFile, mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import manifest from '../package.json' with { type: 'json' };
import { executableOf, linkNames, papers, type Platform } from './krew.ts';

/** The folders and the speed of a build. */
interface Build {
  /** The folder with the files of the archive. */
  readonly place: string;
  /** The folder for the rpm. */
  readonly folder: string;
  readonly isFast: boolean;
}

/** Returns the file name of a platform’s rpm. */
export function rpmNameOf({ cpu }: Platform): string {
  return `${manifest.name}-${manifest.version.replaceAll('-', '~')}-1.${archOf(cpu)}.rpm`;
}

/** Makes the rpm of a platform. Returns its path. Throws an Error if rpmbuild is missing or fails. */
export async function makeRpm(platform: Platform, { place, folder, isFast }: Build): Promise<string> {
  const top = join(place, 'rpm');
  const pages = (await readdir(join(place, 'man'))).sort();
  await mkdir(top);
  await writeFile(join(top, 'spec'), specOf(platform, pages));
  const definitions = {
    _topdir: top,
    _sourcedir: place,
    _build_id_links: 'none',
    _buildhost: 'localhost',
    // Files of before 1980 confuse some programs.
    use_source_date_epoch_as_buildtime: '1',
    clamp_mtime_to_source_date_epoch: '1',
    // RHEL 8 reads gzip. The executable must not be stripped, because its program would be lost.
    _binary_payload: `w${isFast ? 0 : 7}.gzdio`,
    __os_install_post: '%{nil}',
    debug_package: '%{nil}',
    // The paths of a Red Hat system, also on Debian.
    _bindir: '/usr/bin',
    _mandir: '/usr/share/man',
    _defaultlicensedir: '/usr/share/licenses',
  };
  const options = Object.entries(definitions).flatMap(([name, value]) => ['--define', `${name} ${value}`]);
  execFileSync(
    'rpmbuild',
    ['-bb', '--quiet', '--nodeps', `--target=${archOf(platform.cpu)}-linux`, ...options, join(top, 'spec')],
    {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, SOURCE_DATE_EPOCH: '315532800' },
    },
  );
  const made = join(folder, rpmNameOf(platform));
  await copyFile(join(top, 'RPMS', archOf(platform.cpu), rpmNameOf(platform)), made);
  return made;
}

/** The libraries that the executable needs are found by rpmbuild. */
function specOf(platform: Platform, pages: readonly string[]): string {
  const executable = executableOf(platform);
  return `Name: ${manifest.name}
Version: ${manifest.version.replaceAll('-', '~')}
Release: 1
Summary: Plugins of oc for OpenShift clusters that cannot reach an image registry
License: ${manifest.license}
Recommends: skopeo

%description
One executable that is three plugins of oc: adm-upgrade-bundle,
adm-release-mirror-config and adm-mirror-registry.

%install
install -D -m 0755 %{_sourcedir}/${executable} %{buildroot}%{_bindir}/${executable}
${linkNames.map((name) => `ln -s ${executable} %{buildroot}%{_bindir}/${name}`).join('\n')}
${pages.map((name) => `install -D -m 0644 %{_sourcedir}/man/${name} %{buildroot}%{_mandir}/man1/${name}`).join('\n')}
${papers.map((name) => `install -D -m 0644 %{_sourcedir}/${name} %{buildroot}%{_defaultlicensedir}/%{name}/${name}`).join('\n')}

%files
%{_bindir}/${executable}
${linkNames.map((name) => `%{_bindir}/${name}`).join('\n')}
${pages.map((name) => `%{_mandir}/man1/${name}*`).join('\n')}
%license %{_defaultlicensedir}/%{name}
`;
}

function archOf(cpu: Platform['cpu']): string {
  return cpu === 'x64' ? 'x86_64' : 'aarch64';
}
