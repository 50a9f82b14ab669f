import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { formatManifest } from '../../lib/config/manifest.ts';
import {
  formatTrustInstructions,
  formatUpdateServiceInstructions,
  updateServiceManifests,
  type UpdateServiceOptions,
} from '../../lib/config/updateService.ts';
import { isPluginError } from '../../lib/errors.ts';
import { expectGolden } from '../support/program/golden.ts';

const certificateAuthority = await readFile(new URL('../golden/config/registry-ca.crt', import.meta.url), 'utf8');
const options: UpdateServiceOptions = {
  releases: 'registry.example:5000/ocp4/release',
  graphDataImage: `registry.example:5000/ocp4/graph-data@sha256:${'1'.repeat(64)}`,
};

describe('updateServiceManifests', () => {
  it('makes the object that the operator of the update service wants', async () => {
    const manifests = updateServiceManifests(options);
    expect(manifests.map(({ path }) => path)).to.deep.equal(['config/update-service/updateservice.yaml']);
    for (const { path, object } of manifests) await expectGolden(path, formatManifest(object));
  });

  it('adds the ConfigMap with the certificate authority of each registry', () => {
    const graphDataImage = options.graphDataImage.replace('registry.example:5000', 'other.example');
    const [, authority] = updateServiceManifests({ ...options, graphDataImage, certificateAuthority });
    expect(authority?.path).to.equal('config/update-service/registry-ca.yaml');
    expect(Object.keys(authority?.object['data'] as object)).to.deep.equal([
      'updateservice-registry',
      'registry.example..5000',
      'other.example',
    ]);
  });

  it('wants a repository without a tag, and the graph-data image by digest', () => {
    const bad = [
      { ...options, releases: `${options.releases}:4.12.4-x86_64` },
      { ...options, graphDataImage: 'registry.example:5000/ocp4/graph-data:latest' },
    ];
    for (const each of bad) {
      expect(() => updateServiceManifests(each))
        .to.throw()
        .that.satisfies((error: unknown) => isPluginError(error, 'invalid-reference'));
    }
  });

  it('takes names only that leave the host of the route short enough', () => {
    for (const name of ['a', 'update-service', 'a'.repeat(18)]) {
      expect(updateServiceManifests({ ...options, name })[0]?.object.metadata.name).to.equal(name);
      expect(`${name}-policy-engine-route-openshift-update-service`).to.have.lengthOf.at.most(63);
    }
    for (const name of ['a'.repeat(19), '', '-a', 'a-', '1a', 'A', 'a.b']) {
      expect(() => updateServiceManifests({ ...options, name }), name)
        .to.throw(/cannot be the name/)
        .that.satisfies((error: unknown) => isPluginError(error, 'usage') && error.hint?.includes('18') === true);
    }
  });
});

describe('formatTrustInstructions and formatUpdateServiceInstructions', () => {
  it('name the commands that make the cluster trust the registry and use the service', async () => {
    const texts = [
      formatTrustInstructions({ ...options, certificateAuthority }),
      formatUpdateServiceInstructions(options),
    ];
    await expectGolden('config/update-service/instructions.txt', `${texts.join('\n\n')}\n`);
    expect(formatTrustInstructions(options)).to.equal('');
  });
});
