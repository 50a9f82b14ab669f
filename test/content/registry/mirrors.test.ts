import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { formatReference, parseReference } from '../../../lib/content/oci/reference.ts';
import { MirrorSets, readMirrorSets } from '../../../lib/content/registry/mirrors.ts';
import { isPluginError } from '../../../lib/errors.ts';

const digest = `sha256:${'a'.repeat(64)}`;

describe('readMirrorSets', () => {
  let folder: string;
  let file: string;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), 'mirrors-'));
    file = join(folder, 'idms.yaml');
  });
  after(() => rm(folder, { recursive: true }));

  const read = async (text: string) => {
    await writeFile(file, text);
    return await readMirrorSets(file);
  };
  const locations = (sets: MirrorSets, image: string) => sets.locationsOf(parseReference(image)).map(formatReference);
  const idms = (entries: string) => `
apiVersion: config.openshift.io/v1
kind: ImageDigestMirrorSet
metadata: {name: example}
spec:
  imageDigestMirrors:
${entries}`;

  it('puts the mirrors first, in their order, and the source last', async () => {
    const sets = await read(idms('  - {source: quay.io/ocp, mirrors: [mirror.lab:5000/a, other.lab/b]}'));
    expect(locations(sets, `quay.io/ocp/release@${digest}`)).to.deep.equal([
      `mirror.lab:5000/a/release@${digest}`,
      `other.lab/b/release@${digest}`,
      `quay.io/ocp/release@${digest}`,
    ]);
  });

  it('leads from a mirror to its sources, which are no patterns', async () => {
    const sets = await read(
      idms(`
  - {source: quay.io/ocp, mirrors: [mirror.lab/a]}
  - {source: '*.quay.io', mirrors: [mirror.lab/a]}`),
    );
    const originals = sets.originalsOf(parseReference(`mirror.lab/a/release@${digest}`)).map(formatReference);
    expect(originals).to.deep.equal([`quay.io/ocp/release@${digest}`]);
    expect(sets.originalsOf(parseReference(`mirror.lab/ab@${digest}`))).to.deep.equal([]);
  });

  it('keeps a tag beside the digest', async () => {
    const sets = await read(idms('  - {source: quay.io/ocp/release, mirrors: [mirror.lab/r]}'));
    expect(locations(sets, `quay.io/ocp/release:4.12@${digest}`)[0]).to.equal(`mirror.lab/r:4.12@${digest}`);
  });

  it('matches at slashes only', async () => {
    const sets = await read(idms('  - {source: quay.io/ocp, mirrors: [mirror.lab/a]}'));
    for (const image of [`quay.io/ocp-v4/x@${digest}`, `quay.io:443/ocp/x@${digest}`, `myquay.io/ocp/x@${digest}`]) {
      expect(locations(sets, image)).to.deep.equal([image]);
    }
  });

  it('lets the longest source win, at any position', async () => {
    const sets = await read(
      idms(`
  - {source: quay.io, mirrors: [mirror.lab]}
  - {source: quay.io/ocp/release, mirrors: [mirror.lab/long]}
  - {source: quay.io/ocp, mirrors: [mirror.lab/short]}`),
    );
    expect(locations(sets, `quay.io/ocp/release@${digest}`)[0]).to.equal(`mirror.lab/long@${digest}`);
    expect(locations(sets, `quay.io/ocp/art@${digest}`)[0]).to.equal(`mirror.lab/short/art@${digest}`);
    expect(locations(sets, `quay.io/x/y@${digest}`)[0]).to.equal(`mirror.lab/x/y@${digest}`);
  });

  it('matches the hosts below a wildcard, and not the domain itself', async () => {
    const sets = await read(idms('  - {source: "*.example.com", mirrors: [mirror.lab/all]}'));
    expect(locations(sets, `a.b.example.com/x/y@${digest}`)[0]).to.equal(`mirror.lab/all/x/y@${digest}`);
    expect(locations(sets, `example.com/x/y@${digest}`)).to.have.length(1);
    expect(locations(sets, `quay.io/a.example.com/y@${digest}`)).to.have.length(1);
  });

  it('uses digest mirrors for digests and tag mirrors for tags', async () => {
    const sets = await read(`${idms('  - {source: quay.io/ocp, mirrors: [digests.lab/ocp]}')}
---
apiVersion: config.openshift.io/v1
kind: ImageTagMirrorSet
spec: {imageTagMirrors: [{source: quay.io/ocp, mirrors: [tags.lab/ocp]}]}
`);
    expect(locations(sets, `quay.io/ocp/r@${digest}`)[0]).to.equal(`digests.lab/ocp/r@${digest}`);
    expect(locations(sets, 'quay.io/ocp/r:1')).to.deep.equal(['tags.lab/ocp/r:1', 'quay.io/ocp/r:1']);
  });

  it('joins the mirrors of one source from several objects, each once', async () => {
    const icsp = `
apiVersion: operator.openshift.io/v1alpha1
kind: ImageContentSourcePolicy
spec: {repositoryDigestMirrors: [{source: quay.io/ocp, mirrors: [b.lab/ocp, a.lab/ocp]}]}
`;
    const sets = await read(`${idms('  - {source: quay.io/ocp, mirrors: [a.lab/ocp]}')}\n---\n${icsp}`);
    expect(locations(sets, `quay.io/ocp/r@${digest}`)).to.deep.equal([
      `a.lab/ocp/r@${digest}`,
      `b.lab/ocp/r@${digest}`,
      `quay.io/ocp/r@${digest}`,
    ]);
  });

  it('leaves the source out if it must not be contacted', async () => {
    const policy = 'mirrorSourcePolicy: NeverContactSource';
    const sets = await read(
      idms(`  - {source: quay.io/ocp, mirrors: [a.lab/ocp], ${policy}}\n  - {source: blocked.io, ${policy}}`),
    );
    expect(locations(sets, `quay.io/ocp/r@${digest}`)).to.deep.equal([`a.lab/ocp/r@${digest}`]);
    expect(locations(sets, `blocked.io/r@${digest}`)).to.deep.equal([]);
  });

  it('leaves the source out for all pulls if a set of the other kind says so, unless a longer source allows it', async () => {
    const tags = (entry: object): string =>
      JSON.stringify({
        apiVersion: 'config.openshift.io/v1',
        kind: 'ImageTagMirrorSet',
        spec: { imageTagMirrors: [{ mirrors: ['t.lab/ocp'], ...entry }] },
      });
    const never = tags({ source: 'quay.io/ocp', mirrorSourcePolicy: 'NeverContactSource' });
    const digests = idms('  - {source: quay.io/ocp, mirrors: [a.lab/ocp]}');
    const sets = await read(`${digests}\n---\n${never}`);
    expect(locations(sets, `quay.io/ocp/r@${digest}`)).to.deep.equal([`a.lab/ocp/r@${digest}`]);
    expect(locations(sets, 'quay.io/ocp/r:1')).to.deep.equal(['t.lab/ocp/r:1']);
    const wider = await read(`${digests}\n---\n${never.replace('quay.io/ocp', 'quay.io')}`);
    expect(locations(wider, `quay.io/ocp/r@${digest}`)).to.have.length(2);
  });

  it('skips a bare host as the mirror of a whole repository', async () => {
    const sets = await read(idms('  - {source: quay.io/ocp/r, mirrors: ["mirror.lab:5000"]}'));
    expect(locations(sets, `quay.io/ocp/r@${digest}`)).to.deep.equal([`quay.io/ocp/r@${digest}`]);
  });

  it('reads lists, JSON and empty documents', async () => {
    const item = {
      apiVersion: 'config.openshift.io/v1',
      kind: 'ImageDigestMirrorSet',
      spec: { imageDigestMirrors: [{ source: 'quay.io', mirrors: ['a.lab'] }] },
    };
    const list = JSON.stringify({ apiVersion: 'v1', kind: 'List', items: [item] });
    const sets = await read(`---\n# nothing here\n---\n${list}\n`);
    expect(locations(sets, `quay.io/r@${digest}`)[0]).to.equal(`a.lab/r@${digest}`);
  });

  const layers = Array.from({ length: 9 }, (_, at) => `a${at + 1}: &a${at + 1} [${`*a${at},`.repeat(10)}]`);
  const multiplied = ['a0: &a0 [x]', ...layers].join('\n');
  const bad: [what: string, text: string, message: string][] = [
    ['what is not YAML', '---\n---\na: [', 'it is not YAML: malformed at line 3'],
    ['a key twice', idms('  - {source: quay.io, source: a.lab}'), 'it is not YAML: line'],
    ['aliases that multiply', multiplied, 'it is not YAML: aliases lead nowhere or multiply'],
    [
      'too many keys',
      Array.from({ length: 300_000 }, (_, key) => `k${key}: 1`).join('\n'),
      'more than 200000 YAML tokens',
    ],
    ['a text', 'hello', 'document 1: it is not an object'],
    ['another kind', '{apiVersion: v1, kind: ConfigMap}', 'document 1: it is v1 ConfigMap, none of'],
    ['no kind', '{spec: {}}', 'document 1: it has no kind'],
    [
      'no version',
      '{kind: ImageDigestMirrorSet}',
      'document 1: it is ImageDigestMirrorSet, none of config.openshift.io/v1',
    ],
    ['no mirrors', idms('    []'), 'there are no mirrors in it'],
    ['an empty file', '', 'there are no mirrors in it'],
    ['a source that is none', idms('  - {source: "quay.io/OCP Release"}'), 'spec.imageDigestMirrors[0].source is not'],
    ['a missing source', idms('  - {mirrors: [a.lab]}'), 'spec.imageDigestMirrors[0].source is not'],
    ['a mirror that is a URL', idms('  - {source: q.io, mirrors: [a.lab, "https://a.lab"]}'), '[0].mirrors[1] is not'],
    ['mirrors that are no list', idms('  - {source: quay.io, mirrors: a.lab}'), '[0].mirrors[0] is not'],
    [
      'a policy that is none',
      idms('  - {source: quay.io, mirrorSourcePolicy: Never}'),
      'mirrorSourcePolicy is neither',
    ],
    ['a bad item of a list', '{kind: List, items: [5]}', 'document 1, item 1: it is not an object'],
  ];
  for (const [what, text, message] of bad) {
    it(`refuses ${what}, saying where`, async () => {
      const error: unknown = await read(text).catch((thrown: unknown) => thrown);
      if (!isPluginError(error, 'invalid-file')) throw error;
      expect(error.message).to.contain(file).and.to.contain(message);
    });
  }

  it('names a file that is not there', async () => {
    const error: unknown = await readMirrorSets(join(folder, 'none.yaml')).catch((thrown: unknown) => thrown);
    expect(error).to.have.property('code', 'not-readable');
  });
});

describe('MirrorSets', () => {
  it('has only the image’s own location without rules', () => {
    const reference = parseReference(`quay.io/ocp/r@${digest}`);
    expect(new MirrorSets().locationsOf(reference)).to.deep.equal([reference]);
  });
});
