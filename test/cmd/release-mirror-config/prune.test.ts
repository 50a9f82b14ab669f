import { cp, readdir, rm, writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { type Digest, digestIn } from '../../../lib/content/oci/reference.ts';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { startRegistry } from '../../fakes/registry/registry.ts';
import { addRelease, openWorkshop, runExecutable, runProgram, type Workshop } from '../../support/content/creation.ts';
import { startDockerRegistry, useDockerRegistry } from '../../support/dockerRegistry.ts';
import { makeKubeconfigFolder } from '../../support/kubeconfig.ts';
import { requirePeer, runSuccessfully } from '../../support/peers.ts';
import type { Execution } from '../../support/program/execution.ts';
import { attachmentTag } from '../../support/release/attachments.ts';
import { listTags, Mirroring, pullWhole, readTagLinks } from '../../support/release/mirroring.ts';
import type { TestRelease } from '../../support/release/release.ts';

/** A run of `prune` as JSON. */
interface Pruned {
  readonly releases: { version: string; keep: boolean; reason?: string }[];
  readonly repositories: { manifests: Digest[]; foreign: string[]; needed: string[] }[];
  readonly files: string[];
  readonly bytes: number;
  readonly refusal?: string;
}

describe('oc adm-release-mirror-config prune', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  let old: TestRelease;
  const site = useDockerRegistry({ inMemory: false });

  before(async () => {
    const small = { components: ['cli', 'etcd'], layers: 1, baseLayers: 1 };
    workshop = await openWorkshop({ release: small });
    mirroring = new Mirroring(workshop);
    old = await addRelease(workshop, { ...small, version: '4.12.3', seed: 'old' });
    expect(workshop.release.version).to.equal('4.12.4');
    await mirroring.succeed(['--to-dir=both'], both());
    await mirroring.succeed([`--to=${site.host}/both/release`], both());
  });
  beforeEach(() => cp(mirroring.path('both'), mirroring.path('mirror'), { recursive: true, verbatimSymlinks: true }));
  afterEach(() => rm(mirroring.path('mirror'), { recursive: true, force: true }));
  after(() => workshop.close());

  const both = (): string => `${old.pullspec},${workshop.release.pullspec}`;
  const prune = (...args: string[]): Promise<Execution> =>
    runExecutable('oc-adm_release_mirror_config', workshop.folder, ['prune', '--insecure', ...args]);
  const succeed = async (...args: string[]): Promise<Pruned> => {
    const { code, stdout, stderr } = await prune(...args, '-o', 'json');
    expect(code, stderr).to.equal(0);
    return JSON.parse(stdout) as Pruned;
  };
  const tagsOf = ({ tag, images, digest }: TestRelease): string[] => [
    tag,
    attachmentTag(digest),
    ...[...images.keys()].map((name) => `${tag}-${name}`),
  ];

  it('removes the releases that are not kept from a registry, with their signatures, and nothing else', async () => {
    const to = `${site.host}/site/release`;
    await site.addTo('site/release', 'both/release');
    const copy = ['copy', '--all', '--preserve-digests', '--src-tls-verify=false', '--dest-tls-verify=false'];
    const [own] = [...old.images.values()];
    // Another tag leads to an image of the release that goes.
    await runSuccessfully('skopeo', [...copy, `docker://${own?.pullspec ?? ''}`, `docker://${to}:site-tool`]);
    const before = await listTags(to);

    const plan = await prune(`--to=${to}`, '--keep=4.12.4');
    expect(plan.stdout)
      .to.match(/^4\.12\.3-x86_64 +3 +remove$/m)
      .and.match(/^4\.12\.4-x86_64 +3 +keep$/m);
    expect(plan.stdout).to.contain('Nothing was removed').and.contain('1 tag (site-tool)');
    expect(await listTags(to)).to.have.members(before);

    const done = await succeed(`--to=${to}`, '--keep=4.12.4', '--yes');
    expect(done.bytes).to.be.greaterThan(10_000);
    const left = await listTags(to);
    expect(left).to.include.members([...tagsOf(workshop.release), 'site-tool', `${old.tag}-${own?.name ?? ''}`]);
    expect(left.filter((tag) => tag.startsWith(old.tag))).to.deep.equal([`${old.tag}-${own?.name ?? ''}`]);
    expect(left).not.to.include(attachmentTag(old.digest)).and.not.to.include('prune-unfinished');
    await pullWhole(`${to}:site-tool`, mirroring.path('tool'));
    for (const tag of tagsOf(workshop.release)) await pullWhole(`${to}:${tag}`, mirroring.path(`copy-${tag}`));
    const again = await prune(`--to=${to}`, '--keep=4.12.4');
    expect(again.stdout).to.contain('There is nothing to remove.');
  });

  it('says that a registry does not delete, in the plan already', async () => {
    await using fixed = await startDockerRegistry({ storage: site.storage, deletes: false });
    const to = `${fixed.host}/both/release`;
    const before = await listTags(to);
    const plan = await prune(`--to=${to}`, '--keep=4.12.4');
    expect(plan.stdout).to.contain('does not delete images: it answered 405').and.contain('delete.enabled');
    const { code, stderr } = await prune(`--to=${to}`, '--keep=4.12.4', '--yes');
    expect(code).to.equal(1);
    expect(stderr).to.contain('does not delete images');
    expect(await listTags(to)).to.have.members(before);
  });

  it('quotes a registry that is read-only', async () => {
    await using own = await startRegistry({ deletes: 'tags only' });
    const to = `--to=${own.host}/site/release`;
    await mirroring.succeed([to], both());
    const body = JSON.stringify({ errors: [{ code: 'DENIED', message: 'System is currently read-only.' }] });
    own.fault(/^DELETE/, { answer: { status: 405, body } });
    expect((await prune(to, '--keep=4.12.4')).stdout).to.contain(
      'answered 405 (DENIED: System is currently read-only.)',
    );
  });

  for (const deletes of ['with tags', 'without tags', 'tags only'] as const) {
    it(`leaves no tag in a registry that deletes ${deletes}`, async () => {
      await using own = await startRegistry({ deletes });
      const to = `--to=${own.host}/site/release`;
      await mirroring.succeed([to], both());
      await succeed(to, '--keep=4.12.4', '--yes');
      const tags = [...(own.content.repositories.get('site/release')?.tags.keys() ?? [])];
      expect(tags).to.include.members(tagsOf(workshop.release));
      expect(tags.filter((tag) => /^(?:4\.12\.3|prune)-/.test(tag) || tagsOf(old).includes(tag))).to.deep.equal([]);
      expect((await prune(to, '--keep=4.12.4')).stdout).to.contain('There is nothing to remove.');
    });
  }

  it('removes releases from a registry whose token server knows no action to delete', async () => {
    const user = { username: 'ci', password: 'a:b' };
    await using own = await startRegistry({
      deletes: 'tags only',
      bearer: { ...user, scopes: /^repository:[^:]+:(?:pull|push)(?:,(?:pull|push))*$/ },
    });
    await writeFile(mirroring.path('auth.json'), JSON.stringify({ auths: { [own.host]: user } }));
    for (const folder of ['site', '${version}']) {
      const to = [`--to=${own.host}/${folder}/release`, '-a', 'auth.json'];
      await mirroring.succeed(to, both());
      await succeed(...to, '--keep=4.12.4', '--yes');
      const former = own.content.repositories.get(`${folder.replace('${version}', '4.12.3')}/release`);
      expect([...(former?.tags.keys() ?? ['none'])])
        .to.not.include.members([old.tag])
        .and.not.include('none');
    }
  });

  it('removes releases from a directory, with files of the config folder, and leaves a verified mirror', async () => {
    await mirroring.succeed(['--to-dir=mirror', '--release-image-signature-to-dir=mirror/config'], both());
    await mirroring.succeed(['--to-dir=alone'], workshop.release.pullspec);
    const plan = await succeed('--to-dir=mirror', '--keep=4.12.4');
    expect(plan.files).to.have.length(2);
    const done = await succeed('--to-dir=mirror', '--keep=4.12.4', '--yes');
    expect(done.bytes).to.equal(plan.bytes);
    const blobs = (root: string): Promise<string[]> => readdir(mirroring.path(root, 'v2/openshift/release/blobs'));
    expect(await blobs('mirror')).to.have.members(await blobs('alone'));
    const links = async (root: string): Promise<string[]> => [...(await readTagLinks(mirroring.path(root))).keys()];
    expect(await links('mirror')).to.have.members(await links('alone'));
    const trust = `--trust-fingerprint=${workshop.key.fingerprint}`;
    const verified = await runProgram(workshop.folder, 'verify', ['mirror', trust]);
    expect(verified.code, verified.stdout + verified.stderr).to.equal(0);
  });

  it('refuses to keep a release that is not there, and to keep none', async () => {
    const missing = await prune('--to-dir=mirror', '--keep=4.12.9', '--yes');
    expect(missing.code).to.equal(1);
    expect(missing.stderr).to.match(/has no release 4\.12\.9 to keep\nhint: It has 4\.12\.3-x86_64, 4\.12\.4-x86_64/);
    expect((await prune('--to-dir=mirror')).code).to.equal(2);
    expect((await prune('--keep=4.12.4')).code).to.equal(2);
  });

  describe('with a cluster', () => {
    const withCluster = async (
      objects: readonly object[],
      use: (kubeconfig: string) => Promise<void>,
      history: readonly object[] = [],
    ): Promise<void> => {
      await using server = await startApiServer({ openshift: '4.20.3' });
      await using folder = await makeKubeconfigFolder();
      const version = server.find('config.openshift.io/v1', 'ClusterVersion', 'version');
      const status = version?.['status'] as { history: object[] };
      server.put({ ...version, status: { ...status, history: [...status.history, ...history] } });
      for (const object of objects) server.put(object as never);
      await use(`--kubeconfig=${await folder.write({ cluster: { server: server.url } })}`);
    };

    it('keeps the releases in its history', async () => {
      const run = { version: '4.12.3', state: 'Completed', image: `registry.test/x@${old.digest}`, startedTime: 'x' };
      await withCluster(
        [],
        async (kubeconfig) => {
          const done = await succeed('--to-dir=mirror', '--keep=4.12.4', '--yes', kubeconfig);
          expect(done.releases.map(({ keep, reason }) => [keep, reason])).to.deep.equal([
            [true, 'cluster'],
            [true, 'named'],
          ]);
        },
        [run],
      );
    });

    it('keeps images that pods run or nodes have pinned', async () => {
      const [first, second] = [...old.images.values()];
      const pod = {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'debug', namespace: 'default' },
        spec: { containers: [{ name: 'x', image: first?.pullspec }] },
      };
      const pin = {
        apiVersion: 'machineconfiguration.openshift.io/v1',
        kind: 'PinnedImageSet',
        metadata: { name: 'own' },
        spec: { pinnedImages: [{ name: second?.pullspec }] },
      };
      await withCluster(
        [{ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'default' } }, pod, pin],
        async (kubeconfig) => {
          const done = await succeed('--to-dir=mirror', '--keep=4.12.4', '--yes', kubeconfig);
          expect(done.repositories[0]?.needed).to.have.length(2);
          const links = await readTagLinks(mirroring.path('mirror'));
          expect([...links.values()]).to.include.members([first, second].map((each) => digestIn(each?.pullspec ?? '')));
          expect([...links.keys()]).not.to.include(old.tag);
        },
      );
    });

    it('removes nothing if the named context does not exist', async () => {
      const args = ['--to-dir=mirror', '--keep=4.12.4', '--yes'];
      await withCluster([], async (kubeconfig) => {
        for (const named of [[kubeconfig, '--context=typo'], ['--context=typo']]) {
          const { code, stderr } = await prune(...args, ...named);
          expect(code, named.join(' ')).to.equal(1);
          expect(stderr).to.contain('cannot be asked which images it needs').and.contain('--ignore-cluster');
        }
      });
      expect([...(await readTagLinks(mirroring.path('mirror'))).keys()]).to.include(old.tag);
    });

    it('removes nothing if it does not answer, unless it is left out', async () => {
      const args = ['--to-dir=mirror', '--keep=4.12.4', '--yes', '--server=https://127.0.0.1:1'];
      const { code, stderr } = await prune(...args);
      expect(code).to.equal(1);
      expect(stderr).to.contain('cannot be asked which images it needs').and.contain('--ignore-cluster');
      await succeed(...args, '--ignore-cluster');
    });
  });
});
