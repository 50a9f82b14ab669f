import { readFile } from 'node:fs/promises';
import { expect } from 'chai';
import { errorCodes } from '../../../../lib/errors.ts';
import { executeProgram } from '../../../support/program/execution.ts';

const programs = ['oc-adm_upgrade_bundle', 'oc-adm_release_mirror_config', 'oc-adm_mirror_registry'];

describe('every program', () => {
  it('prints its help without arguments, with exit code 0', async () => {
    for (const name of programs) {
      const golden = `../../../golden/help/${name.replaceAll('_', '-')}.txt`;
      const stdout = await readFile(new URL(golden, import.meta.url), 'utf8');
      expect(await executeProgram(name, [])).to.deep.equal({ code: 0, stdout, stderr: '' });
    }
  });

  it('prints its version', async () => {
    for (const name of programs) {
      const { stdout } = await executeProgram(name, ['version']);
      expect(stdout).to.match(/^\d+\.\d+\.\d+\n$/);
      expect((await executeProgram(name, ['--version'])).stdout).to.equal(stdout);
      const json = JSON.parse((await executeProgram(name, ['version', '-o', 'json'])).stdout) as { version: string };
      expect(`${json.version}\n`).to.equal(stdout);
      expect((await executeProgram(name, ['version', '-o', 'yaml'])).stdout).to.equal(
        `outputVersion: 1\nversion: ${stdout}`,
      );
    }
  });

  it('explains each error code without a network, in the words of the page', async () => {
    for (const name of programs) {
      const { stdout } = await executeProgram(name, ['explain', 'digest-mismatch']);
      expect(stdout).to.contain(
        `digest-mismatch: ${errorCodes['digest-mismatch']}\n\nUsual causes:\n  - A damaged disk`,
      );
      // Two lines of the page, and the end of the section.
      expect(stdout).to.match(/What to do:\n(?:.*\n)*.* copy it to another drive\. Do not use the drive\s+again\.\n$/);
    }
  });

  it('lists the options of the cluster connection in one place, if it has any', async () => {
    for (const name of programs.slice(0, 2)) {
      const { stdout } = await executeProgram(name, ['options']);
      expect(stdout).to.match(/^The following options .*:\n {6}--kubeconfig string /);
      expect(stdout).to.match(/\n {2}-n, --namespace string /);
    }
    expect((await executeProgram('oc-adm_mirror_registry', ['options'])).stderr).to.match(/unknown command “options”/);
  });
});
