import { join } from 'node:path';
import type { HostCommands, HostFiles } from '#node/machine';
import { missingUnitsOf, type DetectedInstallation } from '../detect/detect.ts';
import { replaceFile } from '../installation/fileChange.ts';
import { imagesOfVersion } from '../installation/versions.ts';
import type { TargetImages } from './images.ts';

/** A unit that another one requires and that is missing. */
export interface MissingUnit {
  /** Its name, without `.service`. */
  readonly name: string;
  readonly path: string;
  /** The unit as the installer writes it; undefined if its image or its data are unknown. */
  readonly text: string | undefined;
}

/** Lists the units that others require and that are missing, the pod first. Images are those of the target. */
export function listMissingUnits(detected: DetectedInstallation, target: TargetImages): MissingUnit[] {
  const { units, installation } = detected;
  const images = { ...imagesOfVersion(installation.version ?? ''), ...target };
  const { value: port } = installation.port;
  const texts: Readonly<Record<string, string | undefined>> = {
    'quay-pod': images.pause && podUnit(images.pause, `${port}:${installation.servesTls ? 8443 : 8080}`),
    'quay-redis': images.redis && redisUnit(images.redis),
  };
  return missingUnitsOf(units).map((name) => {
    return { name, path: join(installation.unitFolder, `${name}.service`), text: texts[name] };
  });
}

/**
 * Writes missing units and enables them. They stay if the change is rolled back. Throws `command-failed`,
 * `not-writable`.
 */
export async function writeMissingUnits(
  { files, commands, detected }: { files: HostFiles; commands: HostCommands; detected: DetectedInstallation },
  missing: readonly MissingUnit[],
): Promise<void> {
  const within = detected.installation.unitFolder;
  for (const { path, text } of missing) {
    if (text !== undefined) await replaceFile(files, { path, within }, text, { mode: 0o644 });
  }
  await commands.systemctl(['daemon-reload']);
  for (const { name } of missing) await commands.systemctl(['enable', `${name}.service`]);
}

function redisUnit(image: string): string {
  return unitText('Redis Podman Container for Quay', ['After=quay-pod.service', 'Requires=quay-pod.service'], {
    before: '%t/%n-pid %t/%n-cid',
    start:
      'podman run --name quay-redis --pod=quay-pod --conmon-pidfile %t/%n-pid --cidfile %t/%n-cid ' +
      '--cgroups=no-conmon ' +
      `--image-volume=ignore --secret=redis_pass,type=env,target=REDIS_PASSWORD --replace ${image}`,
    stop: 'podman stop --ignore --cidfile %t/%n-cid -t 10',
    after: 'podman rm --ignore -f --cidfile %t/%n-cid',
  });
}

function podUnit(image: string, publish: string): string {
  return unitText('Infra Container for Quay', ['Before=quay-redis.service', ''], {
    before: '%t/%n-pid %t/%n-pod-id',
    start:
      `podman pod create --name quay-pod --infra-image ${image} --publish ${publish} --pod-id-file %t/%n-pod-id ` +
      '--replace',
    stop: 'podman pod stop --ignore --pod-id-file %t/%n-pod-id -t 10',
    after: 'podman pod rm --ignore -f --pod-id-file %t/%n-pod-id',
    extra: ['RemainAfterExit=yes'],
  });
}

/** Formats a unit as the installers since 2.0 do. */
function unitText(
  what: string,
  order: readonly string[],
  words: Readonly<Record<'before' | 'start' | 'stop' | 'after', string>> & { readonly extra?: readonly string[] },
): string {
  const { before, start, stop, after, extra = [] } = words;
  const own = order.filter((line) => line !== '');
  return [
    '[Unit]',
    `Description=${what}`,
    'Wants=network.target',
    'After=network-online.target',
    ...own,
    '',
    '[Service]',
    'Type=simple',
    ...extra,
    'TimeoutStartSec=5m',
    'Environment=PODMAN_SYSTEMD_UNIT=%n',
    `ExecStartPre=-/bin/rm -f ${before}`,
    `ExecStart=/usr/bin/${start}`,
    `ExecStop=-/usr/bin/${stop}`,
    `ExecStopPost=-/usr/bin/${after}`,
    'PIDFile=%t/%n-pid',
    'KillMode=none',
    'Restart=always',
    'RestartSec=30',
    '',
    '[Install]',
    'WantedBy=multi-user.target default.target',
    '',
  ].join('\n');
}
