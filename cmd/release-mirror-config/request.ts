import { join } from 'node:path';
import { PluginError } from '../../lib/errors.ts';
import { parseDestination, type Destination } from '../../lib/release/mirror/destination.ts';
import type { Arguments } from '../cli/command.ts';
import type { mirrorOptions } from './options.ts';

/** The arguments of the mirror command. */
export type MirrorArguments = Arguments<typeof mirrorOptions> & { readonly release: string | undefined };

/** What the arguments ask for, checked before anything is done. */
export interface MirrorRequest {
  readonly release: string;
  /** Where the images go; undefined where only the configuration is wanted, or an image stream. */
  readonly destination: Destination | undefined;
  /** Where configuration manifests are written. */
  readonly configFolder: string | undefined;
}

/** Reads what is asked for. Throws `usage` for what contradicts itself, as `oc adm release mirror` does. */
export function readRequest(args: MirrorArguments): MirrorRequest {
  const { release, from, to, toDir, toImageStream, toMirror, toReleaseImage, skipReleaseImage } = args;
  if (release !== undefined && from !== undefined) refuse('the release is named twice: by the argument and by --from');
  const named = release ?? from;
  if (named === undefined) {
    return refuse(
      'no release is named',
      'Give a version such as 4.12.4, an image, a bundle, or file:// with --from-dir.',
    );
  }
  if (to !== undefined && toImageStream !== undefined)
    refuse('--to and --to-image-stream are two destinations; give one');
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
  if (args.overwrite && !args.applyConfig && !args.applyReleaseImageSignature) {
    refuse(
      '--overwrite replaces objects of the cluster, and neither --apply-config nor --apply-release-image-signature is given',
    );
  }
  // As oc has it: without another place, the mapping is for a repository of that name.
  const place = to ?? (toDir === undefined && toMirror ? 'docker.io/openshift/release' : undefined);
  return {
    release: named,
    destination: hasPlace ? parseDestination({ to: place, toDir, toReleaseImage }) : undefined,
    configFolder: folderOf(args),
  };
}

function folderOf({ configToDir, toDir }: MirrorArguments): string | undefined {
  if (configToDir !== undefined) return configToDir;
  return toDir === undefined ? undefined : join(toDir, 'config');
}

function refuse(message: string, hint?: string): never {
  throw new PluginError('usage', message, { hint });
}
