import { createBundle } from '../../../lib/bundle/create/create.ts';
import { openLocalOrigin } from '../../../lib/bundle/create/localOrigin.ts';
import { RegistryOrigin } from '../../../lib/bundle/create/origin.ts';
import { checkDevice, writeDevice } from '../../../lib/node/media/deviceWriter.ts';
import { listOtherKeys, loadExpectedKeys } from '../../../lib/release/sigstore/policyKeys.ts';
import { parseArchitecture } from '../../../lib/release/version.ts';
import { openAccess } from '../../cli/access.ts';
import type { Arguments, CommandSession } from '../../cli/command.ts';
import { formatOptionFile } from '../../cli/optionFile.ts';
import { readImageList } from '../../release-mirror-config/imageList.ts';
import { bundleConfig, createOptions, type createPositionals } from './createOptions.ts';
import { toPlainCreated, formatCreated } from './createReport.ts';
import { checkArguments, checkPatch, configArguments, readSiteReport, createRequestOf } from './createRequest.ts';
import { withoutUrlPasswords } from '../../../lib/urlPasswords.ts';
import { Lines } from '../../../lib/lines.ts';

/** Creates the bundle that the arguments of `create` describe, and prints what to carry. Throws what createBundle throws. */
export async function runCreate(
  given: Arguments<typeof createOptions & typeof createPositionals>,
  { context, terminal, environment, stdin }: CommandSession,
): Promise<void> {
  checkArguments(given);
  await checkPatch(given, environment, context);
  const expectedKeys = await loadExpectedKeys(given.trustKey);
  const images = await readImageList(given.imagesFrom, stdin);
  const site = await readSiteReport(given.for, given, context);
  const args = { ...given, arch: given.arch ?? (site && parseArchitecture(site.arch)) };
  if (args.printConfig) {
    terminal.print(
      Lines.split(withoutUrlPasswords(formatOptionFile(configArguments(args, site), createOptions, bundleConfig))),
    );
    return;
  }
  const host = { root: '/', environment };
  const device = args.device === undefined ? undefined : await checkDevice(host, args.device, args.overwrite, context);
  const access = await openAccess(args, environment);
  const downloading = {
    ...context,
    onEvent: terminal.transfer(args.fromDir === undefined ? 'Downloading' : 'Copying'),
  };
  await using origin = await (args.fromDir === undefined
    ? new RegistryOrigin(access, downloading)
    : openLocalOrigin(args.fromDir, access, downloading));
  const request = await createRequestOf(args, { images, site }, origin, context);
  const result = await createBundle(request, origin, downloading);
  for (const text of listOtherKeys(result.policies ?? [], expectedKeys)) context.log('warn', text);
  const { path, digest } = result;
  if (device && digest && args.dryRun === 'none') {
    const writing = { ...context, onEvent: terminal.transfer('Writing') };
    const verifying = { ...context, onEvent: terminal.transfer('Verifying') };
    await writeDevice(host, device, { path, digest }, args.overwrite, { writing, verifying });
  }
  const created = { ...args, device: args.dryRun !== 'none' ? undefined : device?.path };
  const plain = { ...toPlainCreated(result, expectedKeys), device: created.device };
  await terminal.printResult(args.format, plain, formatCreated(result, expectedKeys, created));
}
