import { fieldsOf, listOf } from '../fields.ts';
import { isPluginError } from '../errors.ts';
import type { Cluster } from '../kubernetes/client.ts';
import type { Finding } from '../kubernetes/finding.ts';
import { problemOf } from '../lint/rule.ts';
import { forcesPulls } from '../lint/rules.ts';

const advice = {
  always:
    'Take AlwaysPullImages out of enable-admission-plugins (oc get kubeapiserver cluster -o yaml), or see which mutating webhook does it ' +
    '(oc get mutatingwebhookconfigurations).',
  unknown: 'Make sure that the admission plugin AlwaysPullImages is off: with it no pod starts without a registry.',
};

/**
 * Checks whether the cluster makes every pod pull its images, as the admission plugin AlwaysPullImages does. Creates a
 * pod in a dry run, which keeps nothing, and compares its pull policy. So the check finds every admission plugin, and
 * needs no right to read its configuration.
 */
export async function checkPullAdmission(cluster: Cluster): Promise<Finding[]> {
  const subject = { kind: 'Pod', name: '*' };
  try {
    const { spec } = await cluster.create(probe, { dryRun: true });
    const [container = {}] = listOf(fieldsOf(spec)['containers']);
    if (container['imagePullPolicy'] !== 'Always') return [];
    const message = `the cluster ${problemOf(forcesPulls, 'AlwaysPullImages, or a webhook')}`;
    const { check, severity } = forcesPulls;
    return [{ check, severity, subject, message, advice: advice.always }];
  } catch (error) {
    if (!isPluginError(error) || error.code === 'interrupted') throw error;
    const message = `whether the cluster makes every pod pull its images cannot be told: ${error.message}`;
    return [{ check: 'pull-policy', severity: 'info', subject, message, advice: advice.unknown }];
  }
}

/** The name of the pod that preflight creates in a dry run. Our own policies ignore it. */
export const probeName = 'oc-disconnected-preflight';

const probe = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: probeName, namespace: 'default' },
  spec: {
    restartPolicy: 'Never',
    // Meets the strictest pod security standard.
    securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
    containers: [
      {
        name: 'probe',
        image: `quay.io/openshift-release-dev/ocp-release@sha256:${'0'.repeat(64)}`,
        imagePullPolicy: 'IfNotPresent',
        securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } },
      },
    ],
  },
};
