import { formatText } from '../../../lib/node/machine/loginScreen.ts';
import { describeScreen, type ScreenFacts } from '../../../lib/update/screen/screenText.ts';
import { factsWith, goodSteps, reportSteps } from './screens.ts';

const begin = '<!-- screens: npm run docs writes what follows -->\n';
const end = '<!-- screens end -->\n';

/** Returns the page for technicians with pictures of the screens, from the texts of the agents. */
export function writeTechnicianPage(page: string): string {
  const [before = '', rest = ''] = page.split(begin);
  const [, after = ''] = rest.split(end);
  const pictures = [
    '## The screens\n\nThe machine with the drive shows these, one after the other:\n',
    ...goodSteps.map(([step, facts]) => `${step}:\n\n${drawScreen(facts)}`),
    'Some sites send a report back. There the last screens are these:\n',
    ...reportSteps.map(([step, facts]) => `${step}:\n\n${drawScreen(facts)}`),
    'A screen with a code. Call, and read out the code:\n',
    drawScreen(factsWith('otherBundle', { drive: 'needed' })),
    'A drive without an update. The screen says so for a minute:\n',
    drawScreen({ drive: 'none', reason: 'driveEmpty' }),
  ];
  return `${before}${begin}\n${pictures.join('\n')}\n${end}${after}`;
}

function drawScreen(facts: ScreenFacts): string {
  return `\`\`\`text${formatText(describeScreen(facts)?.lines ?? [])}node-1 login:\n\`\`\`\n`;
}
