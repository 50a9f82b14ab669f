import { expect } from 'chai';
import { install } from '../../../lib/update/install.ts';
import { openAgentSite, type AgentSite } from '../../fakes/cluster/agents.ts';
import { runProgram } from '../../support/content/creation.ts';
import { makeKubeconfigFolder, type KubeconfigFolder } from '../../support/kubeconfig.ts';
import type { Execution } from '../../support/program/execution.ts';

describe('oc adm-upgrade-bundle uninstall', () => {
  let site: AgentSite;
  let kubeconfigs: KubeconfigFolder;
  let kubeconfig: string;

  beforeEach(async () => {
    site = await openAgentSite();
    kubeconfigs = await makeKubeconfigFolder();
    kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: site.server.url } })}`;
    const startup = { timeout: 120_000, interval: 20 };
    const options = { executables: [site.executable], admission: undefined, overwrite: false, startup } as const;
    await install(site.cluster, options, site.context);
  });
  afterEach(async () => {
    await site.close();
    await kubeconfigs.remove();
  });
  const uninstall = (...args: string[]): Promise<Execution> =>
    runProgram(kubeconfigs.folder, 'uninstall', [kubeconfig, ...args]);

  it('lists the objects to remove, then the removed ones', async () => {
    const tried = await uninstall('--dry-run');
    expect(tried.code, tried.stderr).to.equal(0);
    expect(tried.stdout).to.match(/^daemonset\/controller deleted \(dry run\)\ndaemonset\/agent deleted \(dry run\)\n/);
    const plan = JSON.parse((await uninstall('--dry-run', '-o', 'json')).stdout) as {
      dryRun: boolean;
      removed: object[];
    };
    expect([plan.dryRun, plan.removed.length]).to.deep.equal([true, tried.stdout.trimEnd().split('\n').length]);
    expect(plan.removed[0]).to.deep.include({ apiVersion: 'apps/v1', kind: 'DaemonSet' });
    const { code, stdout, stderr } = await uninstall();
    expect(code, stderr).to.equal(0);
    expect(stdout).to.equal(tried.stdout.replaceAll(' (dry run)', ''));
    expect(stdout).to.match(/\ncustomresourcedefinition\/upgradebundles\.upgrade-bundle\.openshift\.io deleted\n/);
    expect(stderr).to.equal('stopping the agents, and removing their files from the nodes\n');
    expect((await uninstall()).stdout).to.equal('There is nothing to remove.\n');
  });

  it('names the files that stay if it does not wait', async () => {
    const { stderr } = await uninstall('--wait=false');
    expect(stderr).to.equal('warning: /var/lib/oc-upgrade-bundle stays on the nodes\n');
  });
});
