import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { expect } from 'chai';
import { startApiServer } from '../fakes/kubernetes/apiServer.ts';
import {
  addRelease,
  openWorkshop,
  runProgram,
  type ProgramOptions,
  type Workshop,
} from '../support/content/creation.ts';
import { makeKubeconfigFolder } from '../support/kubeconfig.ts';
import { runSuccessfully } from '../support/peers.ts';
import { findCommands, readWords, runPrinted } from '../support/program/printedCommands.ts';
import { Mirroring } from '../support/release/mirroring.ts';

/** A folder name that a shell splits and expands, unless it is quoted. */
const awkward = `the site's "$HOME" \`id\` $(id) & * drive`;

describe('printed commands with awkward names', () => {
  let workshop: Workshop;
  let output: string;
  let keyring: string;
  before(async () => {
    workshop = await openWorkshop();
    output = join(workshop.folder, awkward);
    await mkdir(output);
    keyring = await workshop.write(join(awkward, `team's key.asc`), workshop.key.publicKey);
  });
  after(() => workshop.close());

  /** Creates a bundle, and runs the command that create prints, in its folder. Returns the output. */
  const createAndFollow = async (changes: ProgramOptions): Promise<{ name: string; printed: string }> => {
    const created = await workshop.create({ output, 'signature-keyring': keyring, ...changes });
    expect(created.code, created.stderr).to.equal(0);
    const commands = findCommands(created.stdout);
    expect(commands).to.have.length(1);
    const [pasted = ''] = commands;
    const { code, stdout, stderr } = await runPrinted(pasted, { cwd: output });
    expect(code, stdout + stderr).to.equal(0);
    expect(stdout).to.match(/^Verified/m);
    return { name: (await readWords(pasted))[3] ?? '', printed: created.stdout };
  };

  /** Runs the commands on the page of a bundle in its folder. The plugin and gpg have stand-ins. */
  const followPage = async (path: string): Promise<string> => {
    const { code, stdout, stderr } = await runProgram(output, 'inspect', [path, '-o', 'html']);
    expect(code, stderr).to.equal(0);
    const commands = [...stdout.matchAll(/<pre>([^<]*)<\/pre>/g)].map(([, text = '']) =>
      text.replace(/&(?:lt|gt|quot|#39|amp);/g, (name) => entities[name] ?? name),
    );
    expect(commands.length).to.be.greaterThan(2);
    const standIns = `oc() { [ -e "$3" ] || [ -e "$3.000" ]; }; gpg() { grep -a sha256:; }; set -e -o pipefail`;
    return runSuccessfully('bash', ['-c', [standIns, ...commands].join('\n')], { cwd: output });
  };

  it('work for a bundle, and on its page', async () => {
    const { name } = await createAndFollow({});
    expect(await followPage(name)).to.contain(`${name}: OK`);
  });

  it('work for a delta bundle, whose base is in the list of files to carry', async () => {
    const old = await addRelease(workshop, { version: '4.12.3' });
    const base = await workshop.make({ output, version: old.version });
    const { name, printed } = await createAndFollow({ base });
    expect(printed).to.match(/^ {2}the bundle of 4\.12\.3, the base, unless the site has it$/m);
    expect(await followPage(name)).to.contain(`${name}: OK`);
  });

  it('work for volumes, and on their page', async () => {
    for (const name of await readdir(output)) if (name.startsWith('upgrade-')) await rm(join(output, name));
    const { name } = await createAndFollow({ 'volume-size': '50k' });
    expect(await readdir(output)).to.include(`${name}.001`);
    expect(await followPage(name)).to.contain(`${name}.001: OK`);
  });

  it('work after mirroring to a folder', async () => {
    await using server = await startApiServer({ openshift: '4.14.3' });
    await using kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = await kubeconfigs.write({ file: `the site's config`, cluster: { server: server.url } });
    const options = [`--signature-keyring=${keyring}`, `--kubeconfig=${kubeconfig}`];
    const printed = await new Mirroring(workshop).succeed([`--to-dir=${join(output, 'mirror')}`, ...options]);
    const commands = findCommands(printed);
    const words = await Promise.all(commands.map(readWords));
    expect(words.map(([, program, verb]) => [program, verb?.split('=')[0]])).to.deep.equal([
      ['adm-release-mirror-config', '--from-dir'],
      ['image', 'mirror'],
      ['image', 'mirror'],
      ['adm-release-mirror-config', 'apply'],
      ['adm', 'upgrade'],
    ]);
    const [upload = '', , , apply = ''] = commands;
    const place = `${workshop.registry.host}/site/release`;
    for (const command of [`${upload.replace('REGISTRY/REPOSITORY', place)} --insecure`, apply]) {
      const { code, stderr } = await runPrinted(command, { cwd: output });
      expect(code, stderr).to.equal(0);
    }
  });
});

const entities: Readonly<Record<string, string>> = {
  '&lt;': '<',
  '&gt;': '>',
  '&quot;': '"',
  '&#39;': `'`,
  '&amp;': '&',
};
