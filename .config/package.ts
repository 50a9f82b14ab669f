/**
 * Builds one executable for each platform, which includes Node.js, and packs it with licences and man pages into an
 * archive. Also writes a bill of materials beside each archive, and checksums, into dist/packages or into the folder
 * that an argument names. Other arguments choose platforms, such as linux-amd64, and add an rpm (`rpm`) and a container
 * image (`image --base=…`) of each archive for Linux. `--fast` makes the archives a tenth larger, and does not compress
 * rpms. Executables for macOS are built on macOS, and those for Linux on Linux.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { create } from 'tar';
import lock from '../package-lock.json' with { type: 'json' };
import manifest from '../package.json' with { type: 'json' };
import { programs } from '../test/support/project/docs.ts';
import { billOf } from './bill.ts';
import { bundle } from './bundle.ts';
import { imageNameOf, makeImage } from './image.ts';
import { archiveOf, billNameOf, executableOf, papers, platforms, type Platform } from './krew.ts';
import { manPages } from './manPages.ts';
import { fetchRuntime } from './nodeRuntime.ts';
import { packagesOf, writeNotices } from './notices.ts';
import { readPackageArguments, type PackageArguments } from './packageArguments.ts';
import { makeRpm, rpmNameOf } from './rpm.ts';
import { makeExecutable, makeExecutableOfOlder } from './sea.ts';
import { makeZip } from './zip.ts';

const root = fileURLToPath(new URL('..', import.meta.url));
const { folder = `${root}/dist/packages`, wanted, withRpm, base, isFast } = readArguments();
const main = 'main.js';
/** Higher levels take twice as long, and save a thousandth. */
const compression = isFast ? 1 : 7;
const pages = await manPages(programs);
const work = await mkdtemp(join(tmpdir(), 'package-'));
try {
  await mkdir(folder, { recursive: true });
  // Remove only the files of an earlier run, because the folder may have other files.
  for (const platform of platforms)
    for (const name of [archiveOf(platform), billNameOf(platform), rpmNameOf(platform), imageNameOf(platform)])
      await rm(`${folder}/${name}`, { force: true });
  const inputs = await bundle(`${root}/cmd/oc-disconnected.ts`, join(work, main));
  const notices = await writeNotices(root, packagesOf(inputs));
  const checksums = new Map<string, string>();
  for (const platform of wanted) {
    const system = systemOf(platform);
    if (system !== undefined && process.platform !== platform.os) {
      say(`${archiveOf(platform)} is skipped: executables for ${system} are built on ${system}.`);
      continue;
    }
    const place = join(work, `${platform.os}-${platform.cpu}`);
    const made = [await makeArchive(platform, place, notices)];
    if (withRpm && platform.os === 'linux') made.push(await makeRpm(platform, { place, folder, isFast }));
    if (base !== undefined && platform.os === 'linux') {
      made.push(await makeImage(platform, { place, folder, base, isFast }));
    }
    const bill = billOf([platform]);
    await writeFile(`${folder}/${billNameOf(platform)}`, bill);
    const record = (name: string, content: Buffer | string): void =>
      void checksums.set(name, createHash('sha256').update(content).digest('hex'));
    for (const path of made) {
      const content = await readFile(path);
      record(basename(path), content);
      say(`${path}: ${(content.length / 1e6).toFixed(1)} MB`);
    }
    record(billNameOf(platform), bill);
    // An installed executable has another name, and `doctor` finds it here by its digest.
    record(
      `${platform.krew.os}-${platform.krew.arch}/${executableOf(platform)}`,
      await readFile(join(place, executableOf(platform))),
    );
  }
  const lines = [...checksums].map(([name, sum]) => `${sum}  ${name}\n`);
  await writeFile(`${folder}/SHA256SUMS`, lines.join(''));
} finally {
  await rm(work, { recursive: true, force: true });
}

function readArguments(): PackageArguments {
  try {
    return readPackageArguments(process.argv.slice(2));
  } catch (error) {
    say(`error: ${error instanceof Error ? error.message : String(error)}`);
    process.exit(2);
  }
}

async function makeArchive(platform: Platform, place: string, notices: string): Promise<string> {
  const runtime = await findRuntime(platform);
  await mkdir(place);
  const executable = join(place, executableOf(platform));
  const node = `${runtime}/bin/${platform.os === 'win32' ? 'node.exe' : 'node'}`;
  const parts = { main, node, executable, work, codeCache: platform === own() };
  if (platform.pinned) await makeExecutableOfOlder(parts, `${await findRuntime(own())}/bin/node`);
  else await makeExecutable(parts);
  await chmod(executable, 0o755);
  // Apple's processors run no program without a signature. Adding the program to Node.js
  // invalidated its signature.
  if (platform.os === 'darwin')
    execFileSync('codesign', ['--force', '--sign', '-', '--identifier', manifest.name, executable]);
  // The executable for this machine must run here. With a wrong signature, it does not.
  if (platform === own()) execFileSync(executable, ['--version'], { stdio: ['ignore', 'ignore', 'inherit'] });
  await mkdir(join(place, 'man'));
  for (const [name, text] of pages) await writeFile(join(place, 'man', name), text);
  await copyFile(`${root}/LICENSE`, join(place, 'LICENSE'));
  const licences = `${notices}\n${'='.repeat(100)}\n\nNode.js\n\n${await readLicence(runtime)}`;
  await writeFile(join(place, 'THIRD-PARTY-NOTICES'), licences);

  const archive = `${folder}/${archiveOf(platform)}`;
  const manuals = platform.os === 'win32' ? [] : [...pages.keys()].map((name) => `man/${name}`);
  const texts = [...papers, ...manuals];
  const names = [executableOf(platform), ...texts];
  for (const name of texts) await chmod(join(place, name), 0o644);
  if (platform.os === 'win32') {
    const entries = names.map(async (name) => ({
      name,
      content: await readFile(join(place, name)),
      mode: name === names[0] ? 0o755 : 0o644,
    }));
    await writeFile(archive, makeZip(await Promise.all(entries), compression));
  } else {
    // The archive does not depend on the owners, times and umask of this machine.
    await create(
      { cwd: place, file: archive, gzip: { level: compression }, portable: true, mtime: new Date(0) },
      names,
    );
  }
  return archive;
}

/** Returns the licence of Node.js, which the package for Windows lacks. */
async function readLicence(runtime: string): Promise<string> {
  const [first] = platforms;
  const home = existsSync(`${runtime}/LICENSE`) || !first ? runtime : await findRuntime(first);
  return readFile(`${home}/LICENSE`, 'utf8');
}

/** Returns the folder of a platform’s Node.js with the recorded digest: the installed package, or a downloaded one. */
async function findRuntime(platform: Platform): Promise<string> {
  const { runtime, pinned } = platform;
  if (!pinned && platform === own()) return `${root}/node_modules/${runtime}`;
  const entries: Readonly<Record<string, { version?: string; integrity?: string } | undefined>> = lock.packages;
  const { version = '', integrity = '' } = pinned ?? entries[`node_modules/${runtime}`] ?? {};
  return fetchRuntime(runtime, version, integrity);
}

/**
 * Returns the system on which a platform's executable must be built, if there is one. `codesign` exists only on macOS.
 */
function systemOf({ os, pinned }: Platform): string | undefined {
  return os === 'darwin' ? 'macOS' : pinned ? 'Linux' : undefined;
}

/** Returns the platform of this machine. Throws if there are no archives for it. */
function own(): Platform {
  const found = platforms.find(({ os, cpu }) => os === process.platform && cpu === process.arch);
  if (!found) throw new Error(`${process.platform}-${process.arch} is no platform that archives are made for`);
  return found;
}

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}
