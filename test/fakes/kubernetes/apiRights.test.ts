import { expect } from 'chai';
import type { Attempt } from './apiAccess.ts';
import { readRights } from './apiRights.ts';

describe('readRights', () => {
  const role = (kind: string, name: string, rule: object, namespace?: string) => ({
    kind,
    metadata: { name, ...(namespace !== undefined && { namespace }) },
    rules: [{ apiGroups: [''], resources: ['pods'], verbs: ['get'], ...rule }],
  });
  const binding = (kind: string, roleKind: string, name: string, namespace?: string) => ({
    kind: `${kind}Binding`,
    metadata: { name, ...(namespace !== undefined && { namespace }) },
    roleRef: { kind: roleKind, name },
    subjects: [{ kind: 'ServiceAccount', name: 'agent', namespace: 'one' }],
  });
  const attempt: Attempt = {
    user: 'system:serviceaccount:one:agent',
    groups: [],
    verb: 'get',
    group: '',
    resource: 'pods',
    namespace: 'one',
    name: 'a',
  };
  const everywhere = (rule: object = {}) => [
    role('ClusterRole', 'reader', rule),
    binding('ClusterRole', 'ClusterRole', 'reader'),
  ];

  it('gives no right without a binding', () => {
    expect(readRights([role('ClusterRole', 'agent', {})])(attempt)).to.equal(false);
    expect(readRights(everywhere())(attempt)).to.equal(true);
    expect(readRights(everywhere())({ ...attempt, user: 'system:serviceaccount:two:agent' })).to.equal(false);
  });

  it('gives rights in the namespace of the binding only', () => {
    for (const objects of [
      [role('Role', 'reader', {}, 'one'), binding('Role', 'Role', 'reader', 'one')],
      [role('ClusterRole', 'reader', {}), binding('Role', 'ClusterRole', 'reader', 'one')],
    ]) {
      expect(readRights(objects)(attempt)).to.equal(true);
      expect(readRights(objects)({ ...attempt, namespace: 'two' })).to.equal(false);
      expect(readRights(objects)({ ...attempt, namespace: '' })).to.equal(false);
    }
  });

  it('tells a resource from its subresources', () => {
    const status = { ...attempt, resource: 'pods/status' };
    expect(readRights(everywhere())(status)).to.equal(false);
    for (const name of ['pods/status', '*/status']) {
      const mayDo = readRights(everywhere({ resources: [name] }));
      expect([mayDo(status), mayDo(attempt)]).to.deep.equal([true, false]);
    }
  });

  it('limits a rule to names', () => {
    const mayDo = readRights(everywhere({ resourceNames: ['a'] }));
    expect([mayDo(attempt), mayDo({ ...attempt, name: 'b' }), mayDo({ ...attempt, name: '' })]).to.deep.equal([
      true,
      false,
      false,
    ]);
  });
});
