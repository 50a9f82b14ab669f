import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect } from 'chai';
import { kebabCase } from '../../../cmd/cli/arguments.ts';
import type { OptionRecord } from '../../../cmd/cli/command.ts';
import { showFailure, withResumption } from '../../../cmd/cli/failure.ts';
import { Terminal } from '../../../cmd/cli/terminal.ts';
import { upgradeBundle } from '../../../cmd/upgrade-bundle/commands.ts';
import { PluginError } from '../../../lib/errors.ts';
import { programs } from '../../support/project/docs.ts';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const { signal } = new AbortController();

async function show(error: unknown, options: OptionRecord, needsRoot = false): Promise<string> {
  const stderr = new PassThrough();
  const terminal = await Terminal.open({ stdout: new PassThrough(), stderr, environment: {} });
  showFailure(error, terminal, signal, {
    program: upgradeBundle,
    command: { options, ...(needsRoot && { needsRoot }) },
  });
  stderr.end();
  return text(stderr);
}

describe('showFailure', () => {
  const insecure = { insecure: { type: 'boolean', describe: 'Do not verify' } } as const;
  const authority = { 'certificate-authority': { type: 'string', describe: 'File' } } as const;
  const error = new PluginError('tls', 'the certificate is self-signed', {
    hint: 'Trust its certificate authority, or skip verification.',
    settings: ['certificateAuthority', 'insecure'],
  });
  const words = `error (tls): ${error.message}\nhint: ${error.hint ?? ''}\n`;
  const more = 'more: oc adm-upgrade-bundle explain tls\n';
  const moreOfPartial = 'more: oc adm-upgrade-bundle explain partial\n';

  it('names the options that the command has', async () => {
    expect(await show(error, { ...authority, ...insecure })).to.equal(
      `${words}try: --certificate-authority, --insecure\n${more}`,
    );
    expect(await show(error, insecure)).to.equal(`${words}try: --insecure\n${more}`);
    expect(await show(error, {})).to.equal(words + more);
  });

  it('tells to run a command of a machine as root if the system denied access', async () => {
    const cause = Object.assign(new Error('EACCES: permission denied'), { code: 'EACCES' });
    const denied = new PluginError('not-writable', '/etc/x cannot be written', { cause });
    const said = 'error (not-writable): /etc/x cannot be written\n';
    const page = 'more: oc adm-upgrade-bundle explain not-writable\n';
    expect(await show(denied, {}, true)).to.equal(`${said}hint: Run this command as root.\n${page}`);
    expect(await show(denied, {})).to.equal(said + page);
    for (const verb of ['load', 'mirror', 'pin', 'watch']) {
      const entry = upgradeBundle.commands.find(({ usage }) => usage.split(' ')[0] === verb);
      expect((await entry?.load())?.command.needsRoot, verb).to.equal(true);
    }
  });

  it('prints no command line with a password in a URL', () => {
    const interrupted = new PluginError('interrupted', 'the run was interrupted');
    for (const words of [
      ['load', 'http://bob:SECRET@host:5000'],
      ['create', '--signature-store=https://bob:SEC/RET@host/s'],
    ]) {
      const shown = withResumption(interrupted, { resumes: 'bytes' }, ['oc adm-upgrade-bundle', ...words], undefined);
      expect((shown as PluginError).hint).to.equal('Run the same command again to resume.');
    }
  });

  it('takes them from the cause, or from the first of several failures', async () => {
    const outer = new PluginError('partial', 'two images failed', { cause: error });
    expect(await show(outer, insecure)).to.equal(
      `error (partial): two images failed\ntry: --insecure\n${moreOfPartial}`,
    );
    const both = new AggregateError([outer, new PluginError('tls', 'b', { settings: ['certificateAuthority'] })]);
    const sum = new PluginError('partial', 'all failed', { cause: both });
    expect(await show(sum, { ...authority, ...insecure })).to.equal(
      `error (partial): all failed\ntry: --certificate-authority, --insecure\n${moreOfPartial}`,
    );
  });

  it('names the kept content of an interrupted command, and the command line that resumes it', async () => {
    const interrupted = new PluginError('interrupted', 'the run was interrupted');
    const counts = { bytes: 1024, bytesTotal: 4096, images: 2, imagesTotal: 5 };
    const line = ['oc adm-upgrade-bundle', 'create', '-o', 'json', '--output=/media/my usb', '--to=', '', "it's"];
    const resume = `To resume: oc adm-upgrade-bundle create -o json --output='/media/my usb' --to= '' 'it'\\''s'`;
    for (const [resumes, words, known, hint] of [
      ['bytes', line, counts, `1.0/4.0 KiB is kept. ${resume}`],
      ['images', line, counts, `2 of 5 images are complete. ${resume}`],
      ['images', line, undefined, resume],
      ['images', ['oc x', '--token', 'secret'], undefined, 'Run the same command again to resume.'],
    ] as const) {
      expect(withResumption(interrupted, { resumes }, words, known)).to.deep.include({ code: 'interrupted', hint });
    }
    expect(withResumption(interrupted, {}, line, counts)).to.equal(interrupted);
    expect(withResumption(error, { resumes: 'bytes' }, line, counts)).to.equal(error);
  });

  it('can name each setting: some command has an option of that name', async () => {
    const entries = programs.flatMap(({ commands }) => commands);
    const commands = await Promise.all(entries.map(async (entry) => (await entry.load()).command));
    const names = new Set(commands.flatMap(({ options }) => Object.keys(options)));
    const sources = globSync('lib/**/*.ts', { cwd: root }).map((path) => readFileSync(join(root, path), 'utf8'));
    const lists = sources.flatMap((source) => source.match(/(?<=settings: [^\n]*)\[[^\]]*\]/g) ?? []);
    const settings = lists.flatMap((list) => list.match(/(?<=')\w+(?=')/g) ?? []);
    expect(settings).to.include.members(['allowUnsigned', 'releaseRepository']);
    expect(settings.map(kebabCase).filter((name) => !names.has(name))).to.deep.equal([]);
  });
});
