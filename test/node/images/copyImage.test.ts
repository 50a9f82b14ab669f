import { existsSync } from 'node:fs';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import {
  copyImage,
  copyPrograms,
  findCopyProgram,
  prepareWork,
  type CopyProgram,
  type CopySetting,
} from '../../../lib/node/images/copyImage.ts';
import { readRegistries, readToml, stringsOf } from '../../../lib/node/runtime/storageConfig.ts';
import { makeContext } from '../../support/context.ts';
import { failureOf } from '../../support/program/failure.ts';
import { StoreHost } from '../../support/program/storeHost.ts';

const digest = digestOf('etcd');
const image = { name: `quay.io/openshift/etcd@${digest}`, digest };

describe('copies into an image store', () => {
  let host: StoreHost;
  let setting: CopySetting;

  const open = async (): Promise<CopySetting> => {
    const storage = await host.open();
    const [server, work] = ['127.0.0.1:41234', join(host.folder, 'work')];
    return { host: storage.host, store: storage.main, rules: storage.rules, server, work };
  };
  const readWork = (name: string): Promise<string> => readFile(join(setting.work, name), 'utf8');
  beforeEach(async () => {
    host = await StoreHost.make();
    setting = await open();
  });
  afterEach(() => host[Symbol.asyncDispose]());

  it('take skopeo before podman, and need one of them', async () => {
    const root = host.folder;
    const machine = { root, environment: {} };
    const { message, hint } = await failureOf(findCopyProgram(machine), 'not-found');
    expect(message).to.equal(`the machine at ${root} has neither skopeo nor podman`);
    expect(hint).to.contain('install it');
    for (const name of ['podman', 'skopeo'] as const) {
      await host.addProgram(`usr/bin/${name}`);
      expect(await findCopyProgram(machine)).to.equal(name);
    }
  });

  describe('prepareWork', () => {
    it('begins with an empty folder that only this user can enter, for temporary files', async () => {
      await mkdir(join(setting.work, 'tmp'), { recursive: true });
      await writeFile(join(setting.work, 'tmp/layer'), 'of a killed run');
      expect(await prepareWork([image], setting)).to.equal(setting);
      expect(existsSync(join(setting.work, 'tmp/layer'))).to.equal(false);
      expect((await stat(join(setting.work, 'tmp'))).mode & 0o777).to.equal(0o700);
    });

    it('sends the pulls of each repository to the server, and reads its signatures', async () => {
      const others = ['quay.io/openshift/release', 'registry.site.example:5000/own'];
      const names = [image.name, ...others.map((name) => `${name}@${digest}`), image.name];
      await prepareWork(
        names.map((name) => ({ name, digest })),
        setting,
      );
      const text = await readWork('registries.conf');
      expect([...readRegistries(text, '').keys()]).to.deep.equal(['quay.io/openshift/etcd', ...others]);
      expect(stringsOf(readToml(text, ''), 'registry.location')).to.deep.equal([
        '127.0.0.1:41234/openshift/etcd',
        '127.0.0.1:41234/openshift/release',
        '127.0.0.1:41234/own',
      ]);
      expect(await readWork('.config/containers/registries.d/bundle.yaml')).to.contain(
        'use-sigstore-attachments: true',
      );
    });

    it('has a storage.conf without additional stores if the host has some', async () => {
      const roots = [`graphroot = "${host.folder}/main"`, 'driver = "vfs"'];
      const more = ['[storage.options]', `additionalimagestores = ["${host.folder}/other"]`];
      await host.write('storage.conf', '[storage]', ...roots, ...more);
      const { storageConfig } = await prepareWork([image], await open());
      const path = join(setting.work, 'storage.conf');
      expect(storageConfig).to.deep.equal({ CONTAINERS_STORAGE_CONF: path });
      const values = readToml(await readFile(path, 'utf8'), path);
      expect(stringsOf(values, 'storage.graphroot')).to.deep.equal([`${host.folder}/main`]);
      expect(stringsOf(values, 'storage.options.additionalimagestores')).to.deep.equal([]);
    });
  });

  describe('copyImage', () => {
    const copy = async (program: CopyProgram, changes: Partial<CopySetting> = {}): Promise<void> =>
      copyImage(program, image, { ...setting, ...changes }, makeContext());
    /** Adds a program that writes what it got into files, and then runs more commands. */
    const addProgram = (name: CopyProgram, ...lines: string[]): Promise<void> =>
      host.addProgram(
        name,
        `printf '%s\\n' "$@" >${host.folder}/args`,
        `nice >${host.folder}/nice`,
        `env >${host.folder}/env`,
        ...lines,
      );
    const readLines = async (name: string): Promise<string[]> =>
      (await readFile(join(host.folder, name), 'utf8')).trim().split('\n');

    it('has skopeo copy the digest from the server under the name of the image, without credentials', async () => {
      await addProgram('skopeo');
      await copy('skopeo');
      const args = await readLines('args');
      expect(args.slice(-2)).to.deep.equal([
        `docker://127.0.0.1:41234/openshift/etcd@${digest}`,
        `containers-storage:${image.name}`,
      ]);
      expect(args).to.include.members(['--preserve-digests', '--src-no-creds', '--src-tls-verify=false']);
      expect(args[args.indexOf('--registries.d') + 1]).to.equal(join(setting.work, '.config/containers/registries.d'));
    });

    it('has podman pull the image by its name, with the configuration of the work folder alone', async () => {
      await addProgram('podman');
      await copy('podman');
      expect((await readLines('args')).slice(-3)).to.deep.equal([
        '--signature-policy',
        join(setting.work, 'policy.json'),
        image.name,
      ]);
      expect(await readLines('env')).to.include.members([
        `HOME=${setting.work}`,
        `CONTAINERS_REGISTRIES_CONF=${setting.work}/registries.conf`,
      ]);
    });

    for (const program of copyPrograms) {
      it(`runs ${program} with low priority, its temporary files in the work folder, and the storage.conf of it`, async () => {
        await addProgram(program);
        await copy(program, { storageConfig: { CONTAINERS_STORAGE_CONF: '/other.conf' } });
        expect(await readLines('env')).to.include.members([
          `TMPDIR=${setting.work}/tmp`,
          'CONTAINERS_STORAGE_CONF=/other.conf',
        ]);
        expect(await readLines('nice')).to.deep.equal(['19']);
      });
    }

    for (const printed of ['write /x: no space left on device', 'mkdir /x: Disk quota exceeded']) {
      it(`says that the file system of the store is full after “${printed}”`, async () => {
        await addProgram('skopeo', `echo '${printed}' >&2; exit 1`);
        const { message, hint, cause } = await failureOf(copy('skopeo'), 'disk-full');
        expect(message).to.equal(`the file system of the image store ${host.folder}/main is full`);
        expect(hint).to.contain('loaded images are skipped');
        expect((cause as Error).message).to.equal(printed);
      });
    }

    it('names the output of the program, without its timestamp, or else its exit code', async () => {
      await addProgram('skopeo', `echo 'time="2026-01-01T00:00:00Z" level=fatal msg="no such manifest"' >&2; exit 1`);
      expect((await failureOf(copy('skopeo'), 'incomplete')).message).to.equal('skopeo failed: "no such manifest"');
      await addProgram('podman', 'exit 125');
      expect((await failureOf(copy('podman'), 'incomplete')).message).to.equal('podman failed: exit code 125');
    });
  });
});
