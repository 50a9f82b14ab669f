import { findRevertible, findUnfinished, type Revertible } from '#registry-host/change';
import { listChangedUnits, readState } from '#registry-host/detect';
import type { Inherited, Installation } from '#registry-host/installation';
import { Lines } from '#text';
import { defineCommand } from '../cli/command.ts';
import { formatTable } from '../cli/format.ts';
import { outputOption } from '../cli/options.ts';
import { findInstallation, registryHostOptions } from './options.ts';
import { describeUnfinished } from './planReport.ts';

/** `status`: shows the mirror registry of this host. */
export const command = defineCommand({
  details:
    'Reads the systemd units with their drop-ins and the configuration of Quay. Runs no program and writes nothing. ' +
    'With --root, it reads the mounted disk of a host that is down.',
  options: { ...outputOption(), ...registryHostOptions },
  examples: [
    ['', 'Show the mirror registry of this host'],
    ['--scope=user --user-home=/home/quay', 'Show the mirror registry of another user'],
    ['--root=/mnt -o json', 'Show the mirror registry of a mounted disk, for a script'],
  ],
  async run(args, { terminal, environment, context }) {
    const detected = await findInstallation(args, environment);
    const { installation, files } = detected;
    const state = await readState(files, installation);
    const changedUnits = state ? listChangedUnits(state, detected) : [];
    const { lastUpgrade } = state ?? {};
    const unfinished = await findUnfinished(detected, context);
    const rollback = await findRevertible(detected);
    const result = {
      ...installation,
      ...(state && { lastUpgrade, changedUnits }),
      unfinished,
      rollback,
    };
    const notes = [
      ...(unfinished ? [describeUnfinished(unfinished)] : []),
      ...(rollback ? [describeRevertible(rollback)] : []),
    ];
    const words = describeInstallation(installation, lastUpgrade, changedUnits, notes);
    await terminal.printResult(args.output, result, words);
  },
});

const databases = { sqlite: 'SQLite', postgres: 'PostgreSQL' } as const;

function describeInstallation(
  installation: Installation,
  lastUpgrade: string | undefined,
  changedUnits: readonly string[],
  changes: readonly string[],
): Lines {
  const { version, quayVersion, scope, database, images, additions, dropIns, remarks } = installation;
  const title =
    `Mirror registry ${version ?? '(no release)'} with Quay ${quayVersion ?? '(its own image)'}, ` +
    `${databases[database]}, ${scope} scope`;
  const settings: [string, Inherited<string | number> | undefined][] = [
    ['host', installation.host],
    ['port', installation.port],
    ['folder', installation.quayRoot],
    ['images in', installation.storage],
    ['database in', installation.databaseStorage],
    ...Object.entries(images).map(([name, image]): [string, Inherited<string>] => [`${name} image`, image]),
    ...additions.map((addition): [string, Inherited<string>] => [`added to ${addition.unit}`, addition]),
  ];
  const rows = settings.flatMap(([name, setting]) =>
    setting ? [[name, String(setting.value), placeOf(setting)]] : [],
  );
  const notes = [
    ...dropIns.map((path) => `drop-in: ${path}`),
    ...remarks,
    ...(lastUpgrade === undefined ? [] : [`last upgraded by this program on ${lastUpgrade.slice(0, 10)}`]),
    ...changes,
    ...changedUnits.map((path) => `changed since then: ${path}`),
  ];
  const table = formatTable([['SETTING', 'VALUE', 'FROM'], ...rows]);
  return new Lines(title, '', table, ...(notes.length > 0 ? ['', ...notes.map((note) => `note: ${note}`)] : []));
}

function describeRevertible({ title, begun, images, version }: Revertible): string {
  const what = `'rollback' reverts ${title} of ${begun.slice(0, 10)}`;
  if (images.length === 0) return what;
  const bundle = version === undefined ? 'a bundle of them' : `a bundle of release ${version}`;
  return `${what}. If podman loses ${images.join(' and ')}, it needs ${bundle}: rollback --bundle=FILE`;
}

function placeOf({ file, line }: Inherited<unknown>): string {
  return line === 0 ? file : `${file}:${line}`;
}
