import { basename, dirname } from 'node:path/posix';
import { executablePath, mirrorFolder, mirrorStateFile, nodeStateFolder } from '#node/machine';

/** The default port of the mirrors. Firewalls between OpenShift nodes leave 9000-9999 open for host services. */
export const mirrorPort = 9690;

/** The service of the mirror on a control plane node. */
export const mirrorUnitName = 'oc-upgrade-bundle-mirror.service';

/** The file of `mirrorUnitName` on a control plane node. */
export const mirrorUnitFile = `/etc/systemd/system/${mirrorUnitName}`;

/** The folder of the Secret with the certificate of the mirrors, in the pods of controllers. */
export const mirrorSecretFolder = '/run/secrets/oc-upgrade-bundle-mirror';

/** The service with which a node gives images to its own runtime during an update, by plain HTTP. */
export const imageUnitName = 'oc-upgrade-bundle-images.service';

/** The file of `imageUnitName` on a node. */
export const imageUnitFile = `/etc/systemd/system/${imageUnitName}`;

/** The port of `imageUnitName`, at the loopback address. */
export const imagePort = 9691;

/** Settings of the unit. */
export interface MirrorUnitOptions {
  readonly port: number;
  /** Whether it serves its own node only, by plain HTTP. */
  readonly isLocal?: boolean;
  /** The SHA-256 of the executable in hex digits. Another one makes another unit, which restarts the service. */
  readonly executable: string;
}

/**
 * Returns the unit of a mirror. It needs neither a container runtime nor an image, and starts before both: a node
 * without images gets them from it. It gives way to etcd, and may write nothing.
 */
export function mirrorUnit({ port, executable, isLocal = false }: MirrorUnitOptions): string {
  const [owner, what, condition, options] = isLocal
    ? ['agent', 'Images of an update for this node', '', `--listen=127.0.0.1:${port} --plain-http`]
    : [
        'controller',
        'Mirror of the retained upgrade bundles',
        `ConditionPathExists=${mirrorFolder}/tls.crt\n`,
        `--listen=[::]:${port} --state-file=${mirrorStateFile}`,
      ];
  const state = isLocal
    ? ''
    : `RuntimeDirectory=${basename(dirname(mirrorStateFile))}\nRuntimeDirectoryPreserve=restart\n`;
  return `# Written by the ${owner} of oc adm-upgrade-bundle, and removed by uninstall.
[Unit]
Description=${what} (oc adm-upgrade-bundle)
Before=crio.service kubelet.service machine-config-daemon-pull.service nodeip-configuration.service
RequiresMountsFor=${nodeStateFolder}
${condition}StartLimitIntervalSec=0

[Service]
# SHA-256 of the executable: ${executable}
# SELinux does not let systemd itself run files of /var/lib, but it lets bash.
ExecStart=/bin/bash -c 'exec ${executablePath} mirror-serve ${options}'
${state}Restart=always
RestartSec=2
MemoryHigh=150M
MemoryMax=256M
Nice=10
IOSchedulingClass=idle
CPUWeight=20
CapabilityBoundingSet=
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX

[Install]
WantedBy=multi-user.target
`;
}
