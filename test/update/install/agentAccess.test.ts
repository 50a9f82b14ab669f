import { expect } from 'chai';
import { accountPolicies } from '../../../lib/update/install/accountPolicies.ts';
import { agentAccess } from '../../../lib/update/install/agentAccess.ts';
import { userOf } from '../../../lib/update/record/accountAccess.ts';
import { formatNodeReport } from '../../../lib/update/record/nodeReport.ts';
import { RolloutSite } from '../../fakes/cluster/rollout.ts';
import { platformImage } from '../../fakes/cluster/site.ts';
import { makeHops, upgradeBundle } from '../../fakes/cluster/updatingSite.ts';
import type { Attempt } from '../../fakes/kubernetes/apiAccess.ts';
import { virtualMachineKind } from '../../fakes/kubernetes/apiKinds.ts';
import { readRights } from '../../fakes/kubernetes/apiRights.ts';

const managed = { labels: { 'app.kubernetes.io/managed-by': 'oc-upgrade-bundle' } };
const gate = { name: 'ack-4.19-x', text: 'Check this.' };
const oldPins = 'oc-upgrade-bundle-old-worker';

/** Returns the rights of the controller, as `verb resource`. */
function listRights(): string[] {
  const roles = agentAccess().filter(
    ({ kind, metadata }) => kind.endsWith('Role') && metadata.name.endsWith('-controller'),
  );
  return roles
    .flatMap((role) => ('rules' in role ? (role.rules ?? []) : []))
    .flatMap(({ resources = [], verbs }) =>
      resources.flatMap((resource) => verbs.map((verb) => `${verb} ${resource}`)),
    );
}

/** Puts what a rollout deletes, acknowledges and warns of. */
function addWork({ server, site }: RolloutSite): void {
  site.gates.set('4.19.4', { [gate.name]: gate.text });
  server.put(upgradeBundle(undefined, { acknowledge: [gate.name] }));
  const annotations = { 'upgrade-bundle.openshift.io/release': platformImage('9') };
  server.put({
    apiVersion: 'machineconfiguration.openshift.io/v1',
    kind: 'PinnedImageSet',
    metadata: { name: oldPins, ...managed, annotations },
    spec: { pinnedImages: [] },
  });
  const progress = { name: 'gone', phase: 'Waiting', imagesLoaded: 0, imagesTotal: 0, bytes: 0 } as const;
  server.put({ ...formatNodeReport({ bundle: 'x', progress }) });
  server.put({
    apiVersion: 'policy/v1',
    kind: 'PodDisruptionBudget',
    metadata: { name: 'none', namespace: 'shop' },
    spec: { selector: { matchLabels: { app: 'none' } } },
    status: { disruptionsAllowed: 0 },
  });
  const clientConfig = { service: { name: 'guard', namespace: 'shop' } };
  server.put({
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'ValidatingWebhookConfiguration',
    metadata: { name: 'guard' },
    webhooks: [{ name: 'guard.shop', clientConfig, rules: [] }],
  });
}

describe('a rollout with the rights of the controller only', () => {
  const used = new Set<string>();
  const denied: string[] = [];
  let rollout: RolloutSite;

  before(async () => {
    const isAllowed = readRights(agentAccess());
    const allow = (attempt: Attempt): boolean => {
      const allowed = isAllowed(attempt);
      used.add(`${attempt.verb} ${attempt.resource}`);
      if (!allowed) denied.push(`${attempt.verb} ${attempt.resource} ${attempt.namespace} ${attempt.name}`);
      return allowed;
    };
    rollout = await RolloutSite.start({
      tokens: new Map([['t', userOf('controller')]]),
      allow,
      policies: true,
      kinds: [virtualMachineKind],
    });
    for (const policy of accountPolicies()) rollout.server.put({ ...policy });
    rollout.facts = makeHops([gate]);
    addWork(rollout);
    await rollout.control();
    await rollout.untilPhase('Completed');
    await rollout.until(() => rollout.all('PinnedImageSet').every(({ metadata }) => metadata.name !== oldPins));
    await rollout.until(() => used.has('patch daemonsets'));
  });
  after(() => rollout.close());

  it('needs no other right', () => {
    expect(denied).to.deep.equal([]);
  });

  it('does nothing that a policy refuses', () => {
    const refused = rollout.server.requests.filter(({ status }) => status === 403);
    expect(refused.map(({ method, path }) => `${method} ${path}`)).to.deep.equal([]);
  });

  it('uses every right that it does not have for another situation', () => {
    // Pools are paused, and operating system streams described, only in other tests.
    expect(listRights().filter((right) => !used.has(right))).to.deep.equal([
      'create upgradebundles',
      'delete upgradebundles',
      'list osimagestreams',
      'watch osimagestreams',
      'create osimagestreams',
      'get osimagestreams',
      'patch osimagestreams',
      'patch osimagestreams/status',
      'get controllerconfigs',
      'patch machineconfigpools',
      'create leases',
      'use securitycontextconstraints',
      'get pods/log',
    ]);
  });
});
