import './clientIndex.ts';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// Mocha loads this first, so that tests do not depend on the user who runs them, or on tests of other processes. The
// programs of this process have their own home, image store and podman files, and default settings.

const foreign =
  /^(?:KUBE|REGISTRY_AUTH|DOCKER_|CONTAINERS?_|STORAGE_|BUILDAH_|XDG_|LC_|GIT_|GNUPG|CURL_|TAR_|LESS|PAGER|MAN|GROFF|PG)|^(?:LANG|LANGUAGE|TZ|COLUMNS|LINES|CLICOLOR\w*|NO_COLOR|FORCE_COLOR|GREP_\w+|GZIP|XZ_OPT|BASH_ENV|ENV|ZDOTDIR|TMUX\w*|POSIXLY_CORRECT|SOURCE_DATE_EPOCH)$|_PROXY$/i;
for (const name of Object.keys(process.env)) if (foreign.test(name)) Reflect.deleteProperty(process.env, name);

const folder = mkdtempSync(join(tmpdir(), 'test-user-'));
process.once('exit', () => {
  rmSync(folder, { recursive: true, force: true });
});
const at = (name: string): string => join(folder, name);
for (const name of ['home', 'run', 'networks']) mkdirSync(at(name), { mode: 0o700 });
writeFileSync(
  at('containers.conf'),
  `[engine]\ntmp_dir = "${at('podman')}"\nlock_type = "file"\n[network]\nnetwork_config_dir = "${at('networks')}"\n`,
);
writeFileSync(
  at('storage.conf'),
  `[storage]\ndriver = "overlay"\ngraphroot = "${at('images')}"\nrunroot = "${at('run/images')}"\n` +
    '[storage.options.overlay]\nskip_mount_home = "true"\n',
);
process.umask(0o022);

/** The variables of the user that all programs get. */
export const userEnvironment = {
  XDG_RUNTIME_DIR: at('run'),
  CONTAINERS_CONF: at('containers.conf'),
  CONTAINERS_STORAGE_CONF: at('storage.conf'),
};
Object.assign(process.env, { HOME: at('home'), LANG: 'C.UTF-8', ...userEnvironment });

const executables = process.env['TEST_EXECUTABLES'];
if (executables !== undefined) {
  // Worker threads start in half the time from the code of the executables.
  const workers = JSON.parse(readFileSync(join(executables, '../workers.json'), 'utf8')) as Record<string, string>;
  for (const [name, literal] of Object.entries(workers)) Reflect.set(globalThis, name, JSON.parse(literal));
}
