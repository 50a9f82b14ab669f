import { readConfigFolder } from '../../lib/bundle/create/origin.ts';
import { openReleaseSource, type ReleaseSource } from '../../lib/bundle/create/releaseSource.ts';
import type { ApplyOutcome } from '../../lib/kubernetes/apply.ts';
import type { Cluster } from '../../lib/kubernetes/client.ts';
import type { ConfigManifest } from '../../lib/config/manifest.ts';
import { releaseManifests, signatureManifests } from '../../lib/config/releaseManifests.ts';
import { mergeSignatures, readAllSignatures } from '../../lib/config/signatures.ts';
import { isPluginError } from '../../lib/errors.ts';
import { formatReference } from '../../lib/oci/reference.ts';
import { formatTarget } from '../../lib/release/mirror/destination.ts';
import { resolveVersion } from '../../lib/release/graph/graph.ts';
import { loadRelease, type SignedRelease } from '../../lib/release/load.ts';
import { fetchFile, type FetchFile } from '../../lib/release/signature/signatureStore.ts';
import { parseArchitecture } from '../../lib/release/version.ts';
import { Registries } from '../../lib/registry/registries.ts';
import { RootFolder } from '../../lib/files/rootFolder.ts';
import { openAccess } from '../cli/access.ts';
import { openCluster } from '../cli/clusterAccess.ts';
import type { CommandSession } from '../cli/command.ts';
import { applyConfiguration, checkOutcomes, writeConfiguration, writeSignatureFiles } from './configuration.ts';
import { mirrorImages } from './copy.ts';
import { describeUpdateService, findGraphData, listMirrorImages, listMirrors, namedImages } from './images.ts';
import { importRelease } from './imageStream.ts';
import { tellOfResuming } from './interruption.ts';
import { readRequest, type MirrorArguments, type MirrorRequest } from './request.ts';
import { formatMirrorOutcome, toPlainMirrorOutcome } from './summary.ts';
import { type MirrorOutcome } from './upload.ts';
import { readClusterUpdates } from './updates.ts';

/** Mirrors a release and what goes with it. */
export async function mirrorRelease(args: MirrorArguments, session: CommandSession): Promise<void> {
  const request = readRequest(args);
  const context = { ...session.context, onEvent: session.terminal.transfer('Mirroring') };
  const registries = new Registries(await openAccess(args, session.environment), context);
  const fetch: FetchFile = (url, limit) => fetchFile(registries.connections, url, limit, context);
  try {
    const run = { args, request, registries, fetchFile: fetch, session: { ...session, context } };
    await tellOfResuming(() => mirror(run));
  } finally {
    await registries.close();
  }
}

/** What every step of a run needs. */
interface Run {
  readonly args: MirrorArguments;
  readonly request: MirrorRequest;
  readonly registries: Registries;
  readonly fetchFile: FetchFile;
  readonly session: CommandSession;
}

async function mirror(run: Run): Promise<void> {
  const { args, session } = run;
  const { terminal } = session;
  const source = await openSource(run);
  try {
    const signed = await load(run, source);
    if (args.toMirror) {
      terminal.print((await formatMapping(signed, source, run)).join('\n'));
      return;
    }
    const outcome = await carryOut(run, signed, source);
    const text =
      args.format === 'json'
        ? JSON.stringify(toPlainMirrorOutcome(outcome, args), null, 2)
        : formatMirrorOutcome(outcome, args);
    if (text !== '') terminal.print(text);
    if (outcome.failure !== undefined) throw outcome.failure;
    checkOutcomes(outcome.applied, args.dryRun);
  } finally {
    await source.close();
  }
}

function openSource({ args, request, registries, fetchFile, session }: Run): Promise<ReleaseSource> {
  const { context, environment } = session;
  const { fromDir, graphUrl, releaseRepository: repository } = args;
  const arch = args.arch === undefined ? undefined : parseArchitecture(args.arch);
  const resolve = async (version: string): Promise<string> => {
    const cluster = graphUrl === undefined ? await readClusterUpdates(args, environment, context) : undefined;
    return resolveVersion(version, arch, { graphUrl, cluster, fetchFile }, context);
  };
  const { release } = request;
  return openReleaseSource({ release, fromDir, arch, repository, resolveVersion: resolve }, registries, context);
}

async function load({ args, request, fetchFile, session }: Run, source: ReleaseSource): Promise<SignedRelease> {
  const { context } = session;
  context.log('info', `reading the release ${formatReference(source.found.reference)}`);
  if (args.skipVerification) {
    context.log('info', '--skip-verification lets releases without a trusted signature pass; digests are checked');
  }
  const { configFolder } = request;
  const written =
    configFolder === undefined ? [] : await readConfigFolder(new RootFolder(configFolder), '', context.signal);
  const trust = {
    keyrings: args.signatureKeyring,
    fingerprints: args.trustFingerprint,
    store: args.signatureStore,
    known: mergeSignatures([source.signatures, readAllSignatures(written)]),
    allowUnsigned: args.allowUnsigned || args.skipVerification,
    fetchFile,
  };
  return loadRelease(source.found, source.wanted, trust, context);
}

function formatMapping({ release }: SignedRelease, source: ReleaseSource, { args, request }: Run): Promise<string[]> {
  const lines = namedImages(release, args.skipReleaseImage).map(async ([name, reference]) => {
    const { repository } = await source.sourceOf(name, reference);
    const from =
      repository === undefined ? formatReference(reference) : `file://${repository}@${reference.digest ?? ''}`;
    const target = request.destination?.(name, release);
    return `${from} ${target ? formatTarget(target) : ''}`;
  });
  return Promise.all(lines);
}

/** Does everything that is asked for: images first, then files, then the cluster. What cannot work is found out before the images are copied. */
async function carryOut(run: Run, signed: SignedRelease, source: ReleaseSource): Promise<MirrorOutcome> {
  const { args, request, registries, session } = run;
  const { context } = session;
  const { destination, configFolder } = request;
  if (args.applyConfig || args.applyReleaseImageSignature) await checkCluster(run);
  const images = destination ? await listMirrorImages(signed, source, destination, args.skipReleaseImage) : [];
  const graphData =
    destination && (await findGraphData(args.graphData, signed, source, destination, run.fetchFile, context));
  if (graphData) images.push(graphData);

  const kind = args.printMirrorInstructions;
  const sources = destination && kind !== 'none' ? listMirrors(signed.release, destination) : [];
  const mirrors = kind === 'none' || sources.length === 0 ? undefined : { kind, sources };
  const updateService = graphData && (await describeUpdateService(graphData, signed.release, request, args, context));
  const manifests = releaseManifests(signed, { mirrors, updateService });
  const signatures = signatureManifests(signed);
  if (images.length === 0 && manifests.length === 0) {
    context.log('warn', 'the release has no signature, and so there is no configuration to write or to apply');
  }

  const copied = await mirrorImages(images, args, registries, context);
  const imported =
    args.toImageStream === undefined ? 0 : await importRelease(args.toImageStream, signed, source, args, session);

  const { dryRun, releaseImageSignatureToDir: signatureFolder } = args;
  const files = configFolder === undefined ? [] : await writeConfiguration(configFolder, manifests, dryRun);
  if (signatureFolder !== undefined) files.push(...(await writeSignatureFiles(signatureFolder, signatures, dryRun)));
  const wanted = args.applyConfig ? manifests : args.applyReleaseImageSignature ? signatures : [];
  const outcome = { signed, images, ...copied, imported, files, configFolder, mirrors, updateService };
  try {
    return { ...outcome, applied: wanted.length === 0 ? [] : await applyToCluster(run, wanted) };
  } catch (failure) {
    if (!isPluginError(failure) || failure.code === 'interrupted') throw failure;
    // What was done before is told all the same: it may have taken hours.
    return { ...outcome, applied: [], failure };
  }
}

/** Makes sure that the cluster answers and lets us in: it may be hours until something is applied to it. */
function checkCluster(run: Run): Promise<unknown> {
  return withCluster(run, (cluster) => cluster.version());
}

function applyToCluster(run: Run, manifests: readonly ConfigManifest[]): Promise<ApplyOutcome[]> {
  const { args, session } = run;
  return withCluster(run, (cluster) => applyConfiguration(cluster, manifests, args, session.context));
}

async function withCluster<R>({ args, session }: Run, use: (cluster: Cluster) => Promise<R>): Promise<R> {
  // --certificate-authority is that of registries here, as it is for oc.
  const options = { ...args, certificateAuthority: undefined };
  const cluster = await openCluster(options, session.environment, session.context);
  try {
    return await use(cluster);
  } finally {
    cluster.close();
  }
}
