import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect } from 'chai';
import { manPages } from '../.config/manPages.ts';
import { commandNameOf, defaultName } from '../cmd/cli/command.ts';
import { requirePeer, run } from './support/peers.ts';
import { programs } from './support/project/docs.ts';

describe('the man pages', () => {
  let pages: ReadonlyMap<string, string>;
  before(async () => {
    pages = await manPages(programs);
  });

  it('are one for each program and command', () => {
    const named = programs.flatMap((program) => [
      program.name,
      ...program.commands
        .map(commandNameOf)
        .filter((name) => name !== defaultName)
        .map((name) => `${program.name} ${name}`),
    ]);
    expect([...pages.keys()]).to.have.members(named.map((name) => `${name.replaceAll(' ', '-')}.1`));
  });

  it('have every option of the command', async () => {
    for (const program of programs)
      for (const entry of program.commands) {
        const { command } = await entry.load();
        const words = [program.name, commandNameOf(entry)].filter((word) => word !== defaultName).join(' ');
        const page = pages.get(`${words.replaceAll(' ', '-')}.1`) ?? '';
        for (const name of Object.keys(command.options))
          expect(page, `${words} --${name}`).to.match(
            new RegExp(`^\\.B .*\\\\-${name.replaceAll('-', '\\\\-')}\\b`, 'm'),
          );
      }
  });

  describe('for man', function () {
    requirePeer(this, 'groff');
    let folder: string;
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), 'man-'));
      for (const [name, text] of pages) await writeFile(join(folder, name), text);
    });
    after(() => rm(folder, { recursive: true, force: true }));

    it('give no warning', async () => {
      const { code, stderr } = await run('groff', ['-man', '-Tascii', '-ww', '-z', ...pages.keys()], { cwd: folder });
      expect([code, stderr]).to.deep.equal([0, '']);
    });

    it('show options and commands as they are typed', async () => {
      const { stdout } = await run(
        'groff',
        ['-man', '-Tascii', '-rLL=100n', '-P-cbou', 'oc-adm-upgrade-bundle-create.1'],
        {
          cwd: folder,
        },
      );
      expect(stdout)
        .to.match(/^OC-ADM-UPGRADE-BUNDLE-CREATE\(1\)/)
        .and.to.match(/^ {7}oc adm-upgrade-bundle create \[release\] \[options\]$/m)
        .and.to.match(/^ {7}--volume-size string$/m)
        .and.to.contain(' oc adm-upgrade-bundle create --version=4.20.3 --output=. --dry-run\n');
    });
  });
});
