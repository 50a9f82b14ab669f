import { expect } from 'chai';
import type { Option } from '../../../cmd/cli/command.ts';
import { commonOptions, versionOption } from '../../../cmd/cli/commonOptions.ts';
import { clusterGroup, formatHelp, groupOptions } from '../../../cmd/cli/help.ts';
import { normalizeWords, parse } from '../../../cmd/cli/program.ts';
import { programs } from '../../support/project/docs.ts';

describe('the texts of helps', () => {
  for (const program of programs) {
    it(`have one form in ${program.name}: capitals first, and full stops only after sentences`, async () => {
      expect(program.describe).to.match(sentences);
      for (const entry of program.commands) {
        const { usage, describe: summary, group = 'Commands:' } = entry;
        const { options, positionals, examples, details = 'None.' } = (await entry.load()).command;
        const records: Option[] = Object.values({ ...options, ...positionals, ...commonOptions, ...versionOption });
        const phrases = [summary, ...records.map(({ describe: text }) => text), ...examples.map(([, what]) => what)];
        for (const text of phrases) expect(text, usage).to.match(phrase);
        for (const text of [group, ...records.map((each) => each.group ?? group)])
          expect(text, usage).to.match(heading);
        // Lists in details are indented, and a colon is before them.
        for (const paragraph of details.split('\n\n').filter((each) => !each.startsWith(' '))) {
          expect(paragraph, usage)
            .to.match(sentences)
            .and.not.match(/[a-z]\. [a-z]/);
        }
      }
    });
  }
});

describe('the help of a command', () => {
  it('begins with the options of its first example, and has no long group', async () => {
    const long: string[] = [];
    for (const { name, commands } of programs)
      for (const entry of commands) {
        const { usage, isInternal } = entry;
        const { command } = await entry.load();
        const groups = groupOptions(command);
        expect(groups.flatMap(([, own]) => Object.keys(own))).to.have.members(Object.keys(command.options));
        for (const [heading, own] of isInternal ? [] : groups)
          if (heading !== clusterGroup && Object.keys(own).length > 10) long.push(`${name} ${usage}: ${heading}`);
      }
    expect(long).to.deep.equal([]);
    const [[heading, usual] = ['', {}]] = groupOptions(
      (await import('../../../cmd/upgrade-bundle/create/create.ts')).command,
    );
    expect([heading, ...Object.keys(usual)]).to.deep.equal(['Usual:', 'version', 'arch', 'pull-secret', 'output']);
  });

  it('fits a terminal of 80 columns, except examples, which can be copied', async () => {
    const wide: string[] = [];
    for (const program of programs)
      for (const entry of program.commands) {
        const text = await formatHelp(program, entry, { width: 80 });
        const lines = text.split('\n').filter((line) => !line.startsWith(`  ${program.name} `));
        wide.push(...lines.filter((line) => line.length > 80));
      }
    expect(wide).to.deep.equal([]);
  });

  it('lists internal commands only with --all, and does not complete them', async () => {
    const [plugin] = programs;
    if (!plugin) throw new Error('there is no program');
    const helpFor = (...words: string[]): Promise<string> =>
      parse(plugin, normalizeWords(words), () => Promise.resolve());
    for (const word of ['agent', 'controller', 'mirror-serve', 'drill-node']) {
      expect(await helpFor('help')).to.not.match(new RegExp(`^  ${word} `, 'm'));
      for (const line of [
        ['help', '--all'],
        ['--help', '--all'],
        ['--all', '--help'],
      ])
        expect(await helpFor(...line), line.join(' ')).to.match(new RegExp(`^  ${word} `, 'm'));
      expect(await helpFor(word, '--help')).to.contain('Usage:');
    }
  });
});

const phrase = /^[A-Z].*[^\s.:;,]$/s;
const heading = /^[A-Z].*[^\s.]:$/;
const sentences = /^(?:[A-Z“]|--?\w).*[.:]$/s;
