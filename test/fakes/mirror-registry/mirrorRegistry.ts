import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { unitsOf, type UnitOptions } from './mirrorRegistryUnits.ts';

/** The options of an installed mirror registry. */
export interface FixtureOptions extends Partial<UnitOptions> {
  readonly age: string;
  readonly scope?: 'system' | 'user';
  /** The value of `SERVER_HOSTNAME`. */
  readonly hostname?: string;
  /** Lines at the end of config.yaml. */
  readonly configuration?: string;
  /** The drop-ins by their path below the folder of the units. */
  readonly dropIns?: Readonly<Record<string, string>>;
}

/** A host with a mirror registry, in its own folder. */
export interface Fixture extends AsyncDisposable {
  readonly root: string;
  readonly home: string;
  readonly quayRoot: string;
  readonly unitFolder: string;
  write(path: string, content: string, mode?: number): Promise<void>;
  remove(): Promise<void>;
}

/** Installs a mirror registry into a temporary folder, without certificates. */
export async function makeFixture(options: FixtureOptions): Promise<Fixture> {
  const root = await mkdtemp(join(tmpdir(), 'mirror-registry-'));
  const { age, scope = 'system', hostname = 'registry.example.com:8443' } = options;
  const home = scope === 'user' ? '/home/quay' : '/root';
  const isFirst = /^1\.[012]\./.test(age);
  const quayRoot = options.quayRoot ?? (isFirst ? '/etc/quay-install' : `${home}/quay-install`);
  const unitFolder = scope === 'user' ? `${home}/.config/systemd/user` : '/etc/systemd/system';
  const write = async (path: string, content: string, mode = 0o644): Promise<void> => {
    await mkdir(dirname(join(root, path)), { recursive: true });
    await writeFile(join(root, path), content);
    await chmod(join(root, path), mode);
  };
  const storage = age === '1.0.0' ? `${quayRoot}/quay-storage` : 'quay-storage';
  const databaseStorage = age.startsWith('2.')
    ? 'sqlite-storage'
    : age.startsWith('1.3')
      ? 'pg-storage'
      : `${quayRoot}/pg-data`;
  const units = unitsOf({ quayRoot, storage, databaseStorage, publish: '8443:8443', extra: [], ...options });
  for (const [name, text] of Object.entries(units)) await write(`${unitFolder}/${name}`, text);
  for (const [name, text] of Object.entries(options.dropIns ?? {})) await write(`${unitFolder}/${name}`, text);
  const database = age.startsWith('2.')
    ? 'sqlite:////sqlite/quay_sqlite.db'
    : 'postgresql://user:password@localhost/quay';
  await write(
    `${quayRoot}/quay-config/config.yaml`,
    `# written by the installer
DATABASE_SECRET_KEY: 81540163748093725116230911
BUILDLOGS_REDIS:
  host: localhost
  password: strongpassword
  port: 6379
DB_URI: ${database}
PREFERRED_URL_SCHEME: https
SERVER_HOSTNAME: ${hostname.includes('[') ? `"${hostname}"` : hostname}
SETUP_COMPLETE: true
${options.configuration ?? ''}`,
    0o640,
  );
  const remove = (): Promise<void> => rm(root, { recursive: true, force: true });
  return { root, home, quayRoot, unitFolder, write, remove, [Symbol.asyncDispose]: remove };
}

/** Returns a function that installs registries, which are removed after each test of the present suite. */
export function openFixtures(): (options: FixtureOptions) => Promise<Fixture> {
  const fixtures: Fixture[] = [];
  afterEach(() => Promise.all(fixtures.splice(0).map((fixture) => fixture.remove())));
  return async (options) => {
    const fixture = await makeFixture(options);
    fixtures.push(fixture);
    return fixture;
  };
}
