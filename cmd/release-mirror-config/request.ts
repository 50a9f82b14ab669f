import { join } from 'node:path';
import { PluginError } from '#errors';
import { type MirroringRequest, type ReleaseChoice, parseDestination } from '#mirroring/mirror';
import { parseArchitecture, requireDistinct } from '#release/version';
import type { Arguments } from '../cli/command.ts';
import { readChannelRanges } from '../cli/mirroring/channelRange.ts';
import { trustOf } from '../cli/trust.ts';
import type { mirrorOptions } from './options.ts';

/** The arguments of the mirror command. */
export type MirrorArguments = Arguments<typeof mirrorOptions> & { readonly release: string | undefined };

/** Converts the arguments to a request. Throws `usage` for contradicting arguments, as `oc adm release mirror` does. */
export function readRequest(args: MirrorArguments): Omit<MirroringRequest, 'release'> {
  const { to, toDir, toImageStream, toMirror, toReleaseImage, skipReleaseImage } = args;
  if (to !== undefined && toImageStream !== undefined) refuse('--to and --to-image-stream exclude each other');
  if (skipReleaseImage && toReleaseImage !== undefined) {
    refuse('--skip-release-image leaves out the image for which --to-release-image gives a place');
  }
  const hasPlace = to !== undefined || (toDir !== undefined && toImageStream === undefined) || toMirror;
  const wantsConfig =
    args.applyConfig ||
    args.applyReleaseImageSignature ||
    args.configToDir !== undefined ||
    args.releaseImageSignatureToDir !== undefined;
  if (!hasPlace && toImageStream === undefined && !wantsConfig) {
    refuse(
      'nothing says where the release goes',
      'Give --to=REGISTRY/REPOSITORY, --to-dir=FOLDER or --to-image-stream; or only --config-to-dir or --apply-config.',
    );
  }
  if (!hasPlace && toReleaseImage !== undefined)
    refuse('--to-release-image needs --to or --to-dir for the other images');
  if (!hasPlace && args.graphData !== undefined) refuse('--graph-data needs --to or --to-dir: it makes an image');
  if (!hasPlace && args.additionalImage.length > 0) refuse('--additional-image needs --to or --to-dir');
  if (args.overwrite && !args.applyConfig && !args.applyReleaseImageSignature) {
    refuse(
      '--overwrite replaces objects of the cluster, and neither --apply-config nor ' +
        '--apply-release-image-signature is given',
    );
  }
  // As in oc, the default destination of the mapping is a repository with this name.
  const place = to ?? (toDir === undefined && toMirror ? 'docker.io/openshift/release' : undefined);
  const { arch, printMirrorInstructions: kind, dryRun } = args;
  return {
    fromDir: args.fromDir,
    arch: arch === undefined ? undefined : parseArchitecture(arch),
    graphUrl: args.graphUrl,
    repository: args.releaseRepository,
    additionalImages: args.additionalImage,
    destination: hasPlace ? parseDestination({ to: place, toDir, toReleaseImage }) : undefined,
    skipReleaseImage,
    verifyExisting: args.verifyExisting,
    concurrency: args.maxPerRegistry,
    imageStream: toImageStream,
    insecure: args.insecure,
    configFolder: configFolderOf(args),
    configRoot: args.configToDir ?? toDir,
    signatureFolder: args.releaseImageSignatureToDir,
    mirrorSet: kind === 'none' ? undefined : kind,
    graphData: args.graphData,
    certificateAuthority: args.certificateAuthority,
    apply: args.applyConfig ? 'configuration' : args.applyReleaseImageSignature ? 'signatures' : 'nothing',
    overwrite: args.overwrite,
    ...(dryRun !== 'none' && { dryRun }),
    trust: { ...trustOf(args), allowUnsigned: args.allowUnsigned || args.skipVerification },
  };
}

/** Reads which releases are wanted. Throws `usage` for none, and for names that contradict each other. */
export function readReleases(args: MirrorArguments): ReleaseChoice {
  const { release, from, version, pathFrom, toVersion } = args;
  const [named, again] = [release, from, version].filter((each) => each !== undefined);
  if (again !== undefined) refuse('the release is given twice: as the argument, by --from or by --version');
  const hasPath = pathFrom !== undefined || toVersion !== undefined;
  if (hasPath && named !== undefined) refuse('releases are named twice: by a path of updates, and by name');
  if (hasPath && (pathFrom === undefined || toVersion === undefined)) {
    refuse('a path of updates has two ends', 'Give both: --path-from=4.18.20 --to-version=4.20.3.');
  }
  const ranges = readChannelRanges(args);
  const hasRange = ranges.length > 0;
  if (hasRange && (hasPath || named !== undefined))
    refuse('releases are named twice: by --channel, and in another way');
  if (!hasPath && !hasRange && named === undefined) {
    refuse('no release is named', 'Give a version such as 4.20.3, an image, a bundle, or file:// with --from-dir.');
  }
  // A path may have commas of its own.
  const releases = named === undefined ? [] : /^[./]/.test(named) ? [named] : named.split(',');
  requireDistinct(releases);
  if (releases.includes('')) refuse(`“${named ?? ''}” has a comma without a release`);
  if (hasPath || hasRange || releases.length > 1) requireTagEach(args);
  return {
    releases,
    ...(pathFrom !== undefined && toVersion !== undefined && { path: { from: pathFrom, to: toVersion } }),
    ranges,
  };
}

/** Throws `usage` if several releases would get the same tag. */
export function requireTagEach({ toReleaseImage }: Pick<MirrorArguments, 'toReleaseImage'>): void {
  if (/:[^/]*$/.test(toReleaseImage ?? '') && !toReleaseImage?.includes('${version}'))
    refuse(
      '--to-release-image has one tag, and several releases need one each',
      'Put ${version} into the tag, such as REGISTRY/REPOSITORY:${version}-x86_64.',
    );
}

/**
 * Returns the folder for configuration manifests: that of `--config-to-dir`, else `config` in `--to-dir`; undefined
 * without both.
 */
export function configFolderOf({
  configToDir,
  toDir,
}: Pick<MirrorArguments, 'configToDir' | 'toDir'>): string | undefined {
  if (configToDir !== undefined) return configToDir;
  return toDir === undefined ? undefined : join(toDir, 'config');
}

function refuse(message: string, hint?: string): never {
  throw new PluginError('usage', message, { hint });
}
