import type { KubernetesObject } from '../../../lib/config/manifest.ts';
import { digestOf } from '../../../lib/content/oci/reference.ts';
import { fieldsOf, listOf, textsOf } from '../../../lib/fields.ts';
import { registriesFile } from '../../../lib/node/machine/host.ts';
import type { ApiObject } from '../kubernetes/apiObjects.ts';
import type { TestApiServer } from '../kubernetes/apiServer.ts';

const machines = 'machineconfiguration.openshift.io/v1';

/**
 * Acts as the machine config operator on what mirrors change. It takes the node disruption policy, and renders files
 * and mirrors into the configuration of each pool. The nodes have that at once.
 */
export class MirrorOperator {
  /** Whether it renders. The policy is taken in any case. */
  isRendering = true;
  readonly #server: TestApiServer;

  /** Acts once, and after each change from then on. */
  constructor(server: TestApiServer) {
    this.#server = server;
    this.operate();
    this.start();
  }

  start(): void {
    this.#server.objects.on('change', this.#onChange);
  }

  stop(): void {
    this.#server.objects.off('change', this.#onChange);
  }

  readonly #onChange = (): void =>
    void setImmediate(() => {
      this.operate();
    });

  /** Acts once. */
  operate(): void {
    this.#takePolicy();
    const pools = this.#server.kinds.find(({ kind }) => kind === 'MachineConfigPool');
    if (!this.isRendering || !pools) return;
    for (const pool of this.#server.objects.list(pools, '')) this.#render(pool);
  }

  #takePolicy(): void {
    const policy = this.#server.find('operator.openshift.io/v1', 'MachineConfiguration', 'cluster');
    const kind = this.#server.kinds.find((each) => each.kind === 'MachineConfiguration');
    if (!policy || !kind) return;
    const { nodeDisruptionPolicy } = policy['spec'] as { nodeDisruptionPolicy?: object };
    const status = {
      observedGeneration: policy.metadata['generation'],
      nodeDisruptionPolicyStatus: { clusterPolicies: nodeDisruptionPolicy ?? {} },
    };
    if (JSON.stringify(policy['status']) === JSON.stringify(status)) return;
    const writing = { manager: 'operator', dryRun: false, status: true };
    this.#server.objects.replace({ kind, namespace: '', name: 'cluster' }, { ...policy, status }, writing);
  }

  #render(pool: ApiObject): void {
    const own = this.#server.find(machines, 'MachineConfig', `98-${pool.metadata.name}-oc-upgrade-bundle-mirror`);
    const set = this.#server.find('config.openshift.io/v1', 'ImageDigestMirrorSet', 'oc-upgrade-bundle');
    const source = `data:,${encodeURIComponent(renderRegistries(set))}`;
    const storage =
      (own?.['spec'] as { config: { storage: { files: object[] } } } | undefined)?.config.storage.files ?? [];
    const files = [{ path: registriesFile, contents: { source } }, ...storage];
    const metadata = { name: `rendered-${digestOf(Buffer.from(JSON.stringify(files))).slice(7, 39)}` };
    if (!this.#server.find(machines, 'MachineConfig', metadata.name)) {
      const spec = { config: { storage: { files } } };
      this.#server.put({ apiVersion: machines, kind: 'MachineConfig', metadata, spec });
    }
    const configuration = { name: metadata.name, source: own ? [{ name: own.metadata.name }] : [] };
    const conditions = [{ type: 'Updated', status: 'True' }];
    const status = { conditions, configuration, machineCount: 1, updatedMachineCount: 1 };
    if (JSON.stringify(pool['status']) !== JSON.stringify(status)) this.#server.put({ ...pool, status });
  }
}

/** Returns registries.conf as the operator writes it, with the mirrors of one set. */
function renderRegistries(set: KubernetesObject | undefined): string {
  const tables = listOf(fieldsOf(set?.['spec'])['imageDigestMirrors']).map(({ source, mirrors }) => {
    const listed = textsOf(mirrors).map(
      (each) => `  [[registry.mirror]]\n    location = "${each}"\n    pull-from-mirror = "digest-only"\n`,
    );
    return `[[registry]]\n  prefix = ""\n  location = "${String(source)}"\n\n${listed.join('\n')}`;
  });
  return tables.join('\n');
}
