import { describeSignatures } from '#bundle/metadata';
import { formatMirrorInstructions, mirrorSetManifests } from '#config/mirrorSets';
import { formatTrustInstructions, formatUpdateServiceInstructions } from '#config/updateService';
import {
  listMapping,
  mirrorRelease,
  type MirrorOutcome,
  FilledRepositories,
  type MirrorResult,
  listReleases,
  type WrittenFile,
  isImageConfig,
  formatTarget,
  releaseName,
  type MirrorImage,
  type MirrorMeasure,
} from '#mirroring/mirror';
import type { Release } from '#release/release';
import { releaseTag } from '#release/version';
import { Lines, formatBytes, shellWord, joinParagraphs, shellCommand } from '#text';
import { openAccess, clusterOpener } from '../cli/access.ts';
import { defineCommand, type CommandSession } from '../cli/command.ts';
import { formatData } from '../cli/format.ts';
import {
  checkOutcomes,
  formatOutcome,
  suffixOf,
  toPlainOutcome,
  warnOfOutcomes,
  type DryRun,
} from '../cli/mirroring/applyReport.ts';
import { clusterWords, runWords, trustWords, upgradeCommand } from '../cli/mirroring/carriedOptions.ts';
import { readImageList } from '../cli/mirroring/imageSet.ts';
import { listPolicies, toPlainPolicies } from '../cli/trust.ts';
import { mirrorConfig, mirrorOptions } from './options.ts';
import { readReleases, readRequest, requireTagEach, configFolderOf, type MirrorArguments } from './request.ts';

/** The default command: mirrors a release and its configuration. */
export const command = defineCommand({
  details:
    'The release is a version, an image, a bundle or mirror directory, or file://openshift/release:TAG with ' +
    '--from-dir. Its signature is checked first. Images and their sigstore signatures keep their digests. Existing ' +
    'content is not fetched again, so an interrupted run resumes if the same command is run again. Without a ' +
    'destination only the configuration is created.',
  positionals: {
    release: {
      type: 'string',
      describe: 'A version such as 4.20.3, an image, a bundle, or file://REPOSITORY:TAG; several separated by commas',
      suggest: 'versions',
    },
  },
  options: mirrorOptions,
  examples: [
    ['4.20.3 --to-dir=/media/usb/mirror -a pull-secret.json', 'Mirror a release to disk'],
    [
      'file://openshift/release:4.20.3-x86_64 --from-dir=/media/usb/mirror ' +
        '--to=registry.example.com:5000/openshift/release --apply-config',
      'Mirror it from disk to the registry of a site, and configure its cluster',
    ],
    ['4.18.20,4.19.12 --to-dir=/media/usb/mirror', 'Mirror two releases, and download shared blobs once'],
    [
      '--path-from=4.18.20 --to-version=4.20.3 --to-dir=/media/usb/mirror',
      'Mirror the releases of an update over several versions',
    ],
    [
      '--channel=stable-4.20 --min=4.20.1 --to-dir=/media/usb/mirror',
      'Mirror the releases of a channel from 4.20.1 on',
    ],
    ['-f imageset.yaml --to-dir=/media/usb/mirror', 'Mirror the releases that a file of oc-mirror names'],
    ['4.20.3 --apply-config', 'Apply only the signature of a release to the cluster'],
  ],
  resumes: 'images',
  config: mirrorConfig,
  async run(args, { context, terminal, environment, stdin }) {
    const choice = readReleases(args);
    const listed = await readImageList(args.imagesFrom, stdin);
    const request = readRequest({ ...args, additionalImage: [...args.additionalImage, ...listed] });
    if (args.skipVerification) {
      context.log('info', '--skip-verification accepts releases without a trusted signature; digests are checked');
    }
    const access = {
      registries: await openAccess(args, environment),
      openCluster: clusterOpener(args, environment, context),
    };
    const mirroring = { ...context, onEvent: terminal.transfer('Mirroring') };
    const releases = await listReleases(choice, request, access, mirroring);
    if (releases.length > 1) requireTagEach(args);
    if (args.toMirror) {
      const pairs: (readonly [source: string, target: string])[] = [];
      for (const release of releases) pairs.push(...(await listMapping({ ...request, ...release }, access, mirroring)));
      const mapping = pairs.map(([source, target]) => ({ source, target }));
      await terminal.printResult(args.output, { mapping }, new Lines(...pairs.map((pair) => pair.join(' '))));
      return;
    }
    const filled = new FilledRepositories();
    const report = new MirrorReport(args, releases.length > 1, { context, terminal });
    try {
      for (const release of releases) {
        report.add(await mirrorRelease({ ...request, ...release }, access, mirroring, filled));
      }
    } finally {
      await report.end();
    }
  },
});

/** Prints the results of a run, which may have several releases. With `-o json`, these are one list. */
class MirrorReport {
  readonly #args: MirrorArguments;
  readonly #isSeveral: boolean;
  readonly #session: Pick<CommandSession, 'context' | 'terminal'>;
  readonly #outcomes: MirrorOutcome[] = [];
  #isEmpty = true;

  constructor(args: MirrorArguments, isSeveral: boolean, session: Pick<CommandSession, 'context' | 'terminal'>) {
    this.#args = args;
    this.#isSeveral = isSeveral;
    this.#session = session;
  }

  /** Prints the result for a release as text, then throws its error if it was not complete. */
  add(outcome: MirrorOutcome): void {
    const { context } = this.#session;
    this.#outcomes.push(outcome);
    if (outcome.result) context.log('info', formatCounts(outcome.result));
    warnOfOutcomes(outcome.applied, this.#session.terminal);
    if (this.#args.output === undefined) this.#print(formatMirrorOutcome(outcome, this.#args));
    if (outcome.failure !== undefined) throw outcome.failure;
    checkOutcomes(outcome.applied, this.#args.dryRun);
  }

  /** Prints what to do after the run, once for all its releases; or all results as data. */
  async end(): Promise<void> {
    if (this.#outcomes.length === 0) return;
    const { output } = this.#args;
    if (output === undefined) {
      this.#print(formatInstructions(this.#outcomes, this.#args));
      return;
    }
    const [first = {}, ...more] = this.#outcomes.map((outcome) => toPlainMirrorOutcome(outcome, this.#args));
    this.#print(await formatData(output, this.#isSeveral ? [first, ...more] : first));
  }

  #print(text: Lines): void {
    if (text.lines.length === 0) return;
    this.#session.terminal.print(this.#isEmpty ? text : new Lines('', text));
    this.#isEmpty = false;
  }
}

/** Formats the result as text for users and scripts, in the words of `oc adm release mirror` if it has any. */
function formatMirrorOutcome(outcome: MirrorOutcome, args: MirrorArguments): Lines {
  const { images, measure, imported, files, applied } = outcome;
  const { dryRun } = args;
  const changes = [
    ...files.map((file) => formatFile(file, dryRun)),
    ...applied.map((each) => formatOutcome(each, dryRun)),
  ];
  const sections = [
    new Lines(...images.map((image) => formatImage(image, dryRun, measure?.present))),
    measure ? formatMeasure(measure) : '',
    formatImport(imported, args),
    formatSuccess(outcome, args),
    new Lines(...changes),
  ];
  return joinSections(sections);
}

function formatInstructions(outcomes: readonly MirrorOutcome[], args: MirrorArguments): Lines {
  const isMixed = outcomes.some((outcome) => outcome.isMixed);
  const update = outcomes.findLast(({ updateService }) => updateService);
  const service = update?.updateService;
  const isTrusted = update?.applied.some(({ manifest }) => isImageConfig(manifest)) === true;
  return joinSections([
    formatUpload(outcomes, args),
    // In a dry run too, because many users run it only for these lines.
    ...outcomes.map((outcome) =>
      outcome.mirrors && !hasMirrorSet(outcome, args) ? Lines.split(formatMirrorInstructions(outcome.mirrors)) : '',
    ),
    ...(args.dryRun === 'none'
      ? [
          ...outcomes.map((outcome) => formatConfigAdvice({ ...outcome, isMixed }, args)),
          service && !isTrusted ? Lines.split(formatTrustInstructions(service)) : '',
          formatUpgrade(outcomes, args),
          service ? Lines.split(formatUpdateServiceInstructions(service)) : '',
        ]
      : ['Dry run: nothing was written.']),
  ]);
}

/** Joins sections that are not empty. Releases with the same instructions get them once. */
function joinSections(sections: readonly (string | Lines)[]): Lines {
  const byText = new Map(sections.map((section) => [new Lines(section).text, section]));
  return joinParagraphs(...byText.values());
}

/** Returns the result as plain data. */
function toPlainMirrorOutcome(outcome: MirrorOutcome, args: MirrorArguments): object {
  const { signed, images, policies, result, measure, imported, files, applied, mirrors } = outcome;
  const mirrorSets = mirrors ? mirrorSetManifests(mirrors).map(({ object }) => object) : [];
  const { version, arch, pullspec, digest } = signed.release;
  return {
    version,
    arch,
    digest,
    release: pullspec,
    updateImage: updateImageOf(outcome),
    command: upgradeCommand(updateImageOf(outcome)),
    dryRun: args.dryRun,
    signatures: describeSignatures(signed.signatures),
    sigstore: toPlainPolicies(policies),
    ...(result && { blobs: result.blobs, bytes: result.bytes, attachments: result.attachments }),
    images: images.map((image) => ({
      name: image.name,
      digest: image.digest,
      target: formatTarget(image.target),
      ...(measure && { present: measure.present.has(image) }),
    })),
    ...(measure && { total: measure.total, missing: measure.missing }),
    ...(imported > 0 && { imported }),
    ...(mirrorSets.length > 0 && { mirrorSet: mirrorSets[0], mirrorSets }),
    files,
    applied: applied.map(toPlainOutcome),
  };
}

/** Formats the line for a file: `Configmap config/signature/sha256/81154f5c03294534.yaml created`. */
function formatFile({ path, kind, outcome }: WrittenFile, dryRun: DryRun): string {
  return `${kind.charAt(0).toUpperCase()}${kind.slice(1).toLowerCase()} ${path} ${outcome}${suffixOf(dryRun)}`;
}

function formatImport(imported: number, { toImageStream = '', dryRun }: MirrorArguments): string {
  if (imported === 0) return '';
  return `${imported} images imported into imagestream/${toImageStream}${dryRun === 'none' ? '' : ' (dry run)'}`;
}

function formatImage(image: MirrorImage, dryRun: DryRun, present?: ReadonlySet<MirrorImage>): string {
  const line = `${image.digest} ${formatTarget(image.target, image.target.tag === undefined ? image.digest : undefined)}`;
  if (dryRun === 'none') return line;
  return `${line} ${present?.has(image) ? 'unchanged' : 'created'} (dry run)`;
}

function formatSuccess(outcome: MirrorOutcome, { to, toReleaseImage }: MirrorArguments): string | Lines {
  if (outcome.images.length === 0) return '';
  const places = [to, toReleaseImage].filter((place) => place !== undefined);
  const prefixes = places.map(
    (place) => `${place.includes('${component}') ? 'Mirrored to' : 'Mirror prefix'}: ${place}`,
  );
  return new Lines(
    ...(outcome.result ? ['Success'] : []),
    `Update image:  ${updateImageOf(outcome)}`,
    ...prefixes,
    ...listPolicies(toPlainPolicies(outcome.policies)),
  );
}

function formatUpgrade(outcomes: readonly MirrorOutcome[], args: MirrorArguments): string | Lines {
  const copied = outcomes.filter(({ result }) => result);
  if (copied.length === 0) return '';
  const isSigned = copied.every(({ signed: { signatures, release } }) => signatures.has(release.digest));
  const unsigned = isSigned ? '' : ' (add --force: the release is not signed, so the cluster refuses it otherwise)';
  const commands = copied.map((outcome) => {
    const version = copied.length === 1 ? '' : ` # ${outcome.signed.release.version}`;
    return `    ${upgradeCommand(updateImageOf(outcome))}${clusterWords(args)}${version}`;
  });
  const run = copied.length === 1 ? 'run' : 'run one of these commands';
  return new Lines(`To update a cluster that finds the images there, ${run}${unsigned}:`, '', ...commands);
}

/**
 * Returns the release by digest, for `oc adm upgrade --to-image`: at its destination or, if that is a directory, by its
 * original name.
 */
function updateImageOf({ signed, images }: MirrorOutcome): string {
  const own = images.find(({ digest }) => digest === signed.release.digest);
  return own?.target.place.kind === 'registry' ? formatTarget(own.target, own.digest) : signed.release.pullspec;
}

function hasMirrorSet({ applied }: MirrorOutcome, { dryRun }: MirrorArguments): boolean {
  return applied.some(
    ({ manifest, outcome }) =>
      dryRun === 'none' &&
      ['created', 'configured', 'unchanged'].includes(outcome) &&
      manifest.path.startsWith('config/mirrors/'),
  );
}

function formatConfigAdvice(outcome: MirrorOutcome, args: MirrorArguments): string | Lines {
  const { files, applied } = outcome;
  const configFolder = configFolderOf(args);
  if (configFolder === undefined || files.length === 0 || applied.length > 0) return '';
  const options = applyWords(outcome, args);
  const command =
    options === undefined
      ? `${runWords(args)} --apply-config`
      : ` apply ${shellWord(configFolder)}${options}${clusterWords(args)}`;
  return new Lines('To apply the configuration to a cluster, run:', '', `    oc adm-release-mirror-config${command}`);
}

/**
 * Returns the options that `apply` needs for the folder that this run wrote. Undefined if the folder has neither the
 * release nor its key, which prove the signature and the mirror sets: only a run that reads the release can apply them.
 */
function applyWords(
  { files, images, mirrors, updateService, isMixed }: MirrorOutcome,
  args: MirrorArguments,
): string | undefined {
  const isInDirectory = images.some(({ isRelease, target }) => isRelease && target.place.kind === 'directory');
  const hasRelease = isInDirectory && !isMixed;
  const isSigned = args.signatureKeyring.length > 0 && files.every(({ kind }) => kind === 'ConfigMap');
  if (!(hasRelease && args.configToDir === undefined) && !isSigned) return undefined;
  const places = mirrors || updateService ? images.map(({ target }) => target.place) : [];
  const registries = new Set(places.flatMap((place) => (place.kind === 'registry' ? [place.registry] : [])));
  return [...registries].map((host) => ` --mirror-registry=${shellWord(host)}`).join('') + trustWords(args);
}

/** Formats the numbers of blobs: `12 blobs copied (3 MiB), 4 present`. */
function formatCounts({ blobs: { copied, mounted, skipped }, bytes }: MirrorResult): string {
  return [
    `${copied} blobs copied (${formatBytes(bytes)})`,
    ...(mounted > 0 ? [`${mounted} mounted from other repositories`] : []),
    ...(skipped > 0 ? [`${skipped} present`] : []),
  ].join(', ');
}

/** Formats what a dry run would copy: `To copy: 12 of 16 blobs, 3 MiB of 4 MiB (dry run)`. */
function formatMeasure({ total, missing }: MirrorMeasure): string {
  const bytes = `${formatBytes(missing.bytes)} of ${formatBytes(total.bytes)}`;
  return `To copy: ${missing.blobs} of ${total.blobs} blobs, ${bytes} (dry run)`;
}

/** Formats the commands that copy the images of releases from a directory to a registry; empty if there are none. */
function formatUpload(outcomes: readonly MirrorOutcome[], args: MirrorArguments): string | Lines {
  const { toDir = '.' } = args;
  const from = `--from-dir=${shellWord(toDir)}`;
  const groups = outcomes.flatMap(({ signed: { release }, images, result }) => {
    const local = images.filter(({ target }) => target.place.kind === 'directory');
    return result && local.length > 0 ? [{ release, local, result }] : [];
  });
  if (groups.length === 0) return '';
  const commands = groups.flatMap(({ release, local, result }) => ocCommands(local, release, result, from));
  const unique = [...new Set(commands)].map((command) => `    ${command}`);
  const own = groups.flatMap(({ local }) => local.find(({ name }) => name === releaseName) ?? []);
  const names = own.map(({ target, digest }) => formatTarget(target, target.tag ? undefined : digest));
  // Without the release image, the images of the release in the directory are unknown.
  if (names.length < groups.length) return new Lines('To upload local images to a registry, run:', '', ...unique);
  return new Lines(
    'To upload local images to a registry, run:',
    '',
    `    oc adm-release-mirror-config ${from} ${shellWord(names.join(','))} ` +
      `--to=REGISTRY/REPOSITORY${trustWords(args)}`,
    '',
    'or, with oc alone:',
    '',
    ...unique,
  );
}

function ocCommands(local: readonly MirrorImage[], release: Release, result: MirrorResult, from: string): string[] {
  // Without this option, oc takes only the image for its own platform from a manifest list, and drops the list.
  const copy = `oc image mirror ${from}${result.hasLists ? ' --keep-manifest-list' : ''}`;
  const groups = Map.groupBy(local, ({ target }) => target.place.repository);
  return [...groups].flatMap(([repository, images]) => {
    const to = shellCommand`REGISTRY/${groups.size === 1 ? 'REPOSITORY' : repository}`;
    const tags = images.flatMap(({ target: { tag } }) => (tag === undefined ? [] : [tag]));
    const untagged = images.filter(({ target }) => target.tag === undefined);
    const prefix = prefixOf(tags, releaseTag(release.version, release.arch));
    const hasOthers = images.some((image) => result.attached.has(image)) && prefix !== '';
    return [
      ...(tags.length > 0 ? [`${copy} ${shellWord(`file://${repository}:${prefix}*`)} ${to}`] : []),
      ...untagged.map(({ digest }) => `${copy} ${shellWord(`file://${repository}@${digest}`)} ${to}`),
      ...(hasOthers ? [`${copy} ${shellWord(`file://${repository}:sha256-*`)} ${to}`] : []),
    ];
  });
}

/** Returns the common prefix of all tags: the release’s own tag, or the shortest tag; else nothing. */
function prefixOf(tags: readonly string[], own: string): string {
  const shortest = tags.toSorted((a, b) => a.length - b.length)[0] ?? '';
  return [own, shortest].find((prefix) => tags.every((tag) => tag.startsWith(prefix))) ?? '';
}
