import { execFileSync } from 'node:child_process';
import { expect } from 'chai';
import { parse } from 'yaml';
import { formatSiteReport, type SiteReport } from '../../../lib/config/siteReport.ts';
import type { LintReport } from '../../../lib/readiness/lint/lint.ts';
import { startApiServer } from '../../fakes/kubernetes/apiServer.ts';
import {
  digestOfFile,
  expectFailure,
  openWorkshop,
  runExecutable,
  runProgram,
  type Workshop,
} from '../../support/content/creation.ts';
import { TestContent } from '../../support/content/image.ts';
import { makeFileLayer, makeNoiseLayer, type TestLayer } from '../../support/content/layers.ts';
import { makeKubeconfigFolder } from '../../support/kubeconfig.ts';
import type { Execution } from '../../support/program/execution.ts';
import { addCatalog, catalogFiles, catalogLayers } from '../../support/release/catalogImage.ts';

interface Result {
  readonly path: string;
  readonly outcome: string;
  readonly fetched: number;
  readonly catalogs: readonly { readonly image: string; readonly operators: readonly { readonly name: string }[] }[];
}

describe('create --operator', () => {
  let workshop: Workshop;
  let catalog: string;
  let images: readonly string[];
  let layers: readonly TestLayer[];
  let missing: string;

  before(async () => {
    workshop = await openWorkshop();
    const { host, content } = workshop.registry;
    const operators = new TestContent();
    const deployment = {
      name: 'web',
      spec: { template: { spec: { containers: [{ name: 'web', image: 'web', imagePullPolicy: 'Always' }] } } },
    };
    const csv = {
      apiVersion: 'operators.coreos.com/v1alpha1',
      kind: 'ClusterServiceVersion',
      metadata: { name: 'web.v1.1.0' },
      spec: { install: { strategy: 'deployment', spec: { deployments: [deployment] } } },
    };
    const prefix = 'operators.operatorframework.io.bundle';
    const contents: readonly [string, TestLayer, Record<string, string>?][] = [
      [
        'bundle',
        makeFileLayer(new Map([['manifests/web.csv.yaml', JSON.stringify(csv)]])),
        { [`${prefix}.manifests.v1`]: 'manifests/', [`${prefix}.package.v1`]: 'web' },
      ],
      ['operator', makeNoiseLayer('operator', 5000)],
    ];
    images = contents.map(([repository, layer, labels = {}]) => {
      const image = { architecture: 'amd64', layers: [layer], labels };
      return `${host}/web/${repository}@${operators.addImage(`web/${repository}`, image).digest}`;
    });
    const versions = [{ version: '1.1.0', skipRange: '<1.1.0' }];
    const web = { name: 'web', channels: { stable: versions }, images: () => images };
    layers = catalogLayers(catalogFiles([web, { name: 'other', channels: { stable: versions } }]));
    addCatalog(operators, 'redhat/redhat-operator-index', layers, { tag: 'v4.20' });
    missing = `${host}/web/none@sha256:${'0'.repeat(64)}`;
    const [first = ''] = images;
    const bad = { name: 'bad', channels: { stable: versions }, images: () => [first, missing, 'oci://quay.io/x/y:1'] };
    addCatalog(operators, 'redhat/bad-index', catalogLayers(catalogFiles([bad])), { tag: 'v4.20' });
    operators.addTo(content);
    catalog = `${host}/redhat/redhat-operator-index:v4.20`;
  });
  after(() => workshop.close());

  const create = async (output: string): Promise<Result> => {
    const outcome = await workshop.create({ catalog, operator: 'web@stable:1.0.3', output, format: 'json' });
    expect(outcome.code, outcome.stderr).to.equal(0);
    return JSON.parse(outcome.stdout) as Result;
  };

  it('adds the operator, its images and a catalog with it only', async () => {
    const result = await create(workshop.output);
    const [added] = result.catalogs;
    expect(added?.operators.map(({ name }) => name)).to.deep.equal(['web']);
    const verified = await runProgram(workshop.folder, 'verify', [
      result.path,
      '--output=json',
      `--trust-fingerprint=${workshop.key.fingerprint}`,
    ]);
    expect(verified.code, verified.stdout + verified.stderr).to.equal(0);
    const read = (path: string): string => execFileSync('tar', ['-xOf', result.path, path], { encoding: 'utf8' });
    const metadata = JSON.parse(read('metadata.json')) as { extraImages: string[]; blobs: { digest: string }[] };
    expect(metadata.extraImages).to.have.members([...images, added?.image]);
    expect(parse(read('config/catalogs/catalogsource-redhat-operators.yaml'))).to.deep.include({
      kind: 'CatalogSource',
      metadata: { name: 'redhat-operators', namespace: 'openshift-marketplace' },
      // By digest and without polling, OLM creates the pod with IfNotPresent.
      spec: {
        sourceType: 'grpc',
        image: added?.image,
        displayName: 'redhat-operators',
        grpcPodConfig: { securityContextConfig: 'restricted' },
      },
    });
    expect(added?.image).to.match(/@sha256:[0-9a-f]{64}$/);
    const digests = metadata.blobs.map(({ digest }) => digest);
    expect(layers.map(({ digest }) => digests.includes(digest))).to.deep.equal([true, false, false]);
  });

  it('names operator and catalog of each image that cannot be used, and leaves it out on demand', async () => {
    const from = { catalog: catalog.replace('redhat-operator-index', 'bad-index'), operator: 'bad' };
    const output = `${workshop.output}-bad`;
    const { code, stderr } = await workshop.create({ ...from, output });
    expect(code).to.equal(1);
    expect(stderr).to.contain('2 images of operators cannot be used:').and.to.contain('--skip-missing-operator-images');
    for (const image of [missing, 'oci://quay.io/x/y:1'])
      expect(stderr).to.contain(`bad.v1.1.0 of the catalog ${from.catalog} needs ${JSON.stringify(image)}`);
    const made = await workshop.create({ ...from, output, format: 'json', skipMissingOperatorImages: true });
    expect(made.code, made.stderr).to.equal(0);
    const { path } = JSON.parse(made.stdout) as Result;
    const skippedImages = [
      { image: missing, operators: ['bad.v1.1.0'], catalog: from.catalog },
      { image: 'oci://quay.io/x/y:1', operators: ['bad.v1.1.0'], catalog: from.catalog },
    ];
    const trust = `--trust-fingerprint=${workshop.key.fingerprint}`;
    for (const [command, ...options] of [['inspect'], ['verify', trust]] as const) {
      const json = await runProgram(workshop.folder, command, [path, '-o', 'json', ...options]);
      expect(JSON.parse(json.stdout), command).to.deep.include({ skippedImages });
      const { stdout } = await runProgram(workshop.folder, command, [path, ...options]);
      expect(stdout).to.contain('oci://quay.io/x/y:1, which bad.v1.1.0 needs');
    }
  });

  it('is checked by lint with the manifests of its operators', async () => {
    const { path } = await create(workshop.output);
    const { stdout, stderr } = await runProgram(workshop.folder, 'lint', [path, '-o', 'json']);
    const { findings, knowsImages, version } = JSON.parse(stdout) as LintReport;
    expect([knowsImages, version], stderr).to.deep.equal([true, workshop.release.version]);
    const digest = images[0]?.split('sha256:')[1] ?? '';
    const own = findings.filter(({ file }) => file === `operators/web-${digest.slice(0, 12)}/web.csv.yaml`);
    expect(own.map(({ rule }) => rule)).to.deep.equal(['pull-always', 'image-by-tag']);
  });

  const olm = { apiVersion: 'olm.operatorframework.io/v1', kind: 'ClusterCatalog', resource: 'clustercatalogs' };

  it('is applied with its catalog only if the user asks for it', async () => {
    const { path, catalogs } = await create(workshop.output);
    await using server = await startApiServer({ openshift: '4.20.3' });
    server.put({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'openshift-marketplace' } });
    await using kubeconfigs = await makeKubeconfigFolder();
    const kubeconfig = `--kubeconfig=${await kubeconfigs.write({ cluster: { server: server.url } })}`;
    const apply = (...args: string[]): Promise<Execution> =>
      runExecutable('oc-adm_release_mirror_config', workshop.folder, [
        'apply',
        path,
        kubeconfig,
        `--trust-fingerprint=${workshop.key.fingerprint}`,
        ...args,
      ]);
    const stored = (): object | undefined =>
      server.find('operators.coreos.com/v1alpha1', 'CatalogSource', 'redhat-operators', 'openshift-marketplace');
    expect((await apply()).stderr).to.contain('catalogsource-redhat-operators.yaml is not applied');
    expect(stored()).to.equal(undefined);
    const applied = await apply('--catalogs');
    expect(applied.code, applied.stderr).to.equal(0);
    expect(stored()).to.have.nested.property('spec.image', catalogs[0]?.image);
    expect(applied.stderr).to.contain('{"spec":{"disableAllDefaultSources":true}}');
    const clusterCatalog = (): object | undefined => server.find(olm.apiVersion, olm.kind, 'redhat-operators');
    expect(applied.stdout).not.to.contain('clustercatalog');
    server.kinds.push({ ...olm, group: 'olm.operatorframework.io', version: 'v1', namespaced: false, custom: true });
    const withoutMirror = await apply('--catalogs');
    expect(withoutMirror.stderr).to.contain('not applied, because OLM v1 needs a mirror registry');
    expect(clusterCatalog()).to.equal(undefined);
    const mirrored = await apply('--catalogs', '--mirror-registry=mirror.example.com');
    expect(mirrored.code, mirrored.stderr).to.equal(0);
    expect(clusterCatalog()).to.have.nested.property('spec.source.image.ref', catalogs[0]?.image);
  });

  it('gives the same bytes again, and leaves a finished bundle as it is', async () => {
    await create(workshop.output);
    const [first, second] = [await create(workshop.output), await create(`${workshop.folder}/again`)];
    expect(first.outcome).to.equal('unchanged');
    expect(await digestOfFile(second.path)).to.equal(await digestOfFile(first.path));
  });

  it('is shown with aligned values, and short names in the table of images', async () => {
    const { stdout } = await workshop.create({ catalog, operator: 'web@stable:1.0.3', output: workshop.output });
    expect(stdout).to.match(/^ {2}Catalog {4}redhat-operators: web 1\.1\.0 \(stable\)$/m);
    const inspect = async (...args: string[]): Promise<string> =>
      (await runProgram(workshop.folder, 'inspect', [workshop.bundle, ...args])).stdout;
    const [operator = ''] = images.slice(1);
    const short = `${operator.slice(0, operator.indexOf('@sha256:') + '@sha256:'.length + 12)}…`;
    expect(await inspect()).to.match(new RegExp(`^${short} +[\\d.]+ \\w+ `, 'm'));
    expect(await inspect('-o', 'wide')).to.match(new RegExp(`^${operator} +[\\d.]+ \\w+ `, 'm'));
  });

  it('plans the updates of a site from its report, and names their blockers', async () => {
    const operator = { channel: 'stable', catalog: 'redhat-operators', maxOpenShiftVersion: '4.11' };
    const report: SiteReport = {
      formatVersion: 1,
      created: '',
      tool: '',
      version: '4.11.9',
      arch: 'x86_64',
      channel: '',
      history: [],
      nodes: [],
      findings: [],
      operators: [
        { name: 'web', version: '1.0.3', ...operator },
        { name: 'gone', version: '1.0.0', ...operator },
      ],
    };
    const site = await workshop.write('site.json', formatSiteReport(report));
    const output = `${workshop.folder}/site`;
    const outcome = await workshop.create({ catalog, for: site, output, format: 'json', arch: undefined });
    expect(outcome.code, outcome.stderr).to.equal(0);
    const { catalogs } = JSON.parse(outcome.stdout) as Result;
    expect(catalogs[0]?.operators.map(({ name }) => name)).to.deep.equal(['web']);
    expect(outcome.stderr)
      .to.contain('operator gone of the site is in no given catalog')
      .and.contain('release 4.12.4 has no direct update from 4.11.9')
      .and.contain('operator web 1.0.3 at the site supports OpenShift up to 4.11: update it to 1.1.0')
      .and.contain('operator gone 1.0.0 at the site supports OpenShift up to 4.11, and the bundle has no version');
    await workshop.write('site.json', formatSiteReport(report).replace('4.11.9', '4.12.3'));
    await expectFailure(
      await workshop.create({ for: site, output: `${output}2` }),
      `${output}2`,
      /its digest does not match/,
    );
  });

  const refusals: readonly (readonly [title: string, options: object, message: RegExp])[] = [
    ['operators without a catalog', { catalog: undefined }, /--operator needs --catalog/],
    ['a catalog without operators', { operator: undefined }, /no operator is to be taken from/],
    ['a name that is none', { operator: 'web stable' }, /“web stable” is not an operator/],
    ['an unknown operator', { operator: 'wep' }, /the catalog has no operator wep[^]*It has other, web/],
    ['an image without a catalog', { catalog: 'IMAGE' }, /has no file-based catalog of operators/],
  ];
  for (const [title, options, message] of refusals) {
    it(`refuses ${title}`, async () => {
      const changes = { catalog, operator: 'web', ...options };
      const given = changes.catalog === 'IMAGE' ? { ...changes, catalog: images[0] } : changes;
      const output = `${workshop.folder}/none`;
      const outcome = await workshop.create({ ...given, output });
      await expectFailure(outcome, output, message, {
        exit: /needs --catalog|to be taken|is not an/.test(outcome.stderr) ? 2 : 1,
      });
    });
  }
});
