// Prepares a fresh clone: installs the npm packages. With the argument `peers`, also installs the
// Debian packages of the programs that tests compare ours with. Runs on Node.js 18 or newer without
// installed packages. Ends quickly if there is nothing to do.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { accessSync, constants, existsSync, statSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));

// Commands, and their Debian packages.
const peers = {
  'docker-registry': 'docker-registry',
  skopeo: 'skopeo',
  podman: 'podman',
  newuidmap: 'uidmap',
  slirp4netns: 'slirp4netns',
  openssl: 'openssl',
  gpg: 'gpg',
  groff: 'groff-base',
  bsdtar: 'libarchive-tools',
  'dh_bash-completion': 'bash-completion',
  zsh: 'zsh',
  fish: 'fish',
  tmux: 'tmux',
  readelf: 'binutils',
  rpmbuild: 'rpm',
  xfs_io: 'xfsprogs',
  'mkfs.vfat': 'dosfstools',
  'mkfs.exfat': 'exfatprogs',
  xorriso: 'xorriso',
  strace: 'strace',
  patch: 'patch',
  curl: 'curl',
  python3: 'python3',
  buildah: 'buildah',
  'systemd-analyze': 'systemd',
  udevadm: 'udev',
  agetty: 'util-linux',
  script: 'bsdutils',
  chromium: 'chromium',
  pg_ctlcluster: 'postgresql',
  'qemu-aarch64': 'qemu-user libc6-arm64-cross libstdc++6-arm64-cross',
};

// Both take half a minute, and mostly wait for different servers.
const packages = installPackages();
if (process.argv.includes('peers')) installPeers();
await packages;

async function installPackages() {
  const installed = join(root, 'node_modules', '.package-lock.json');
  const lock = join(root, 'package-lock.json');
  // npm install writes these two files at almost the same time, in either order.
  const margin = 10_000;
  if (existsSync(installed) && statSync(installed).mtimeMs + margin >= statSync(lock).mtimeMs) return;
  say('Installing packages (npm ci) …');
  // The level error hides npm’s warning that this Node.js is older than the one of the project.
  const flags = ['--no-audit', '--no-fund', '--no-progress', '--loglevel=error'];
  const npm = spawn('npm', ['ci', ...flags], { cwd: root, stdio: ['ignore', 'ignore', 'inherit'] });
  const [status] = await once(npm, 'exit');
  if (status !== 0) {
    say('npm ci failed: see above. Is the npm registry reachable?');
    process.exit(1);
  }
}

function installPeers() {
  const missing = Object.keys(peers).filter((command) => !onPath(command));
  if (missing.length === 0) return;
  const wanted = missing.flatMap((command) => peers[command].split(' '));
  let failures = [];
  if (process.getuid?.() === 0 && onPath('apt-get')) {
    say(`Installing these Debian packages for the tests: ${wanted.join(', ')} (apt-get) …`);
    failures = aptGetAll(wanted);
    if (missing.includes('docker-registry')) stopService('docker-registry');
    if (missing.includes('pg_ctlcluster')) stopService('postgresql');
  }
  const absent = missing.filter((command) => !onPath(command));
  if (absent.length > 0) {
    for (const failure of failures) say(failure);
    say('!'.repeat(100));
    say(`!!! NOT INSTALLED: ${absent.join(', ')}. The tests that need them will be SKIPPED.`);
    say(`!!! To run them all: apt-get install ${absent.map((command) => peers[command]).join(' ')}`);
    say('!'.repeat(100));
  }
}

/** Installs packages. Returns the errors of packages that cannot be installed. */
function aptGetAll(names) {
  // The package lists of a fresh machine are missing or too old. If they are good, fetching them
  // again takes most of the time.
  if (aptGet('install', names) === undefined) return [];
  const failures = [aptGet('update', [])];
  // One by one takes four times as long as together.
  if (aptGet('install', names) === undefined) return [];
  // A package that cannot be installed must not block the others.
  for (const name of names) failures.push(aptGet('install', [name]));
  return failures.filter((failure) => failure !== undefined);
}

/** Returns the last lines of the output if the command fails. */
function aptGet(command, names) {
  const flags = command === 'install' ? ['-y', '--no-install-recommends'] : [];
  const { status, stdout, stderr } = spawnSync('apt-get', ['-qq', command, ...flags, ...names], {
    env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'pipe'],
    maxBuffer: 64 * 1024 * 1024,
  });
  if (status === 0) return undefined;
  const output = `${stdout ?? ''}${stderr ?? ''}`.trim().split('\n').slice(-3).join(' | ');
  return `apt-get ${[command, ...names].join(' ')} failed: ${output}`;
}

// Debian starts the service of a package that it installs. The tests start their own registries,
// and no other process may listen.
function stopService(name) {
  const stop = existsSync('/run/systemd/system') ? ['systemctl', 'disable', '--now', name] : ['service', name, 'stop'];
  spawnSync(stop[0], stop.slice(1), { stdio: 'ignore' });
}

function onPath(command) {
  // Only the path of root has the programs for file systems.
  return [...(process.env.PATH ?? '').split(delimiter), '/usr/sbin'].some((folder) => {
    try {
      accessSync(join(folder, command), constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });
}

function say(line) {
  process.stderr.write(`${line}\n`);
}
