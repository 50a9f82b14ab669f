import type { Digest } from '../../../lib/content/oci/reference.ts';
import { TestContent, type ImageFormat } from '../content/image.ts';
import { makeNoiseLayer } from '../content/layers.ts';

/** The content and the name of an image that is not part of a release. */
export interface ExtraImageOptions {
  readonly registry?: string;
  readonly repository?: string;
  readonly tag?: string;
  readonly architecture?: string;
  readonly layers?: number;
  readonly layerSize?: number;
  readonly format?: ImageFormat;
  readonly seed?: string;
  readonly labels?: Readonly<Record<string, string>>;
}

/** An image that is not part of a release. */
export interface ExtraImage extends Pick<TestContent, 'content' | 'blobs' | 'addTo'> {
  readonly digest: Digest;
  /** The pullspec by digest. */
  readonly pullspec: string;
  /** The pullspec by tag. */
  readonly tagged: string;
  readonly repository: string;
  readonly tag: string;
}

/** Creates an image that is not part of a release; OCI by default. */
export function extraImage(options: ExtraImageOptions = {}): ExtraImage {
  const { registry = 'quay.io', repository = 'example/site-tool', tag = 'v1', seed = 'extra' } = options;
  const { architecture = 'amd64', layers = 2, layerSize = 8192, format = 'oci', labels = {} } = options;
  const contents = new TestContent();
  const noise = Array.from({ length: layers }, (_, index) => makeNoiseLayer(`${seed}/${index}`, layerSize));
  const { digest } = contents.addImage(repository, { architecture, layers: noise, format, labels }, tag);
  return {
    digest,
    pullspec: `${registry}/${repository}@${digest}`,
    tagged: `${registry}/${repository}:${tag}`,
    repository,
    tag,
    content: contents.content,
    blobs: contents.blobs,
    addTo: (content) => {
      contents.addTo(content);
    },
  };
}
