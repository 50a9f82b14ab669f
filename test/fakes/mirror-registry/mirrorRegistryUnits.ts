/** The options of an installed mirror registry that its units show. */
export interface UnitOptions {
  /** The release of the mirror registry. */
  readonly age: string;
  readonly quayRoot: string;
  readonly storage: string;
  readonly databaseStorage: string;
  /** The complete `--publish`. */
  readonly publish: string;
  /** Words that an administrator added to Quay’s command line. */
  readonly extra: readonly string[];
  readonly images?: Partial<Record<'quay' | 'redis' | 'pause', string>>;
}

interface Age {
  readonly quay: string;
  readonly redis: string;
  readonly pause: string;
  readonly postgres?: string;
}

const ages: Readonly<Record<string, Age>> = {
  '1.0.0': { quay: 'v3.6.1', redis: '1-25', pause: '', postgres: '1-161' },
  '1.1.0': { quay: 'v3.6.4', redis: '1-25', pause: '8.5-6', postgres: '1-161' },
  '1.2.9': { quay: 'v3.7.10', redis: '1-72', pause: '8.6-21', postgres: '1-183' },
  '1.3.0': { quay: 'v3.8.1', redis: '1-92.1669834635', pause: '8.7-6', postgres: '1-203.1669834630' },
  '1.3.10': { quay: 'v3.8.14', redis: '1-92.1669834635', pause: '8.7-6', postgres: '1-203.1669834630' },
  '1.3.11': { quay: 'v3.8.15', redis: '1-92.1669834635', pause: '8.7-6', postgres: '1-203.1669834630' },
  '2.0.0': { quay: 'v3.12.0', redis: '1-190', pause: '8.10-5' },
  '2.0.7': { quay: 'v3.12.10', redis: '1-190', pause: '8.10-5' },
  '2.0.10': { quay: 'v3.12.14', redis: '1-1766406130', pause: '8.10-5' },
  '2.0.11': { quay: 'v3.12.18', redis: '1-1766406130', pause: '8.10-5' },
};

/** The releases with fixtures. */
export const fixtureAges = Object.keys(ages);

/** Returns the images of a release, by component. */
export function imagesOf(age: string): Record<'quay' | 'redis' | 'pause' | 'postgres', string> {
  const { quay, redis, pause, postgres = '' } = ages[age]!;
  return {
    quay: `registry.redhat.io/quay/quay-rhel8:${quay}`,
    redis: `registry.redhat.io/rhel8/redis-6:${redis}`,
    pause: `registry.access.redhat.com/ubi8/pause:${pause}`,
    postgres: `registry.redhat.io/rhel8/postgresql-10:${postgres}`,
  };
}

/** Returns the unit files of an installation, by name. */
export function unitsOf(options: UnitOptions): Record<string, string> {
  const { age, quayRoot, storage, databaseStorage, publish, extra } = options;
  const images = { ...imagesOf(age), ...options.images };
  const isSqlite = age.startsWith('2.');
  const hasPod = age !== '1.0.0';
  const isLate = isSqlite && Number(age.split('.')[2]) >= 10;
  const database = isSqlite ? [] : ['quay-postgres'];
  const units: Record<string, string> = {
    'quay-redis': unit('Redis', hasPod ? ['quay-pod'] : [], [
      '--name quay-redis',
      ...inPod,
      '--image-volume=ignore',
      isSqlite || age === '1.3.11'
        ? '--secret=redis_pass,type=env,target=REDIS_PASSWORD'
        : '-e REDIS_PASSWORD=strongpassword',
      '--replace',
      images.redis,
    ]),
    'quay-app': unit(
      'Quay',
      [...(hasPod ? ['quay-pod'] : []), ...database, 'quay-redis'],
      [
        '--name quay-app',
        ...(age.startsWith('1.0') ? ['-e DEBUGLOG=true'] : []),
        `-v ${quayRoot}/quay-config:/quay-registry/conf/stack:Z`,
        ...(isSqlite ? [`-v ${databaseStorage}:/sqlite:Z${isLate ? ',U' : ''}`] : []),
        `-v ${storage}:/datastorage:Z`,
        '--image-volume=ignore',
        ...inPod,
        ...(isSqlite ? ['--log-driver=journald'] : []),
        '--replace',
        '-e WORKER_COUNT_UNSUPPORTED_MINIMUM=1',
        '-e WORKER_COUNT=1',
        ...(isLate ? ['-e PYTHONUSERBASE_SITE_PACKAGE=/opt/app-root/lib/python3.12/site-packages'] : []),
        ...extra,
        isSqlite ? `${images.quay} registry` : images.quay,
      ],
    ),
  };
  if (!isSqlite) {
    units['quay-postgres'] = unit('PostgreSQL', hasPod ? ['quay-pod'] : [], [
      '--name quay-postgres',
      `-v ${databaseStorage}:/var/lib/pgsql/data:Z`,
      '-e POSTGRESQL_USER=user',
      age === '1.3.11' ? '--secret=pgdb_pass,type=env,target=POSTGRESQL_PASSWORD' : '-e POSTGRESQL_PASSWORD=password',
      '-e POSTGRESQL_DATABASE=quay',
      ...inPod,
      '--replace',
      images.postgres,
    ]);
  }
  if (hasPod) units['quay-pod'] = pod(images.pause, publish);
  return Object.fromEntries(Object.entries(units).map(([name, text]) => [`${name}.service`, text]));
}

const inPod = ['--pod=quay-pod', '--conmon-pidfile %t/%n-pid', '--cidfile %t/%n-cid', '--cgroups=no-conmon'];

const command = (words: readonly string[]): string => words.join(' \\\n    ');

const ending = `PIDFile=%t/%n-pid
KillMode=none
Restart=always
RestartSec=30

[Install]
WantedBy=multi-user.target default.target
`;

function unit(what: string, needed: readonly string[], words: readonly string[]): string {
  const services = needed.map((name) => `${name}.service`).join(' ');
  return `[Unit]
Description=${what} container of the registry
Wants=network.target
After=network-online.target ${services}
${services === '' ? '' : `Requires=${services}\n`}
[Service]
Type=simple
TimeoutStartSec=5m
Environment=PODMAN_SYSTEMD_UNIT=%n
ExecStartPre=-/bin/rm -f %t/%n-pid %t/%n-cid
ExecStart=${command(['/usr/bin/podman run', ...words])}

ExecStop=-/usr/bin/podman stop --ignore --cidfile %t/%n-cid -t 10
ExecStopPost=-/usr/bin/podman rm --ignore -f --cidfile %t/%n-cid
${ending}`;
}

function pod(image: string, publish: string): string {
  const words = [
    '/usr/bin/podman pod create',
    '--name quay-pod',
    `--infra-image ${image}`,
    `--publish ${publish}`,
    '--pod-id-file %t/%n-pod-id',
    '--replace',
  ];
  return `[Unit]
Description=Infra container of the registry
Wants=network.target
After=network-online.target
Before=quay-redis.service

[Service]
Type=simple
RemainAfterExit=yes
TimeoutStartSec=5m
ExecStartPre=-/bin/rm -f %t/%n-pid %t/%n-pod-id
ExecStart=${command(words)}
ExecStop=-/usr/bin/podman pod stop --ignore --pod-id-file %t/%n-pod-id -t 10
ExecStopPost=-/usr/bin/podman pod rm --ignore -f --pod-id-file %t/%n-pod-id
${ending}`;
}
