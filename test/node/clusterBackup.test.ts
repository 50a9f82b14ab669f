import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { expect } from 'chai';
import { digestOf } from '../../lib/content/oci/reference.ts';
import { backUpCluster, clusterBackup, listBackups, measureDatabase } from '../../lib/node/clusterBackup.ts';
import { type Host, backupFolder } from '../../lib/node/machine/host.ts';
import { findFault } from '../../lib/schema.ts';
import { makeBackupHost } from '../fakes/cluster/backupPrograms.ts';
import { ForgetfulDisk } from '../fakes/files/forgetfulDisk.ts';
import { makeContext } from '../support/context.ts';
import { failureOf } from '../support/program/failure.ts';
import { makeFolder, removeFolder } from '../support/release/mirrorDirectory.ts';

describe('backUpCluster', () => {
  let root: string;
  let host: Host;
  const request = { version: '4.19.3', purpose: 'uid 4.19.4' };
  const open = async (script?: string): Promise<void> => {
    host = await makeBackupHost(root, script);
  };
  const names = async (): Promise<string[]> => (await readdir(join(root, backupFolder)).catch(() => [])).sort();
  /** A script that writes the files of a backup with some content. */
  const writing = (snapshot: string): string =>
    `#!/bin/bash\ncd "$1"; tar -czf static_kuberesources_1.tar.gz -T /dev/null; ${snapshot} > snapshot_1.db\n`;

  beforeEach(async () => {
    root = await makeFolder();
  });
  afterEach(() => removeFolder(root));

  it('keeps a checked backup, and says where it is, of which version and for which update', async () => {
    await open();
    using disk = await ForgetfulDisk.open(root);
    const made = await backUpCluster(host, request, makeContext());
    const kept = disk.failPower();
    expect(made.path).to.match(/^\/home\/core\/assets\/backup\/oc-upgrade-bundle\/4\.19\.3-\d{8}T\d{6}Z$/);
    const folder = join(root, made.path);
    const [snapshot = ''] = (await readdir(folder)).filter((name) => name.startsWith('snapshot_'));
    const bytes = await readFile(join(folder, snapshot));
    expect(kept.get(join(made.path, snapshot).slice(1))?.equals(bytes)).to.equal(true);
    expect(made).to.include({ version: '4.19.3', size: bytes.length, digest: digestOf(bytes) });
    expect(await listBackups(host)).to.deep.equal([{ ...made, purpose: 'uid 4.19.4' }]);
  });

  it('keeps the last two, and removes the files of a killed run', async () => {
    await open();
    for (const name of ['4.18.1-20240101T000000Z', '4.18.2-20250101T000000Z', '4.18.3-1.partial']) {
      await mkdir(join(root, backupFolder, name), { recursive: true });
      const [version, stamp = ''] = name.split('-');
      const time = `${stamp.slice(0, 4)}-01-01T00:00:00Z`;
      const known = { version, time, size: 1, digest: `sha256:${'1'.repeat(64)}`, purpose: '' };
      await writeFile(join(root, backupFolder, name, 'backup.json'), JSON.stringify(known));
    }
    const { path } = await backUpCluster(host, request, makeContext());
    expect(await names()).to.deep.equal(['4.18.2-20250101T000000Z', path.split('/').at(-1)]);
    // An unreadable or incomplete record is no backup.
    for (const text of ['{', '{"time":"2026-01-01T00:00:00Z","size":1,"digest":"sha256:1"}']) {
      await writeFile(join(root, path, 'backup.json'), text);
      expect((await listBackups(host)).map(({ version }) => version)).to.deep.equal(['4.18.2']);
    }
  });

  it('copies it to a mounted drive, where it survives a power failure, and to no other folder', async () => {
    await open();
    await mkdir(join(root, 'mnt/none'), { recursive: true });
    const copyTo = '/mnt/none';
    const { message } = await failureOf(backUpCluster(host, { ...request, copyTo }, makeContext()), 'not-found');
    expect(message).to.equal('/mnt/none is not a folder of a mounted drive on this node');
    const drive = await mkdtemp('/dev/shm/backup-');
    try {
      await symlink(drive, join(root, 'mnt/drive'));
      using disk = await ForgetfulDisk.open(drive);
      const made = await backUpCluster(host, { ...request, copyTo: '/mnt/drive' }, makeContext());
      expect(made.copy).to.equal(`/mnt/drive/oc-upgrade-bundle-backup-${made.path.split('/').at(-1) ?? ''}`);
      expect(await readdir(drive)).to.deep.equal([made.copy?.split('/').at(-1)]);
      const copied = await readdir(join(root, made.copy ?? ''));
      const written = await Promise.all(copied.map((name) => readFile(join(root, made.copy ?? '', name))));
      const kept = [...disk.failPower()].map(([path, bytes]) => [basename(path), bytes] as const);
      expect(new Map(kept)).to.deep.equal(new Map(copied.map((name, index) => [name, written[index]])));
      expect(copied.sort()).to.deep.equal(
        (await readdir(join(root, made.path))).filter((name) => name !== 'backup.json').sort(),
      );
    } finally {
      await rm(drive, { recursive: true });
    }
  });

  it('copies it nowhere that a link on the drive leads to', async () => {
    await open();
    const [drive, elsewhere] = [await mkdtemp('/dev/shm/backup-'), await mkdtemp('/dev/shm/other-')];
    try {
      await mkdir(join(root, 'mnt'));
      await symlink(drive, join(root, 'mnt/drive'));
      await symlink(elsewhere, join(drive, 'backups'));
      const copyTo = '/mnt/drive/backups';
      await failureOf(backUpCluster(host, { ...request, copyTo }, makeContext()), 'not-writable');
      expect(await readdir(elsewhere)).to.deep.equal([]);
      expect(await names()).to.deep.equal([]);
    } finally {
      for (const folder of [drive, elsewhere]) await rm(folder, { recursive: true });
    }
  });

  const broken: readonly (readonly [
    what: string,
    script: string,
    code: 'command-failed' | 'incomplete',
    words: RegExp,
  ])[] = [
    [
      'the script fails',
      "#!/bin/sh\necho 'Currently the etcd operator is progressing.'\nexit 1\n",
      ...(['command-failed', /^cluster-backup\.sh failed: Currently the etcd operator is progressing\.$/] as const),
    ],
    ['the script writes nothing', '#!/bin/sh\n', 'incomplete', /no snapshot and static pods/],
    [
      'the archive lacks the static pods',
      writing('head -c 8224 /dev/zero'),
      'incomplete',
      /lacks the static pods kube-apiserver/,
    ],
  ];
  for (const [what, script, code, words] of broken) {
    it(`keeps nothing if ${what}`, async () => {
      await open(script);
      const { message } = await failureOf(backUpCluster(host, request, makeContext()), code);
      expect(message).to.match(words);
      expect(await names()).to.deep.equal([]);
    });
  }

  it('keeps nothing if the snapshot is incomplete or corrupt', async () => {
    const nothing = [...createHash('sha256').digest()].map((byte) => `\\${byte.toString(8).padStart(3, '0')}`).join('');
    for (const change of [
      'truncate -s -512 ',
      'printf corrupt | dd conv=notrunc status=none of=',
      `printf '${nothing}' >`,
    ]) {
      await open();
      const script = join(root, 'usr/bin/cluster-backup.sh');
      await writeFile(script, `${await readFile(script, 'utf8')}${change}"$snapshot"\n`);
      const { message } = await failureOf(backUpCluster(host, request, makeContext()), 'incomplete');
      expect(message).to.match(/^the snapshot of etcd is corrupt: /);
      expect(await names()).to.deep.equal([]);
    }
  });

  it('needs the script and room for the database', async () => {
    await open();
    expect(await measureDatabase(host)).to.equal(undefined);
    const database = join(root, 'var/lib/etcd/member/snap');
    await mkdir(database, { recursive: true });
    await writeFile(join(database, 'db'), '');
    // A file without content, larger than any disk of a test.
    await truncate(join(database, 'db'), 2 ** 43);
    expect(await measureDatabase(host)).to.equal(2 ** 43);
    const { message } = await failureOf(backUpCluster(host, request, makeContext()), 'disk-full');
    expect(message).to.match(/^a backup needs 16.0 TiB, and only .* are free at /);
    await rm(join(root, 'usr/bin/cluster-backup.sh'));
    await failureOf(backUpCluster(host, request, makeContext()), 'not-found');
  });
});

describe('the statement of a backup', () => {
  const backup = {
    path: join(backupFolder, '4.19.3-20261101T000000Z'),
    version: '4.19.3',
    time: '2026-11-01T00:00:00Z',
    size: 1,
    digest: digestOf(''),
    copy: '/mnt/drive/oc-upgrade-bundle-backup-4.19.3',
  };

  it('refuses fields that commands cannot be made of', () => {
    expect(findFault(clusterBackup, backup)).to.equal(undefined);
    expect(findFault(clusterBackup, { ...backup, copy: undefined })).to.equal(undefined);
    const wrong = {
      path: [
        '/etc',
        `${backupFolder}/../../etc`,
        join(backupFolder, 'a b'),
        join(backupFolder, '$(reboot)'),
        backupFolder,
      ],
      version: ['', '4.19', 'v4.19.3', '4.19.3; reboot'],
      time: ['', '2026', '2026-11-01T99:99:99Z'],
      size: [-1, 1.5, '1'],
      digest: ['', 'sha256:1'],
      copy: ['mnt', '/mnt/a\nb'],
    };
    for (const [field, values] of Object.entries(wrong))
      for (const value of values)
        expect(findFault(clusterBackup, { ...backup, [field]: value }), JSON.stringify(value)).to.deep.equal([field]);
  });
});
