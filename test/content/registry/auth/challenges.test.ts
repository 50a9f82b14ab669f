import { expect } from 'chai';
import { parseChallenge } from '../../../../lib/content/registry/auth/tokens.ts';

describe('parseChallenge', () => {
  const read = (header: string) => {
    const challenge = parseChallenge(header, 'q.io');
    return challenge.scheme === 'basic' ? 'basic' : [challenge.realm.href, challenge.service, challenge.scope];
  };
  const realm = 'https://q.io/token';

  const cases: [header: string, expected: string | string[]][] = [
    ['Basic realm="Registry"', 'basic'],
    ['basic', 'basic'],
    ['Basic', 'basic'],
    [`Bearer realm="${realm}",service="q.io"`, [realm, 'q.io', '']],
    [`bearer Realm="${realm}", SERVICE="q.io"`, [realm, 'q.io', '']],
    [
      `Bearer realm="${realm}",service="q.io",scope="repository:a/b:pull,push"`,
      [realm, 'q.io', 'repository:a/b:pull,push'],
    ],
    [`Bearer realm="${realm}?a=b,c&d=%22",service=q.io`, [`${realm}?a=b,c&d=%22`, 'q.io', '']],
    [`Bearer realm="${realm}" , service="" ,, scope = "x"`, [realm, '', 'x']],
    [`Basic realm="a, Bearer b", Bearer realm="${realm}"`, [realm, '', '']],
    [`Bearer realm="${realm}",service="q.io", Basic realm="q.io"`, [realm, 'q.io', '']],
    [`Negotiate, Bearer realm="${realm}"`, [realm, '', '']],
    [`Negotiate abcd==, Basic realm="\\"q\\", Bearer"`, 'basic'],
    ['Bearer, Basic realm="q.io"', 'basic'],
    ['Bearer realm="token", Basic realm="q.io"', 'basic'],
  ];
  for (const [header, expected] of cases) {
    it(`reads ${header}`, () => {
      expect(read(header)).to.deep.equal(expected);
    });
  }

  for (const [header, why] of [
    ['', 'it offers nothing'],
    ['Negotiate', 'it offers negotiate'],
    ['Digest realm="Bearer x=y", qop="auth"', 'it offers digest'],
    ['Bearer', 'it names no token server'],
    ['Bearer realm="', 'it names no token server'],
    ['Bearer realm="ftp://q.io/"', 'it names no token server'],
    ['Bearer realm="https://q.io" x', 'it names no token server'],
  ] as const) {
    it(`refuses ${header || 'an empty header'}, naming the registry`, () => {
      expect(() => parseChallenge(header, 'q.io'))
        .to.throw(`q.io requires a login that is neither Basic nor Bearer: ${why}`)
        .with.property('code', 'server-error');
    });
  }
});
