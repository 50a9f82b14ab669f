import { writeFile } from 'node:fs/promises';
import { expect } from 'chai';
import { addRelease, openWorkshop, type Workshop } from '../../support/content/creation.ts';
import { useDockerRegistry } from '../../support/dockerRegistry.ts';
import { requirePeer } from '../../support/peers.ts';
import { extraImage } from '../../support/release/extraImage.ts';
import { Mirroring, pullWhole } from '../../support/release/mirroring.ts';

describe('oc adm-release-mirror-config between registries', function () {
  requirePeer(this, 'docker-registry', 'skopeo');
  let workshop: Workshop;
  let mirroring: Mirroring;
  const site = useDockerRegistry();

  beforeEach(async () => {
    workshop = await openWorkshop();
    mirroring = new Mirroring(workshop);
  });
  afterEach(() => workshop.close());

  it('names the original sources in mirror sets if the release comes from an inner mirror', async () => {
    const { registry, release } = workshop;
    const tool = extraImage({ registry: registry.host, repository: 'tools/debug' });
    tool.addTo(registry.content);
    const inner = [`--to=${site.host}/inner/release`, '--config-to-dir=inner', `--additional-image=${tool.pullspec}`];
    const made = JSON.parse(await mirroring.succeed([...inner, '-o', 'json'])) as { mirrorSets: object[] };
    await writeFile(mirroring.path('idms.yaml'), made.mirrorSets.map((set) => JSON.stringify(set)).join('\n---\n'));
    registry.content.repositories.clear();
    const source = `${site.host}/inner/release@${release.digest}`;
    const named = `--additional-image=${site.host}/inner/tools/debug@${tool.digest}`;
    const enclave = [`--to=${site.host}/enclave/release`, '--idms-file=idms.yaml', named, '-o', 'json'];
    const outcome = JSON.parse(await mirroring.succeed(enclave, source)) as { mirrorSets: object[]; release: string };
    // The name of a mirror set depends on its content.
    const specs = (sets: object[]): string =>
      JSON.stringify(sets).replaceAll(/release-mirror-\w{8}/g, 'release-mirror');
    expect(specs(outcome.mirrorSets)).to.equal(specs(made.mirrorSets).replaceAll('/inner/', '/enclave/'));
    expect(outcome.release).to.equal(release.pullspec);
  });

  it('mounts blobs of a release that the same run put into another repository', async () => {
    const next = await addRelease(workshop, { version: '4.12.5' });
    const { code, stderr } = await mirroring.run(
      [`--to=${site.host}/each/\${version}`],
      `${workshop.release.pullspec},${next.pullspec}`,
    );
    expect(code, stderr).to.equal(0);
    const counts = [...stderr.matchAll(/^(\d+) blobs copied .*?(?:, (\d+) mounted.*)?$/gm)].map(
      ([, copied, mounted]) => [Number(copied), Number(mounted ?? 0)],
    );
    expect(counts).to.have.length(2);
    // The layers of the components are the same; only the configurations and the payload differ.
    expect(counts[1]?.[1]).to.be.at.least(5);
    expect(counts[1]?.[0]).to.be.lessThan(counts[0]?.[0] ?? 0);
    await pullWhole(`${site.host}/each/4.12.5:${next.tag}-rhel-coreos-8`, mirroring.path('copy'));
  });
});
