import { updateServiceKind } from '../../fakes/kubernetes/apiKinds.ts';
import { startApiServer, type ApiServerOptions, type TestApiServer } from '../../fakes/kubernetes/apiServer.ts';
import { openWorkshop, runExecutable, type Workshop } from '../content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../kubeconfig.ts';
import type { Execution } from '../program/execution.ts';
import { Mirroring } from './mirroring.ts';

/** A workshop and a cluster. `kubeconfig` is the option that names the cluster. */
export interface MirrorSite {
  readonly workshop: Workshop;
  readonly mirroring: Mirroring;
  readonly server: TestApiServer;
  readonly kubeconfigs: KubeconfigFolder;
  readonly kubeconfig: string;
  /** Runs `oc adm-release-mirror-config apply` for the cluster, with the key of the workshop. */
  apply(...args: string[]): Promise<Execution>;
  close(): Promise<void>;
}

/** Opens a workshop with a small release, and a cluster. */
export async function openMirrorSite(
  options: ApiServerOptions & Parameters<typeof openWorkshop>[0] = {},
): Promise<MirrorSite> {
  const small = { components: ['cli', 'etcd'], layers: 1, baseLayers: 1 };
  const workshop = await openWorkshop({ ...options, release: { ...small, ...options.release } });
  const server = await startApiServer({ openshift: '4.14.3', kinds: [updateServiceKind], ...options });
  server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'openshift-update-service' } });
  const kubeconfigs = await makeKubeconfigFolder();
  const kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
  const apply = (...args: string[]): Promise<Execution> => {
    const all = ['apply', ...args, kubeconfig, `--trust-fingerprint=${workshop.key.fingerprint}`];
    return runExecutable('oc-adm_release_mirror_config', workshop.folder, all);
  };
  const close = async (): Promise<void> => {
    await workshop.close();
    await server.stop();
    await kubeconfigs.remove();
  };
  return { workshop, mirroring: new Mirroring(workshop), server, kubeconfigs, kubeconfig, apply, close };
}
