import { readFile } from 'node:fs/promises';
import { krewManifests } from '../../../.config/krew.ts';
import type { Program } from '../../../cmd/cli/command.ts';
import { formatHelp } from '../../../cmd/cli/help.ts';
import { mirrorRegistry } from '../../../cmd/mirror-registry/commands.ts';
import { releaseMirrorConfig } from '../../../cmd/release-mirror-config/commands.ts';
import { upgradeBundle } from '../../../cmd/upgrade-bundle/commands.ts';
import { errorCodes } from '../../../lib/errors.ts';
import { readOutputs } from '../program/outputs.ts';
import { writeOutputPage, writeOutputSchema } from './jsonOutput.ts';
import { writeReference } from './reference.ts';
import { writeTechnicianPage } from './technicianPage.ts';

/** The executables of this project. */
export const programs: readonly Program[] = [upgradeBundle, releaseMirrorConfig, mirrorRegistry];

/** Returns every generated text, by its path in the project. */
export async function generatedDocs(): Promise<Map<string, string>> {
  const technician = 'docs/how-to/for-the-technician.md';
  const page = await readFile(new URL(`../../../${technician}`, import.meta.url), 'utf8');
  const texts = new Map([
    [technician, writeTechnicianPage(page)],
    ['docs/reference.md', await writeReference(programs, errorCodes)],
    ['docs/json-output.md', writeOutputPage(readOutputs())],
    ['docs/json-output.schema.json', writeOutputSchema(readOutputs())],
    ['plugin.yaml', krewManifests().get('adm-upgrade-bundle.yaml') ?? ''],
  ]);
  for (const program of programs) {
    texts.set(`test/golden/help/${program.name.replaceAll(' ', '-')}.txt`, `${await formatHelp(program)}\n`);
  }
  return texts;
}
