import { expect } from 'chai';
import { commonOptions, versionOption } from '../../../cmd/cli/commonOptions.ts';
import type { Option } from '../../../cmd/cli/command.ts';
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

const phrase = /^[A-Z].*[^\s.:;,]$/s;
const heading = /^[A-Z].*[^\s.]:$/;
const sentences = /^(?:[A-Z“]|--?\w).*[.:]$/s;
