import { defineCommand } from '../../cli/command.ts';
import { bundleArgument, outputOption } from '../../cli/options.ts';
import { formatSbom, sbomFormats } from './sbom.ts';
import { Lines } from '../../../lib/lines.ts';
import { readBundleInventory } from '../../../lib/bundle/inspect/inventory.ts';
import { inspectRelease } from '../../../lib/bundle/inspect/release.ts';
import { openBundle } from '../../../lib/bundle/open.ts';
import { tool } from '../../cli/access.ts';
import { formatInspection } from './inspectReport.ts';
import { formatReport } from '../report/report.ts';

/** `inspect`: shows the contents of a bundle in place, without reading its blobs. */
export const command = defineCommand({
  details:
    'Reads only the metadata, the manifests and the release payload, so it takes seconds for a bundle of any size. Checks no ' +
    'signature, and changes nothing: it lists the signers and known risks that the bundle names, and the verify command checks the signatures. -o wide lists everything, and -o html writes a page in ' +
    'one file.',
  positionals: bundleArgument,
  options: {
    ...outputOption('wide', 'html'),
    sbom: {
      type: 'string',
      choices: sbomFormats,
      describe: 'Print a software bill of materials instead: CycloneDX 1.6 or SPDX 2.3, as JSON',
    },
  },
  examples: [
    ['upgrade-4.20.3-x86_64.tar', 'Show the contents of a bundle'],
    ['/dev/sdb -o json', 'Print the contents of a bundle on a USB drive as JSON'],
    ['upgrade-4.20.3-x86_64.tar -o html > report.html', 'Write a page with a map of the bundle'],
    ['upgrade-4.20.3-x86_64.tar --sbom=cyclonedx > sbom.json', 'Write a software bill of materials'],
  ],
  async run(args, { context, terminal, environment }) {
    await using bundle = await openBundle(args.bundle, context, { tolerant: true });
    if (args.sbom !== undefined) {
      const inventory = await readBundleInventory(bundle, context);
      terminal.print(Lines.split(formatSbom(inventory, args.sbom, { tool, date: readSourceDate(environment) })));
      return;
    }
    const inspection = await inspectRelease(bundle, context);
    await terminal.printResult(args.output, inspection, {
      words: () => formatInspection(inspection, false),
      wide: () => formatInspection(inspection, true),
      html: () => Lines.split(formatReport(inspection)),
    });
  },
});

/** Returns the time that SOURCE_DATE_EPOCH gives to all files of a build, if there is one. */
function readSourceDate({ SOURCE_DATE_EPOCH: seconds = '' }: NodeJS.ProcessEnv): Date | undefined {
  return /^\d{1,11}$/.test(seconds) ? new Date(Number(seconds) * 1000) : undefined;
}
