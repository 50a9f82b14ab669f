import type { StorageConfig, StorageRules } from '../../../lib/node/runtime/storageConfig.ts';

/** What a case expects. The rest is as without a file. */
type Expected = Partial<StorageConfig>;

/** A machine with some files of storage.conf, and the store that programs use there. */
export interface StorageCase {
  readonly name: string;
  /** The content of each file below the root; links point to a file of the case. */
  readonly files: Readonly<Record<string, string | { readonly link: string }>>;
  readonly environment?: Readonly<Record<string, string>>;
  readonly expected: Readonly<Record<StorageRules, Expected>>;
}

// podman 4.3.1 refuses a file without runroot.
const usualRun = '/run/containers/storage';
const graph = (root: string, more = '', run = usualRun): string =>
  `[storage]\nrunroot = "${run}"\ngraphroot = "/run/${root}"\n${more}`;
const at = (root: string): Expected => ({ graphRoot: `/run/${root}` });
const stores = (list: string): string => `[storage.options]\nadditionalimagestores = ${list}\n`;
const [etc, usr] = ['etc/containers/storage', 'usr/share/containers/storage'];
const same = (expected: Expected): StorageCase['expected'] => ({ 'one-file': expected, 'drop-ins': expected });

/**
 * The cases of storage.conf. Each was compared with `podman info`: `one-file` with podman 4.3.1, `drop-ins` with podman
 * 5.8.6 and 6.1.1 of Debian.
 */
export const storageCases: readonly StorageCase[] = [
  { name: 'no file', files: {}, expected: same({}) },
  { name: 'the file of the system', files: { [`${usr}.conf`]: graph('usr') }, expected: same(at('usr')) },
  {
    name: 'a file of the administrator, which replaces the whole file of the system',
    files: { [`${usr}.conf`]: graph('usr', '', '/run/usr-run'), [`${etc}.conf`]: graph('etc') },
    expected: same(at('etc')),
  },
  {
    name: 'a former name of the driver',
    files: { [`${etc}.conf`]: graph('etc', 'driver = "overlay2"\n') },
    expected: same(at('etc')),
  },
  {
    name: 'a drop-in beside a file',
    files: {
      [`${etc}.conf`]: graph('etc', '', '/run/etc-run'),
      [`${etc}.conf.d/20.conf`]: '[storage]\ngraphroot = "/run/twenty"\n',
    },
    expected: {
      'one-file': { ...at('etc'), runRoot: '/run/etc-run' },
      'drop-ins': { ...at('twenty'), runRoot: '/run/etc-run' },
    },
  },
  {
    name: 'a drop-in without a file',
    files: { [`${usr}.conf.d/20.conf`]: graph('twenty') },
    expected: { 'one-file': {}, 'drop-ins': at('twenty') },
  },
  {
    name: 'drop-ins of one name, of which the later folder counts',
    files: { [`${usr}.conf.d/20.conf`]: graph('usr', '', '/run/no'), [`${etc}.conf.d/20.conf`]: graph('etc') },
    expected: { 'one-file': {}, 'drop-ins': at('etc') },
  },
  {
    name: 'drop-ins by their names over all folders',
    files: { [`${usr}.conf.d/90.conf`]: graph('ninety'), [`${etc}.conf.d/10.conf`]: graph('ten') },
    expected: { 'one-file': {}, 'drop-ins': at('ninety') },
  },
  {
    name: 'drop-ins for root alone, and for other users',
    files: {
      [`${usr}.rootful.conf.d/50.conf`]: graph('rootful'),
      [`${etc}.conf.d/40.conf`]: graph('forty'),
      [`${etc}.rootless.conf.d/60.conf`]: graph('rootless'),
    },
    expected: { 'one-file': {}, 'drop-ins': at('rootful') },
  },
  {
    name: 'a drop-in for root that replaces one for all of the same folder',
    files: { [`${etc}.conf.d/50.conf`]: graph('all'), [`${etc}.rootful.conf.d/50.conf`]: graph('rootful') },
    expected: { 'one-file': {}, 'drop-ins': at('rootful') },
  },
  {
    name: 'files that are no drop-ins, and a link',
    files: {
      [`${etc}.conf`]: graph('etc'),
      [`${etc}.d/no.conf`]: graph('no'),
      [`${etc}.conf.d/90.conf.off`]: graph('off'),
      [`${etc}.conf.d/10.conf`]: { link: '../linked' },
      'etc/containers/linked': graph('linked'),
      [`${etc}.conf.d/95.conf`]: { link: '../absent' },
    },
    expected: { 'one-file': at('etc'), 'drop-ins': at('linked') },
  },
  {
    name: 'lists that are replaced',
    files: {
      [`${etc}.conf`]: graph('etc', stores('["/run/a"]')),
      [`${etc}.conf.d/20.conf`]: stores('["/run/b"]'),
    },
    expected: {
      'one-file': { ...at('etc'), additionalStores: ['/run/a'] },
      'drop-ins': { ...at('etc'), additionalStores: ['/run/b'] },
    },
  },
  {
    name: 'lists that are added',
    files: {
      [`${etc}.conf`]: graph('etc', stores('["/run/a"]')),
      [`${usr}.rootful.conf.d/00-vendor-additional-store.conf`]: stores('["/run/b", { append = true }]'),
      [`${etc}.conf.d/20.conf`]: stores('["/run/c"]'),
    },
    expected: {
      'one-file': { ...at('etc'), additionalStores: ['/run/a'] },
      'drop-ins': { ...at('etc'), additionalStores: ['/run/a', '/run/b', '/run/c'] },
    },
  },
  {
    name: 'a file that a variable names, alone',
    files: { 'run/own.conf': graph('own'), [`${etc}.conf`]: graph('etc'), [`${etc}.conf.d/20.conf`]: graph('twenty') },
    environment: { CONTAINERS_STORAGE_CONF: '/run/own.conf' },
    expected: same(at('own')),
  },
  {
    name: 'a file that a variable adds',
    files: {
      'run/more.conf': graph('more'),
      [`${etc}.conf`]: graph('etc'),
      [`${etc}.conf.d/20.conf`]: graph('twenty'),
    },
    environment: { CONTAINERS_STORAGE_CONF_OVERRIDE: '/run/more.conf' },
    expected: { 'one-file': at('etc'), 'drop-ins': at('more') },
  },
  {
    name: 'the folder of the user, by its variable',
    files: { 'run/xdg/containers/storage.conf': graph('xdg'), [`${etc}.conf`]: graph('etc') },
    environment: { XDG_CONFIG_HOME: '/run/xdg' },
    expected: same(at('xdg')),
  },
  {
    name: 'the folder of the user, in its home',
    files: {
      'run/home/.config/containers/storage.conf': graph('home'),
      'run/home/.config/containers/storage.conf.d/10.conf': '[storage]\nrunroot = "/run/home-run"\n',
      [`${etc}.conf`]: graph('etc'),
    },
    environment: { HOME: '/run/home' },
    expected: { 'one-file': at('etc'), 'drop-ins': { ...at('home'), runRoot: '/run/home-run' } },
  },
  {
    name: 'a driver that a variable names',
    files: { [`${etc}.conf`]: graph('etc', 'driver = "overlay"\n') },
    environment: { STORAGE_DRIVER: 'vfs' },
    expected: same({ ...at('etc'), driver: 'vfs' }),
  },
];
