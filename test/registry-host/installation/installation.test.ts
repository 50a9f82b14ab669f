import { expect } from 'chai';
import { parseReference } from '../../../lib/content/oci/reference.ts';
import { HostFiles } from '../../../lib/node/machine/hostFiles.ts';
import { certificatePathsOf, ownAuthority } from '../../../lib/registry-host/installation/installation.ts';
import { openFixtures } from '../../fakes/mirror-registry/mirrorRegistry.ts';
import { detectFixture } from '../../fakes/mirror-registry/mirrorRegistryPlan.ts';

describe('ownAuthority', () => {
  const install = openFixtures();
  /** Returns a function that tells the CA for an image, below the root of the host. */
  async function open(hostname: string, port = 8443, hasAuthority = true) {
    const fixture = await install({ age: '2.0.7', hostname, publish: `${port}:8443` });
    if (hasAuthority) await fixture.write(`${fixture.quayRoot}/quay-rootCA/rootCA.pem`, 'CA');
    const files = new HostFiles(fixture.root);
    const { installation } = await detectFixture(fixture);
    return async (image: string): Promise<string | undefined> =>
      (await ownAuthority({ files, installation }, parseReference(image)))?.slice(fixture.root.length);
  }
  const authority = '/root/quay-install/quay-rootCA/rootCA.pem';

  it('is that of the registry for its own images, and none for others', async () => {
    const find = await open('registry.example.com:8443');
    expect(await find('registry.example.com:8443/a/b:1')).to.equal(authority);
    for (const other of ['registry.example.com/a/b:1', 'registry.example.com:9443/a/b:1', 'quay.io/a/b:1'])
      expect(await find(other), other).to.equal(undefined);
  });

  it('is found without a port if the registry has the usual one', async () => {
    const find = await open('registry.example.com:443', 443);
    for (const image of ['registry.example.com/a/b:1', 'registry.example.com:443/a/b:1'])
      expect(await find(image), image).to.equal(authority);
  });

  it('is found by an address of IPv6', async () => {
    const find = await open('[fd00::5]:8443');
    expect(await find('[fd00::5]:8443/a/b:1')).to.equal(authority);
  });

  it('is none if the registry has no CA', async () => {
    const find = await open('registry.example.com:8443', 8443, false);
    expect(await find('registry.example.com:8443/a/b:1')).to.equal(undefined);
  });
});

describe('certificatePathsOf', () => {
  it('has the present CA and the next one below the root folder', () => {
    const { authority, next, nextKey } = certificatePathsOf({ quayRoot: { value: '/q', file: '', line: 0 } });
    expect([authority, next, nextKey]).to.deep.equal([
      '/q/quay-rootCA/rootCA.pem',
      '/q/quay-rootCA/next/rootCA.pem',
      '/q/quay-rootCA/next/rootCA.key',
    ]);
  });
});
