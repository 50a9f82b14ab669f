import { appendFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { requireRuntimeStore, runPodman, type HostStorage } from '../../../lib/node/images/hostStorage.ts';
import { makeContext } from '../../support/context.ts';
import { run } from '../../support/peers.ts';
import { failureOf } from '../../support/program/failure.ts';
import { StoreHost } from '../../support/program/storeHost.ts';

describe('HostStorage', () => {
  let host: StoreHost;
  let folder: string;
  beforeEach(async () => {
    host = await StoreHost.make();
    ({ folder } = host);
    await host.write('more.conf', '[storage]', `graphroot = "${folder}/more"`);
  });
  afterEach(() => host[Symbol.asyncDispose]());

  const addProgram: StoreHost['addProgram'] = (...program) => host.addProgram(...program);
  /** `CONTAINERS_STORAGE_CONF_OVERRIDE` is read only by programs that read drop-ins. */
  const open = (): Promise<HostStorage> => host.open({ CONTAINERS_STORAGE_CONF_OVERRIDE: `${folder}/more.conf` });

  it('has the store that the skopeo of this machine names', async function () {
    if ((await run('skopeo', ['--version'])).code !== 0) this.skip();
    const { main } = await open();
    const isOld = / 1\.(?:[0-9]|1[0-9]|2[0-2])\./.test((await run('skopeo', ['--version'])).stdout);
    expect(main.graphRoot).to.equal(`${folder}/${isOld ? 'main' : 'more'}`);
  });

  it('has the store that skopeo names, and asks its version if it names none', async () => {
    await addProgram('skopeo', `echo 'reference "[vfs@${folder}/more+/run]localhost/x" does not resolve' >&2; exit 1`);
    expect((await open()).main.graphRoot).to.equal(`${folder}/more`);
    await addProgram('skopeo', `echo 'reference "[vfs@${folder}/main+/run]localhost/x" does not resolve' >&2; exit 1`);
    expect((await open()).main.graphRoot).to.equal(`${folder}/main`);
    for (const [version, name] of [
      ['1.22.2', 'main'],
      ['1.23.0', 'more'],
    ] as const) {
      await addProgram('skopeo', `[ "$1" = -v ] && echo skopeo version ${version} || exit 1`);
      expect((await open()).main.graphRoot, version).to.equal(`${folder}/${name}`);
    }
  });

  it('names its store to podman, with the program that mounts its overlays', async () => {
    await addProgram('podman', 'echo "$@"');
    await addProgram('skopeo', `echo 'reference "[vfs@${folder}/main+/run]localhost/x" does not resolve' >&2; exit 1`);
    const args = async (): Promise<string | undefined> =>
      (await runPodman(await open(), ['images'], makeContext()))?.stdout.trim();
    const store = `--root ${folder}/main --runroot ${folder}/run --storage-driver vfs`;
    expect(await args()).to.equal(`${store} images`);
    await appendFile(
      join(folder, 'storage.conf'),
      '[storage.options.overlay]\nmount_program = "/usr/bin/fuse-overlayfs"\n',
    );
    expect(await args()).to.equal(`${store} --storage-opt overlay.mount_program=/usr/bin/fuse-overlayfs images`);
  });

  describe('requireRuntimeStore', () => {
    const check = async (): Promise<string[]> => {
      const context = makeContext();
      await requireRuntimeStore(await open(), context);
      return context.lines.filter((line) => line.startsWith('warn'));
    };
    const crio = (root: string, images = ''): Promise<void> =>
      addProgram(
        'crio',
        '[ "$*" = "status info" ] || exit 2',
        `printf 'cgroup driver: systemd\\nstorage driver: overlay\\nstorage graph root: ${root}\\nstorage ` +
          `image: ${images}\\n'`,
      );
    beforeEach(() =>
      addProgram('skopeo', `echo 'reference "[vfs@${folder}/main+/run]localhost/x" does not resolve' >&2; exit 1`),
    );

    it('accepts the store of CRI-O, and a machine without CRI-O', async () => {
      expect(await check()).to.deep.equal([]);
      await crio(`${folder}/main/`);
      expect(await check()).to.deep.equal([]);
    });

    it('refuses another store than that of CRI-O', async () => {
      await crio('/var/lib/containers/storage');
      const { message, hint } = await failureOf(check(), 'unsupported');
      expect(message).to.equal(
        'images would not be loaded into the store of the node: CRI-O uses /var/lib/containers/storage, and skopeo ' +
          `would fill ${folder}/main`,
      );
      expect(hint).to.contain('graphroot in /etc/containers/storage.conf');
    });

    it('refuses a store that images have of their own', async () => {
      await crio(`${folder}/main`, '/var/lib/images');
      expect((await failureOf(check(), 'unsupported')).message).to.contain('CRI-O has an imagestore (/var/lib/images)');
      await host.write('storage.conf', '[storage]', `graphroot = "${folder}/main"`, 'imagestore = "/var/lib/images"');
      expect((await failureOf(check(), 'unsupported')).message).to.contain('storage.conf has an imagestore');
    });

    it('says that CRI-O does not answer', async () => {
      await addProgram('crio', 'echo dial unix: no such file >&2; exit 1');
      expect(await check()).to.deep.equal([
        `warn: CRI-O does not say which store it uses, ${folder}/main is loaded: dial unix: no such file`,
      ]);
    });
  });
});
