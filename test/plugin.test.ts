import { basename, normalize } from 'node:path';
import { expect } from 'chai';
import { parse } from 'yaml';
import { archiveOf, krewManifests, platforms } from '../.config/krew.ts';
import { mirrorRegistry } from '../cmd/mirror-registry/commands.ts';
import { releaseMirrorConfig } from '../cmd/release-mirror-config/commands.ts';
import { upgradeBundle } from '../cmd/upgrade-bundle/commands.ts';
import manifest from '../package.json' with { type: 'json' };

interface Plugin {
  apiVersion: string;
  kind: string;
  metadata: { name: string };
  spec: {
    version: string;
    homepage: string;
    shortDescription: string;
    description: string;
    caveats: string;
    platforms: {
      selector: { matchLabels: { os: string; arch: string } };
      uri: string;
      sha256: string;
      bin: string;
      files: { from: string; to: string }[];
    }[];
  };
}

for (const program of [upgradeBundle, releaseMirrorConfig, mirrorRegistry]) {
  // krew takes a manifest only from a file with the name of the plugin.
  const file = `${program.name.replace(/^oc /, '')}.yaml`;
  describe(file, () => {
    const plugin = parse(krewManifests().get(file) ?? '') as Plugin;

    it('has the required fields of krew’s manifest format, and no unknown ones', () => {
      expect(Object.keys(plugin)).to.deep.equal(['apiVersion', 'kind', 'metadata', 'spec']);
      expect(plugin.apiVersion).to.equal('krew.googlecontainertools.github.com/v1alpha2');
      expect(plugin.kind).to.equal('Plugin');
      expect(plugin.metadata.name)
        .to.match(/^[\w-]+$/)
        .and.to.match(/^[a-z0-9]+(-[a-z0-9]+)*$/);
      const known = ['version', 'homepage', 'shortDescription', 'description', 'caveats', 'platforms'];
      expect(Object.keys(plugin.spec)).to.have.members(known);
      // A semantic version with a v, and the version of this package.
      expect(plugin.spec.version)
        .to.equal(`v${manifest.version}`)
        .and.to.match(/^v\d+\.\d+\.\d+(-[\w.-]+)?$/);
      expect(plugin.spec.homepage).to.match(/^https:\/\//);
      expect(plugin.spec.shortDescription)
        .to.have.length.within(1, 50)
        .and.to.match(/^[A-Z][^\n]*[^.\s]$/);
      for (const line of plugin.spec.description.split('\n')) expect(line).to.have.length.below(80);
      expect(plugin.spec.platforms).not.to.be.empty;
    });

    it('has the name that is typed after oc', () => {
      expect(`oc ${plugin.metadata.name}`).to.equal(program.name);
    });

    it('selects each platform once, and installs there an executable of the plugin’s own name, and the licences', () => {
      const selected = plugin.spec.platforms.map(({ selector }) => Object.values(selector.matchLabels).join('/'));
      expect(new Set(selected).size).to.equal(selected.length);
      for (const { selector, uri, sha256, bin, files, ...more } of plugin.spec.platforms) {
        expect(more).to.deep.equal({});
        expect(Object.keys(selector)).to.deep.equal(['matchLabels']);
        expect(platforms.map(({ krew }) => krew)).to.deep.include(selector.matchLabels);
        expect(uri).to.match(/^https:.*(\.tar\.gz|\.zip)$/);
        expect(platforms.map(archiveOf)).to.include(basename(uri));
        expect(sha256).to.match(/^[0-9a-f]{64}$/);
        const suffix = selector.matchLabels.os === 'windows' ? '.exe' : '';
        expect(bin).to.equal(`oc-${plugin.metadata.name.replaceAll('-', '_')}${suffix}`);
        expect(files.map(({ from }) => from)).to.deep.equal([
          `oc-disconnected${suffix}`,
          'LICENSE',
          'THIRD-PARTY-NOTICES',
        ]);
        expect(files.map(({ to }) => to)).to.deep.equal([bin, '.', '.']);
        for (const { from, to } of files) expect([normalize(from), normalize(to)]).to.deep.equal([from, to]);
      }
    });
  });
}

describe('krewManifests', () => {
  it('have the checksums of the archives, and leave out systems without an archive', () => {
    const [first] = platforms;
    const name = first ? archiveOf(first) : '';
    const sum = 'a'.repeat(64);
    for (const [, text] of krewManifests(new Map([[name, sum]]), 'https://dl.test/v1')) {
      const { platforms: offered } = (parse(text) as Plugin).spec;
      expect(offered.map(({ uri, sha256 }) => [uri, sha256])).to.deep.equal([[`https://dl.test/v1/${name}`, sum]]);
    }
  });
});
