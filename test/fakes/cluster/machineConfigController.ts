import { isDeepStrictEqual } from 'node:util';
import { osImageStreamKind } from '../kubernetes/apiKinds.ts';
import type { ApiObject } from '../kubernetes/apiObjects.ts';
import type { TestApiServer } from '../kubernetes/apiServer.ts';

/** A build of machine-config-controller in a release. */
export interface ControllerBuild {
  readonly version: string;
  /** The commit that its log shows and that it compares. */
  readonly commit: string;
  /** The image of machine-config-operator. */
  readonly image: string;
  /** Whether the gate OSStreams is enabled: in 4.23 and 5.0, not in 4.22. */
  readonly hasStreams: boolean;
  /** Whether it reads the ConfigMap machine-config-image-inspection-cache (pull request 6379). */
  readonly readsCache?: boolean;
}

/** A stream of a release: its name, and the pullspecs of its images. */
export type Stream = Readonly<Record<'name' | 'osImage' | 'osExtensionsImage', string>>;

/** What a registry or mirror has of a release: its own image, and operating system images by their pullspecs. */
export interface RegistryContent {
  readonly release: boolean;
  readonly images: readonly string[];
}

/** What an attempt did. `deferred`: for another version, so it starts the others; `taken`: the object was for it. */
export type Outcome = 'taken' | 'built' | 'blocked' | 'deferred' | 'off';

const namespace = 'openshift-machine-config-operator';
const name = 'machine-config-controller';
const api = 'machineconfiguration.openshift.io/v1';
const noted = 'machineconfiguration.openshift.io/';

/**
 * machine-config-controller with its Lease, pods, log and ControllerConfig. It starts its other controllers only after
 * the first OSImageStream, as that of release-5.0 does.
 */
export class MachineConfigController {
  /**
   * The streams of the release, by the labels of its images. The first is in the ConfigMap machine-config-osimageurl.
   */
  streams: readonly Stream[] = [];
  /** The registry that answers; undefined without one. A mirror counts only with an ImageDigestMirrorSet. */
  registry: RegistryContent | undefined;
  /** The number of requests to a registry. */
  requests = 0;
  /** Whether its other controllers run. */
  running = true;
  /** The last lines of its log, of all builds. */
  readonly lines: string[] = [];
  build: ControllerBuild | undefined;
  /** Whether an earlier pod ends only when a test says so. */
  lingers = false;
  /** The time at which a new build begins to lead; now by default. */
  leadsSince: Date | undefined;
  readonly #server: TestApiServer;
  #count = 0;

  constructor(server: TestApiServer) {
    this.#server = server;
  }

  /** Serves OSImageStream for a build that needs it, as the version operator does before it deploys the build. */
  define({ hasStreams }: ControllerBuild): void {
    const { kinds } = this.#server;
    if (hasStreams && !kinds.includes(osImageStreamKind)) kinds.push(osImageStreamKind);
  }

  /** Deploys a build: its pod starts, the earlier pod is deleted, it leads, and it makes its first attempt. */
  deploy(build: ControllerBuild): void {
    if (isDeepStrictEqual(build, this.build)) return;
    this.define(build);
    const earlier = this.#pods();
    this.build = build;
    this.#count += 1;
    const pod = `${name}-${this.#count}`;
    this.#server.put({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: pod, namespace, labels: { 'k8s-app': name } },
      spec: { containers: [{ name, image: build.image, args: ['start', `--payload-version=${build.version}`] }] },
      status: { phase: 'Running' },
    });
    this.running = !build.hasStreams;
    this.#render(false);
    if (!this.lingers) this.end(earlier);
  }

  /** Deletes earlier pods, and lets the new one lead. */
  end(pods: readonly ApiObject[] = this.#pods().slice(0, -1)): void {
    const kind = this.#server.kinds.find((each) => each.kind === 'Pod');
    for (const { metadata } of pods)
      if (kind) this.#server.objects.delete({ kind, namespace, name: metadata.name }, {}, false);
    const holder = this.#pods().at(-1)?.metadata.name ?? '';
    this.#server.put({
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata: { name, namespace },
      spec: {
        holderIdentity: `${holder}_3f0c`,
        acquireTime: (this.leadsSince ?? new Date()).toISOString().replace('Z', '000Z'),
      },
    });
    this.#say(`1 start.go:77] Version: v${this.build?.version ?? ''} (${this.build?.commit ?? ''})`);
    this.attempt();
  }

  /** Tries once, as the controller does at its start and every 5 minutes while it is blocked. */
  attempt(): Outcome {
    if (this.build?.hasStreams !== true) return this.#go('off');
    const existing = this.#server.find(api, 'OSImageStream', 'cluster');
    const site = this.#server.find('config.openshift.io/v1', 'ClusterVersion', 'version');
    const { desired } = site?.['status'] as { desired: { image: string; version: string } };
    const { image, version } = desired;
    const notes = (existing?.metadata['annotations'] ?? {}) as Record<string, string>;
    const target = { [`${noted}release-image-version`]: this.build.commit, [`${noted}release-payload-image`]: image };
    if (Object.entries(target).every(([key, value]) => notes[key] === value)) {
      // It takes the default stream of the spec, which must be among the streams.
      const { availableStreams = [] } = (existing?.['status'] ?? {}) as { availableStreams?: Stream[] };
      const { defaultStream } = existing?.['spec'] as { defaultStream: string };
      if (availableStreams.some((each) => each.name === defaultStream)) return this.#go('taken');
      return this.#block(`default OSImageStream ${defaultStream} not found`);
    }
    if (version !== this.build.version) {
      this.#say(
        `1 osimagestream_controller.go:345] OSImageStream rebuild deferred: ClusterVersion targets ${version} ` +
          `but operator is ${this.build.version}`,
      );
      return this.#go('deferred');
    }
    const streams = this.#inspect();
    const [first] = streams;
    if (!first) return this.#block('unable to retrieve any OSImageStream from the configured sources');
    const made = { apiVersion: api, kind: 'OSImageStream', metadata: { name: 'cluster', annotations: target } };
    const own = { availableStreams: streams.map((each) => ({ ...each })), defaultStream: first.name };
    this.#server.put({ ...made, spec: { defaultStream: first.name }, status: own });
    return this.#go('built');
  }

  /** Reads the release’s list of images, then their labels. Each of the two sources may fail alone. */
  #inspect(): readonly Stream[] {
    const cached = this.build?.readsCache === true ? this.#readCache() : undefined;
    const [first] = this.streams;
    const has = (stream: Stream, content: RegistryContent): boolean =>
      [stream.osImage, stream.osExtensionsImage].every((image) => content.images.includes(image));
    const from = (content: RegistryContent): readonly Stream[] =>
      content.release
        ? this.streams.filter((stream) => has(stream, content))
        : this.streams.filter((stream) => stream === first && has(stream, content));
    const known = cached ? from(cached) : [];
    if (known.length > 0) return known;
    const secret = this.#server.find('v1', 'Secret', 'pull-secret', 'openshift-config');
    if (!secret) return [];
    this.requests += 1;
    return this.registry ? from(this.registry) : [];
  }

  #readCache(): RegistryContent | undefined {
    const found = this.#server.find('v1', 'ConfigMap', 'machine-config-image-inspection-cache', namespace);
    const text = (found?.['data'] as { 'cache.json'?: string } | undefined)?.['cache.json'];
    return text === undefined ? undefined : (JSON.parse(text) as RegistryContent);
  }

  #block(why: string): Outcome {
    this.#say(
      `1 osimagestream_controller.go:222] Error syncing OSImageStream cluster: building the OSImageStream: ${why}`,
    );
    return 'blocked';
  }

  #go(outcome: Outcome): Outcome {
    if (!this.running) this.#say('1 template_controller.go:197] Starting MachineConfigController-TemplateController');
    this.running = true;
    this.#render(true);
    return outcome;
  }

  /** Writes the ControllerConfig of the build; its status is for it, or for the one before. */
  #render(isRendered: boolean): void {
    const spec = { releaseImage: this.build?.version ?? '' };
    const made = this.#server.put({ apiVersion: api, kind: 'ControllerConfig', metadata: { name }, spec });
    const kind = this.#server.kinds.find((each) => each.kind === 'ControllerConfig');
    const observedGeneration = Number(made.metadata['generation']) - (isRendered ? 0 : 1);
    const place = kind && { kind, namespace: '', name };
    const writing = { manager: name, dryRun: false, status: true };
    if (place) this.#server.objects.replace(place, { ...made, status: { observedGeneration } }, writing);
  }

  #pods(): ApiObject[] {
    const kind = this.#server.kinds.find((each) => each.kind === 'Pod');
    const pods = kind ? this.#server.objects.list(kind, namespace) : [];
    return pods.filter(({ metadata }) => metadata.name.startsWith(`${name}-`));
  }

  #say(line: string): void {
    this.lines.push(`I1125 10:00:00.000000       ${line}`);
    const pod = `${namespace}/${name}-${this.#count}`;
    this.#server.podLogs.set(pod, [...(this.#server.podLogs.get(pod) ?? []), ...this.lines.slice(-1)]);
  }
}
