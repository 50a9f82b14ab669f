import type { Answer } from '../http/faults.ts';
import type { Exchange } from '../http/faultyServer.ts';
import { json } from '../registry/tokenServer.ts';
import type { ApiKind } from './apiKinds.ts';
import { TestApiServer } from './apiServer.ts';

const kind: ApiKind = {
  group: 'image.openshift.io',
  version: 'v1',
  kind: 'ImageStreamImport',
  resource: 'imagestreamimports',
  namespaced: true,
};

/** The part of an ImageStreamImport that tests read. */
interface Import {
  metadata: { name: string };
  spec: { import: boolean; images: { from: { name: string }; to: { name: string } }[] };
}

/** An API server that responds to imports as OpenShift does: each image has its own status. */
export class ImportingServer extends TestApiServer {
  /** The requested imports, in order. */
  readonly imports: Import[] = [];
  /** The number of times that an image fails before it can be imported. */
  readonly failures = new Map<string, number>();

  constructor() {
    super({ openshift: '4.14.3', kinds: [kind] });
  }

  protected override async answer(exchange: Exchange): Promise<Answer> {
    if (exchange.method !== 'POST' || !exchange.path.endsWith('/namespaces/default/imagestreamimports')) {
      return super.answer(exchange);
    }
    const chunks: Buffer[] = [];
    for await (const chunk of exchange.body()) chunks.push(chunk);
    const made = JSON.parse(String(Buffer.concat(chunks))) as Import;
    this.imports.push(made);
    const images = made.spec.images.map(({ to: { name } }) => {
      const left = this.failures.get(name) ?? 0;
      this.failures.set(name, left - 1);
      return { status: left > 0 ? { status: 'Failure', message: 'manifest unknown' } : { status: 'Success' } };
    });
    return json(201, { ...made, status: { images } });
  }
}
