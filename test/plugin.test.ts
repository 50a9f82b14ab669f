import { readFileSync } from 'node:fs';
import { expect } from 'chai';
import { parse } from 'yaml';
import manifest from '../package.json' with { type: 'json' };
import { mirrorRegistry } from '../cmd/mirror-registry/commands.ts';
import { releaseMirrorConfig } from '../cmd/release-mirror-config/commands.ts';
import { upgradeBundle } from '../cmd/upgrade-bundle/commands.ts';

interface Plugin {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  spec: {
    version: string;
    shortDescription: string;
    platforms: { uri: string; sha256: string; bin: string; files: { from: string; to: string }[] }[];
  };
}

for (const [file, program] of [
  ['plugin.yaml', upgradeBundle],
  ['plugin-release-mirror-config.yaml', releaseMirrorConfig],
  ['plugin-mirror-registry.yaml', mirrorRegistry],
] as const) {
  describe(file, () => {
    const plugin = parse(readFileSync(new URL(`../${file}`, import.meta.url), 'utf8')) as Plugin;

    it('is a krew manifest of this version', () => {
      expect(plugin.apiVersion).to.equal('krew.googlecontainertools.github.com/v1alpha2');
      expect(plugin.kind).to.equal('Plugin');
      expect(plugin.spec.version).to.equal(`v${manifest.version}`);
      expect(plugin.spec.shortDescription).to.have.length.within(1, 50);
    });

    it('has the name that is typed after oc', () => {
      expect(`oc ${plugin.metadata.name}`).to.equal(program.name);
    });

    it('installs on every platform the executable that is built, and the licence', () => {
      for (const { uri, sha256, bin, files } of plugin.spec.platforms) {
        expect(uri).to.match(/^https:.*\.tar\.gz$/);
        expect(sha256).to.match(/^[0-9a-f]{64}$/);
        expect(files.map(({ from }) => from)).to.deep.equal([`bin/${bin}`, 'LICENSE']);
      }
    });
  });
}
