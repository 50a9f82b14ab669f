import { appendFile, rm, symlink, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { writeAtomically, makeFolders, syncFolder, isMissing } from '#content/files';
import { serveContent, type ServedResponse } from '#content/server';
import type { Context } from '#context';
import { pathOnHost, type Host, drillFile, drillFolder, registriesFile, executablePath } from '../machine/host.ts';
import { listFolder, readIfThere, readToml, stringsOf } from './storageConfig.ts';

/** A request that reached the registry of a drill. */
export interface DrillRequest {
  /** The time in ISO 8601. */
  readonly time: string;
  /** The image as it was asked for; `*.io/…` if only the end of its registry is known. */
  readonly image: string;
  /** The user agent of the client. */
  readonly client: string;
}

/** The largest number of requests to write. */
const mostWritten = 10_000;

/** The ends of the registries that nothing on the node or in the cluster names. */
const usualEnds = ['com', 'dev', 'io', 'net', 'org'];

/**
 * Runs a drill on this node: writes the drop-in that sends every registry here, writes each request to a file, and
 * answers none. Ends with the plan (`over`), or earlier if the context is interrupted. After a reboot that the drill
 * did not announce, does nothing (`over`). Removes the drop-in. Throws `invalid-file` and `not-writable`.
 */
export async function runDrill(
  host: Host,
  plan: DrillPlan,
  { afterReboot }: { readonly afterReboot: boolean },
  context: Context,
): Promise<'over' | 'interrupted'> {
  const isExpected = !afterReboot || (await takeAnnouncement(host));
  const remaining = plan.until * 1000 - Date.now();
  if (!isExpected || remaining <= 0) return 'over';
  await makeFolders(pathOnHost(host, drillFolder));
  const prefixes = await listPrefixes(host, plan.registries);
  const log = new RequestLog(pathOnHost(host, requestsFile), prefixes, context);
  const server = await serveContent(() => undefined, { onResponse: (response) => log.add(response) }, context);
  const path = pathOnHost(host, drillFile);
  try {
    // The unit that removes the drop-in after a power failure is on the disk before the drop-in.
    await enableBootUnit(host, plan);
    await writeAtomically(path, formatDropIn(prefixes, server.port));
    context.log('info', `every registry is redirected to ${server.url}`);
    await sleep(remaining, undefined, { signal: context.signal }).catch(() => undefined);
    if (context.signal.aborted) return 'interrupted';
    // A reboot that comes now is no part of the drill.
    await takeAnnouncement(host);
    return 'over';
  } finally {
    await rm(path, { force: true });
    await server.close();
    await log.close();
  }
}

/** Removes the announcement of a reboot, durably. Returns whether there was one. */
async function takeAnnouncement(host: Host): Promise<boolean> {
  const path = pathOnHost(host, nextBootFile);
  try {
    await unlink(path);
  } catch (error) {
    if (!isMissing(error)) throw error;
    return false;
  }
  await syncFolder(dirname(path));
  return true;
}

async function enableBootUnit(host: Host, plan: DrillPlan): Promise<void> {
  const link = pathOnHost(host, bootUnitLink);
  await makeFolders(dirname(link));
  await rm(link, { force: true });
  await symlink(bootUnitFile, link);
  await syncFolder(dirname(link));
  await writeAtomically(pathOnHost(host, bootUnitFile), bootUnit(plan), { mode: 0o644 });
}

/**
 * Lists the prefixes of images to redirect. Every table in the configuration of the node is redirected, because the
 * longest prefix counts. So are the known registries, and all others with a usual end.
 */
async function listPrefixes(host: Host, registries: readonly string[]): Promise<string[]> {
  const configured = new Set<string>();
  const hosts = new Set(registries);
  for (const path of [registriesFile, ...(await listFolder(host, `${registriesFile}.d`))]) {
    if (path === drillFile || !path.endsWith('.conf')) continue;
    const values = readToml((await readIfThere(host, path)) ?? '', path);
    const named = (key: string): string[] => stringsOf(values, key) ?? [];
    for (const prefix of [...named('registry.prefix'), ...named('registry.location')]) configured.add(prefix);
    for (const search of named('unqualified-search-registries')) hosts.add(search);
    for (const mirror of named('registry.mirror.location')) hosts.add(mirror.split('/', 1)[0] ?? mirror);
  }
  const ends = [...hosts].flatMap((each) => /\.([a-z][a-z0-9-]*)(?::\d+)?$/.exec(each)?.[1] ?? []);
  const wildcards = [...new Set([...usualEnds, ...ends])].map((end) => `*.${end}`);
  return [...new Set([...configured, ...hosts, ...wildcards])].sort();
}

function formatDropIn(prefixes: readonly string[], port: number): string {
  // A registry with a port is no path of another one, so that each prefix gets a number.
  const tables = prefixes.map(
    (prefix, index) =>
      `[[registry]]\nprefix = ${JSON.stringify(prefix)}\nlocation = "127.0.0.1:${port}/r${index}"\ninsecure = true\n`,
  );
  return `# Written by a drill of oc adm-upgrade-bundle, which removes it.\n${tables.join('\n')}`;
}

/** Writes the requests that name an image. */
class RequestLog {
  readonly #path: string;
  readonly #prefixes: readonly string[];
  readonly #context: Context;
  #writing = Promise.resolve();
  #count = 0;

  constructor(path: string, prefixes: readonly string[], context: Context) {
    this.#path = path;
    this.#prefixes = prefixes;
    this.#context = context;
  }

  add({ path, client }: ServedResponse): void {
    const [, index = '', rest = '', reference = ''] = /^\/v2\/r(\d+)((?:\/.+)?)\/manifests\/([^/?]+)$/.exec(path) ?? [];
    const prefix = this.#prefixes[Number(index)];
    if (index === '' || prefix === undefined || (this.#count += 1) > mostWritten) return;
    const image = `${prefix}${rest}${reference.startsWith('sha256:') ? '@' : ':'}${reference}`;
    const request: DrillRequest = { time: new Date().toISOString(), image, client };
    this.#context.log('info', `asked for ${image} (${client})`);
    this.#writing = this.#writing.then(() => appendFile(this.#path, `${JSON.stringify(request)}\n`));
    this.#writing = this.#writing.catch((error: unknown) => {
      this.#context.log('warn', `${this.#path} cannot be written: ${String(error)}`);
    });
  }

  close(): Promise<void> {
    return this.#writing;
  }
}

/** A drill on one node. */
export interface DrillPlan {
  /** The name of the Node object. */
  readonly node: string;
  /** The time at which the node ends the drill by itself, in seconds since 1970. */
  readonly until: number;
  /** The registries that the cluster knows, such as `quay.io` and `mirror.example.com:5000`. */
  readonly registries: readonly string[];
}

/** The service of a drill, which exists in this boot only. */
export const drillUnit = 'oc-upgrade-bundle-drill';

/** The service that removes the drill at the next boot, or continues it if the drill itself caused the reboot. */
export const drillBootUnit = `${drillUnit}-boot`;

/** The file of `drillBootUnit`, and the link that enables it. */
export const bootUnitFile = `/etc/systemd/system/${drillBootUnit}.service`;

/** The link by which systemd starts `bootUnitFile` at each boot. */
export const bootUnitLink = `/etc/systemd/system/multi-user.target.wants/${drillBootUnit}.service`;

/** The file that announces the reboot of a drill. The next boot removes it, so that it counts for one boot. */
export const nextBootFile = `${drillFolder}/next-boot`;

/** The requests of a drill: one JSON object in each line. */
export const requestsFile = `${drillFolder}/requests`;

/** Everything that a drill has on a node. The drop-in is the first to be removed. */
export const drillTraces = [
  drillFile,
  `${drillFile}.partial`,
  bootUnitLink,
  bootUnitFile,
  `${bootUnitFile}.partial`,
  drillFolder,
];

/** The time for which systemd waits after `until` before it ends the drill itself, in seconds. */
const grace = 60;

/** Returns the arguments of systemd-run that start a drill. systemd alone is then responsible for its end. */
export function startArguments(plan: DrillPlan): string[] {
  const properties = serviceSettings(plan, '').map(([key, value]) => `--property=${key}=${value}`);
  return ['--quiet', '--collect', `--unit=${drillUnit}`, ...properties, '/bin/bash', '-c', mainCommand(plan, [])];
}

/**
 * Returns the unit for the next boot. It starts before the container runtime. Without an announced reboot, its main
 * command ends, so that its last command removes the drill.
 */
function bootUnit(plan: DrillPlan): string {
  // Without it, systemd knows the removed unit until the next boot.
  const settings = serviceSettings(plan, ' systemctl daemon-reload;').map(([key, value]) => `${key}=${value}\n`);
  return (
    `[Unit]\nDescription=Drill of oc adm-upgrade-bundle after a reboot\nBefore=crio.service kubelet.service\n` +
    `RequiresMountsFor=${drillFolder}\nCollectMode=inactive-or-failed\n\n` +
    `[Service]\nExecStartPre=/bin/rm -f ${drillFile}\nExecStart=/bin/bash -c ` +
    `"${mainCommand(plan, ['--after-reboot'])}"\n${settings.join('')}`
  );
}

/** SELinux does not let systemd itself run files of /var/lib, but it lets bash. */
function mainCommand({ node, until, registries }: DrillPlan, more: readonly string[]): string {
  const options = [
    `--node-name=${node}`,
    `--until=${until}`,
    ...registries.map((each) => `--registry=${each}`),
    ...more,
  ];
  return ['exec', executablePath, 'drill-node', ...options].join(' ');
}

function serviceSettings({ until }: DrillPlan, last: string): (readonly [key: string, value: string])[] {
  const runtimeLimit = Math.max(1, until - Math.floor(Date.now() / 1000)) + grace;
  // The container runtime starts when the drop-in is there, or when the main command has ended without it.
  const ready = `while [ ! -e ${drillFile} ] && kill -0 $$MAINPID; do sleep 0.1; done; true`;
  // A shutdown ends the service with success: only then an announced reboot keeps the unit for the next boot.
  const end =
    `rm -f ${drillFile}; if [ $$SERVICE_RESULT != success ] || [ ! -e ${nextBootFile} ]; then rm -rf ` +
    `${drillTraces.join(' ')};${last} fi; ` +
    // A container runtime that is starting may have read the drop-in, and cannot reload yet.
    `while systemctl is-active crio | grep -qx activating; do sleep 0.1; done; ` +
    `if systemctl -q is-active crio; then systemctl --no-block reload crio; fi`;
  return [
    ['Type', 'exec'],
    ['TimeoutStartSec', '60'],
    ['TimeoutStopSec', '60'],
    ['RuntimeMaxSec', String(runtimeLimit)],
    ['ExecStartPost', `/bin/bash -c "${ready}"`],
    ['ExecStopPost', `/bin/bash -c "${end}"`],
  ];
}
