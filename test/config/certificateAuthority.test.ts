import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { keepAuthorities, registryAuthorityConfigMap } from '../../lib/config/certificateAuthority.ts';
import { formatManifest } from '../../lib/config/manifest.ts';
import { isPluginError } from '../../lib/errors.ts';
import { expectGolden } from '../support/program/golden.ts';

const certificate = await readFile(new URL('../golden/config/registry-ca.crt', import.meta.url), 'utf8');

describe('registryAuthorityConfigMap', () => {
  it('has a key for each registry, and the key that the update service reads', async () => {
    const { path, object } = registryAuthorityConfigMap({
      certificates: certificate,
      registries: ['registry.example:5000', 'registry.example', 'registry.example:5000'],
    });
    expect(Object.keys(object['data'] as object)).to.deep.equal([
      'updateservice-registry',
      'registry.example..5000',
      'registry.example',
    ]);
    await expectGolden(path, formatManifest(object));
  });

  it('takes the name of the ConfigMap that the cluster uses', () => {
    const { object } = registryAuthorityConfigMap({ certificates: certificate, registries: [], name: 'theirs' });
    expect(object.metadata).to.deep.equal({ name: 'theirs', namespace: 'openshift-config' });
  });

  it('takes only certificates, each once, with any line ends', () => {
    const secret = '-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n';
    const text = `subject=CN=x\n${secret}${certificate}${certificate.replaceAll('\n', '\r\n')}`;
    const { object } = registryAuthorityConfigMap({ certificates: text, registries: [] });
    expect(object['data']).to.deep.equal({ 'updateservice-registry': certificate });
  });

  it('refuses a file without a certificate or with a corrupt one, and does not quote it', () => {
    const damaged = certificate.replace(/MII/, 'MIA');
    for (const text of ['', 'secret', '-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n', damaged]) {
      expect(() => registryAuthorityConfigMap({ certificates: text, registries: [] }))
        .to.throw()
        .that.satisfies((error: unknown) => isPluginError(error, 'invalid-file') && !error.message.includes('secret'));
    }
  });

  it('refuses a registry that cannot be a key', () => {
    expect(() => registryAuthorityConfigMap({ certificates: certificate, registries: ['[::1]:5000'] }))
      .to.throw(/\[::1\]:5000/)
      .that.satisfies((error: unknown) => isPluginError(error, 'usage'));
  });

  it('refuses more than a ConfigMap can hold', () => {
    const registries = Array.from({ length: 3000 }, (_, index) => `r${index}.example`);
    expect(() => registryAuthorityConfigMap({ certificates: certificate, registries })).to.throw(
      /larger than a ConfigMap/,
    );
  });
});

describe('keepAuthorities', () => {
  const { object } = registryAuthorityConfigMap({ certificates: certificate, registries: [] });
  const stored = { data: { 'other.test': 'PEM', 'updateservice-registry': 'old' } };

  it('keeps the authorities of other registries', () => {
    expect(keepAuthorities(object, stored)['data']).to.deep.equal({
      'other.test': 'PEM',
      'updateservice-registry': certificate,
    });
    expect(keepAuthorities(object, undefined)).to.deep.equal(object);
  });

  it('changes no other object', () => {
    const others = [
      { ...object, kind: 'Secret' },
      { ...object, metadata: { ...object.metadata, namespace: 'default' } },
      { ...object, data: { 'ca-bundle.crt': certificate } },
    ];
    for (const other of others) expect(keepAuthorities(other, stored)).to.deep.equal(other);
  });
});
