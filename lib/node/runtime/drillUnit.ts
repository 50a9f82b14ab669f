import { drillFile, drillFolder, executablePath } from '../machine/paths.ts';

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

/** See `bootUnitFile`. */
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
export function bootUnit(plan: DrillPlan): string {
  // Without it, systemd knows the removed unit until the next boot.
  const settings = serviceSettings(plan, ' systemctl daemon-reload;').map(([key, value]) => `${key}=${value}\n`);
  return (
    `[Unit]\nDescription=Drill of oc adm-upgrade-bundle after a reboot\nBefore=crio.service kubelet.service\n` +
    `RequiresMountsFor=${drillFolder}\nCollectMode=inactive-or-failed\n\n` +
    `[Service]\nExecStartPre=/bin/rm -f ${drillFile}\nExecStart=/bin/bash -c "${mainCommand(plan, ['--after-reboot'])}"\n${settings.join('')}`
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
    `rm -f ${drillFile}; if [ $$SERVICE_RESULT != success ] || [ ! -e ${nextBootFile} ]; then rm -rf ${drillTraces.join(' ')};${last} fi; ` +
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
