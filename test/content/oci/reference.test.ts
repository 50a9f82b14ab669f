import { expect } from 'chai';
import { formatReference, isRepository, parseReference } from '../../../lib/content/oci/reference.ts';

const digest = `sha256:${'a'.repeat(64)}`;

describe('parseReference', () => {
  for (const [text, expected] of [
    ['busybox', 'docker.io/library/busybox'],
    ['docker.io/busybox:1', 'docker.io/library/busybox:1'],
    ['index.docker.io/busybox', 'docker.io/library/busybox'],
    ['index.docker.io/team/app:1', 'docker.io/team/app:1'],
    ['team/app', 'docker.io/team/app'],
    ['quay.io/app:1', 'quay.io/app:1'],
    ['localhost/app', 'localhost/app'],
    ['[::1]:5000/app', '[::1]:5000/app'],
    [`quay.io/app@${digest}`, `quay.io/app@${digest}`],
    [`quay.io:443/app:1@${digest}`, `quay.io:443/app:1@${digest}`],
  ] as const) {
    it(`reads ${text} as ${expected}`, () => {
      expect(formatReference(parseReference(text))).to.equal(expected);
    });
  }
});

describe('isRepository', () => {
  it('accepts the names of the distribution specification, of at most 255 characters', () => {
    for (const name of ['app', 'team/app', 'a.b/c__d/e--f', 'a'.repeat(255)])
      expect(isRepository(name), name).to.equal(true);
    for (const name of ['', 'App', 'a//b', '/a', 'a/', '../a', 'a:1', 'a._b', 'a'.repeat(256)])
      expect(isRepository(name), name).to.equal(false);
  });
});
