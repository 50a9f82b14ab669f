import { join } from 'node:path';
import { PluginError } from '#errors';
import type { HostFiles } from '#node/machine';
import type { Addition, Component, Inherited, Installation } from '../installation/installation.ts';
import { mirrorRegistryVersion, quayVersionOf } from '../installation/versions.ts';
import { publishedPort, readQuayConfiguration, splitHostname, type Configuration } from './configuration.ts';
import { parsePodmanCommand, publishesOf, valuesOf, type PodmanCommand } from './podmanCommand.ts';
import { findUnits, type DetectOptions } from './scopes.ts';
import { settingsOf, type Unit, type Word } from './units.ts';

type Commands = Partial<Record<Component, PodmanCommand>>;

const unitOf = { quay: 'quay-app', redis: 'quay-redis', pause: 'quay-pod', postgres: 'quay-postgres' } as const;

const configMount = '/quay-registry/conf/stack';

/**
 * Detects the mirror registry of a host from its files: the units with their drop-ins, and the configuration of Quay.
 * Runs no program, and writes nothing. Throws `not-found`, `conflict` for two installations, `unsupported` for version
 * 3, and `invalid-file` for files that do not describe an installation.
 */
export async function detectInstallation(host: HostFiles, options: DetectOptions): Promise<DetectedInstallation> {
  const { scope, folder, units } = await findUnits(host, options);
  const commands: Commands = Object.fromEntries(
    Object.entries(unitOf).flatMap(([component, name]) => {
      const command = findCommand(units.get(name));
      return command ? [[component, command]] : [];
    }),
  );
  const mount = configMountOf(commands.quay, options);
  if (!mount || !commands.quay) {
    throw new PluginError('invalid-file', `${join(folder, 'quay-app.service')} mounts nothing at ${configMount}`, {
      hint:
        'This program supports only registries that mirror-registry installed. Give the folder that contains ' +
        'quay-config.',
      settings: ['quayRoot'],
    });
  }
  const configuration = await openConfiguration(host, join(mount.value, 'config.yaml'));
  const images = Object.fromEntries(
    Object.entries(commands).flatMap(([component, command]) => {
      const image = imageOf(component as Component, command);
      return image ? [[component, inherit(command, image.text, image)]] : [];
    }),
  ) as Partial<Record<Component, Inherited<string>>>;
  const hostname = configuration.get('SERVER_HOSTNAME');
  if (!hostname) {
    throw new PluginError('invalid-file', `${configuration.path} has no SERVER_HOSTNAME`, {
      hint: 'Add the host name of the registry, and try again.',
    });
  }
  // Quay’s user can write the file, and the name goes into messages, URLs and certificates.
  if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u.test(hostname.value)) {
    throw new PluginError(
      'invalid-file',
      `${hostname.file}:${hostname.line}: SERVER_HOSTNAME has line breaks or control characters`,
      {
        hint: 'Set it to the host name or IP address of the registry, with its port.',
      },
    );
  }
  const { host: name, port: stated } = splitHostname(hostname.value);
  const externalTls = /^(true|yes|on)$/i.test(configuration.get('EXTERNAL_TLS_TERMINATION')?.value ?? '');
  const servesTls = !externalTls || (await host.exists(join(mount.value, 'ssl.key')));
  const published = publishOf(commands, servesTls);
  const database = configuration.get('DB_URI')?.value.startsWith('postgresql') ? 'postgres' : 'sqlite';
  const quayVersion = quayVersionOf(images.quay?.value ?? '');
  const installation: Installation = {
    scope,
    unitFolder: folder,
    version: quayVersion === undefined ? undefined : mirrorRegistryVersion(quayVersion),
    quayVersion,
    database,
    quayRoot: { ...mount, value: mount.value.replace(/\/quay-config\/?$/, '') },
    host: { ...hostname, value: name },
    port: published ?? { ...hostname, value: stated ?? 8443 },
    storage: mountOf(commands.quay, '/datastorage', options.home) ?? { ...mount, value: 'quay-storage' },
    databaseStorage:
      database === 'sqlite'
        ? mountOf(commands.quay, '/sqlite', options.home)
        : mountOf(commands.postgres, '/var/lib/pgsql/data', options.home),
    images,
    additions: listAdditions(commands, servesTls),
    dropIns: [...units.values()].flatMap(({ files }) => files.slice(1).map(({ path }) => path)),
    externalTls,
    servesTls,
    // Behind a proxy, clients use the port of the proxy.
    remarks: remark(externalTls ? undefined : published, stated ?? 8443, images, quayVersion, units, database),
  };
  return { installation, units, commands, configuration };
}

/** Returns the names of the units that others require and that are missing, the pod first. */
export function missingUnitsOf(units: ReadonlyMap<string, Unit>): string[] {
  const required = [...units.values()].flatMap((unit) => settingsOf(unit, 'Unit', 'Requires'));
  const names = required.flatMap(({ words }) => words.map(({ text }) => text.replace(/\.service$/, '')));
  return ['quay-pod', 'quay-postgres', 'quay-redis'].filter((name) => names.includes(name) && !units.has(name));
}

/** Returns the podman command of a unit; undefined if it has none. */
export function findCommand(unit: Unit | undefined): PodmanCommand | undefined {
  const setting = unit && settingsOf(unit, 'Service', 'ExecStart').at(-1);
  return setting && parsePodmanCommand(setting);
}

async function openConfiguration(host: HostFiles, path: string): Promise<Configuration> {
  const text = await host.readText(path);
  if (text !== undefined) return readQuayConfiguration(path, text);
  throw new PluginError('invalid-file', `the units name ${path}, which is missing`, {
    hint: /[$%]/.test(path)
      ? 'Only systemd can expand these variables. Give the folder that contains quay-config.'
      : 'Restore the configuration from a backup. The database cannot be read without its secrets.',
    settings: /[$%]/.test(path) ? ['quayRoot'] : [],
  });
}

function inherit<T>({ setting }: PodmanCommand, value: T, word: Word): Inherited<T> {
  return { value, file: setting.file.path, line: word.line };
}

function imageOf(component: Component, command: PodmanCommand): Word | undefined {
  return component === 'pause' ? valuesOf(command, 'infra-image')[0]?.word : command.image;
}

/**
 * Returns the folder that is mounted as Quay’s configuration, from its unit or from an option; undefined if neither
 * names it.
 */
export function configMountOf(
  command: PodmanCommand | undefined,
  { quayRoot, home }: DetectOptions,
): Inherited<string> | undefined {
  if (quayRoot === undefined) return mountOf(command, configMount, home);
  return { value: join(quayRoot, 'quay-config'), file: '--quay-root', line: 0 };
}

/** Replaces the specifiers of systemd for the home of the user (`%h`) and a percent sign (`%%`). */
export function expandSpecifiers(text: string, home: string): string {
  return text.replace(/%[%h]/g, (specifier) => (specifier === '%h' ? home : '%'));
}

/**
 * Returns the source of the mount at a folder of a container: a path, with `%h` as the home of the user, or the name of
 * a volume.
 */
export function mountOf(
  command: PodmanCommand | undefined,
  target: string,
  home: string,
): Inherited<string> | undefined {
  for (const { value, word } of valuesOf(command, 'volume')) {
    const [source = '', mounted] = value.split(':');
    if (command && mounted === target) return inherit(command, expandSpecifiers(source, home), word);
  }
  return undefined;
}

function publishOf({ pause, quay }: Commands, servesTls: boolean): Inherited<number> | undefined {
  for (const command of [pause, quay]) {
    for (const { value, word } of publishesOf(command, servesTls)) {
      const port = publishedPort(value);
      if (command && port !== undefined) return inherit(command, port, word);
    }
  }
  return undefined;
}

// The options that the installers of all versions write.
const installerMounts =
  /:(?:\/quay-registry\/conf\/stack|\/datastorage|\/sqlite|\/var\/lib\/pgsql\/data)(?::[A-Za-z,]*)?$/;
const installerEnvironment =
  /^(?:WORKER_COUNT|WORKER_COUNT_UNSUPPORTED_MINIMUM|PYTHONUSERBASE_SITE_PACKAGE|DEBUGLOG|REDIS_PASSWORD|POSTGRESQL_\w+)=/;
const installerOptions = new Set([
  'name',
  'pod',
  'conmon-pidfile',
  'cidfile',
  'cgroups',
  'log-driver',
  'image-volume',
  'replace',
  'secret',
  'infra-image',
  'pod-id-file',
  'rm',
  'detach',
]);

function listAdditions(commands: Commands, servesTls: boolean): Addition[] {
  return Object.entries(commands).flatMap(([component, command]) => {
    const unit = unitOf[component as Component];
    const [publish] = publishesOf(command, servesTls);
    return command.options.flatMap(({ name, value, words }) => {
      const [word] = words;
      const expected =
        (name === 'volume' && installerMounts.test(value ?? '')) ||
        (name === 'env' && installerEnvironment.test(value ?? '')) ||
        (name === 'publish' && value === publish?.value) ||
        installerOptions.has(name);
      // Values of environment variables may be secrets.
      const shown = name === 'env' ? (value?.split('=')[0] ?? '') : value;
      const text = shown === undefined ? `--${name}` : `--${name} ${shown}`;
      return expected || !word ? [] : [{ unit, ...inherit(command, text, word) }];
    });
  });
}

function remark(
  published: Inherited<number> | undefined,
  stated: number,
  images: Partial<Record<Component, Inherited<string>>>,
  quayVersion: string | undefined,
  units: ReadonlyMap<string, Unit>,
  database: Installation['database'],
): string[] {
  return [
    ...(published && published.value !== stated
      ? [
          `port ${published.value} is published (${published.file}:${published.line}), but SERVER_HOSTNAME has ` +
            `port ${stated}`,
        ]
      : []),
    ...(quayVersion === undefined
      ? [`the image of Quay, ${images.quay?.value ?? 'without a name'}, is not from a mirror-registry release`]
      : []),
    ...(units.has('quay-postgres') && database === 'sqlite'
      ? ['quay-postgres.service is not used, because Quay uses SQLite; a rollback may need it']
      : []),
    ...missingUnitsOf(units).map((name) => `${name}.service is missing, which other units require`),
    ...(units.has('quay-migrate') ? ['quay-migrate.service is left from an unfinished upgrade'] : []),
  ];
}

/** An installation, and the files that it was read from. */
export interface DetectedInstallation {
  readonly installation: Installation;
  readonly units: ReadonlyMap<string, Unit>;
  readonly commands: Readonly<Partial<Record<Component, PodmanCommand>>>;
  readonly configuration: Configuration;
}
