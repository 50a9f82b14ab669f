import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect } from 'chai';
import { formatDrillPage, formatPreflightPage } from '../../../../cmd/upgrade-bundle/report/findingsPage.ts';
import type { Finding } from '../../../../lib/cluster/finding.ts';
import { blocks } from '../../../../lib/cluster/version/platformStops.ts';
import type { NodeDrill } from '../../../../lib/drill/drill.ts';
import type { Preflight } from '../../../../lib/readiness/preflight/preflight.ts';
import { openInBrowser } from '../../../support/browser.ts';
import { makeBundle } from '../../../support/content/bundle.ts';
import { requirePeer } from '../../../support/peers.ts';
import { executeProgram } from '../../../support/program/execution.ts';
import { makeFolder, removeFolder } from '../../../support/release/mirrorDirectory.ts';

const origin = { date: new Date('2026-11-01T12:00:00Z'), tool: 'test/1' };
const node = 'worker-0.ocp4.site-a.factories.example.com';
const image = `registry.site-a.example.com:8443/shop/web@sha256:${'a1'.repeat(32)}`;

const preflight: Preflight = {
  cluster: 'site-a',
  version: '4.19.3',
  target: '4.19.4',
  nodes: 6,
  workloads: 312,
  ready: false,
  unused: [],
  findings: [
    {
      check: 'space',
      ...blocks('space'),
      subject: { kind: 'Node', name: node },
      message: 'has 8.2 GiB free',
      advice: 'Free space <there>.',
    },
    {
      check: 'tags',
      severity: 'warning',
      subject: { kind: 'Deployment', name: 'web', namespace: 'shop' },
      message: `pulls ${image}`,
      advice: 'Name it by digest.',
    },
  ],
};

const pod = { namespace: 'shop', name: 'web-1', owner: 'deployment/web' };
const time = { version: '4.19.4', reboot: true, started: '2026-11-25T10:10:00Z', ended: '2026-11-25T10:25:00Z' };
const drills: readonly NodeDrill[] = [
  { ...time, node: 'worker-1', result: 'passed', seconds: 93, pods: [{ ...pod, seconds: 41 }], asked: [] },
  {
    ...time,
    node,
    result: 'failed',
    seconds: 900,
    message: '1 pod does not run',
    pods: [{ ...pod, seconds: undefined, message: 'ImagePullBackOff' }],
    asked: [{ image, count: 12, first: time.started, pods: [pod], clients: [] }],
  },
];

describe('the pages of findings', () => {
  it('begin with the verdict, and name the next step of each finding', () => {
    const page = formatPreflightPage(preflight, origin);
    const order = [
      'Not ready: 1 blocker',
      '>blocker</th>',
      'Free space &#60;there&#62;.',
      '>warning</th>',
      'by digest',
    ];
    const places = order.map((text) => page.indexOf(text));
    expect(places)
      .to.deep.equal(places.toSorted((a, b) => a - b))
      .and.not.to.include(-1);
    const ready = formatPreflightPage({ ...preflight, ready: true, findings: [] }, origin);
    expect(ready).to.contain('Ready: the cluster can update to 4.19.4').and.to.contain('Nothing was found');
    expect(ready).to.contain('class="notice good"');
  });

  it('are green only if nothing is left to do', () => {
    const missing = (name: string): Finding => ({
      check: 'images',
      severity: 'info',
      subject: { kind: 'Node', name },
      advice: 'Load them.',
      message: 'has 0 of the 40 images of 4.19.4',
    });
    const warning: Finding = {
      check: 'pools',
      severity: 'warning',
      subject: { kind: 'MachineConfigPool', name: 'worker' },
      message: 'is paused',
      advice: 'Resume it.',
    };
    for (const [findings, words] of [
      [[missing('a'), missing('b')], '2 nodes without all images; '],
      [[warning, missing('a')], '1 node without all images, 1 warning; '],
      [[warning], '1 warning; '],
    ] as const) {
      const page = formatPreflightPage({ ...preflight, ready: true, findings }, origin);
      expect(page).to.contain(
        `No blockers, but not everything is ready to update to 4.19.4 without a registry: ${words}`,
      );
      expect(page)
        .to.contain('class="notice"')
        .and.not.to.match(/class="notice good"|Ready:/);
    }
  });

  it('name a bundle by its path, as the table does', () => {
    const subject = { kind: 'Bundle', name: '/media/usb/u.tar' };
    const finding: Finding = {
      check: 'bundle',
      ...blocks('untrusted'),
      subject,
      message: 'is not signed',
      advice: '',
    } as const;
    const page = formatPreflightPage({ ...preflight, findings: [finding] }, origin);
    expect(page).to.contain('>/media/usb/u.tar<').and.not.to.contain('bundle//media');
  });

  it('list the nodes and pods that failed first', () => {
    const page = formatDrillPage('site-a', drills, origin);
    expect(page).to.contain('Failed: 1 node of 2').and.to.contain('ImagePullBackOff');
    expect(page.indexOf(`>${node}</th>`)).to.be.below(page.indexOf('>worker-1</th>'));
  });

  it('are the output of lint -o html', async () => {
    const folder = await makeFolder();
    const container = { name: 'c', image: 'quay.io/x/y:v1', imagePullPolicy: 'Always' };
    const metadata = { name: 'new', namespace: 'openshift-x' };
    const object = { apiVersion: 'v1', kind: 'Pod', metadata, spec: { containers: [container] } };
    await writeFile(join(folder, 'pod.yaml'), JSON.stringify(object));
    const { code, stdout } = await executeProgram('oc-adm_upgrade_bundle', ['lint', folder, '-o', 'html']);
    await removeFolder(folder);
    expect(code).to.equal(1);
    expect(stdout)
      .to.match(/^<!doctype html>/)
      .and.to.contain('Set imagePullPolicy: IfNotPresent');
  });

  it('and the page of verify fit into 1280 pixels', async function () {
    requirePeer(this, 'chromium');
    const folder = await makeFolder();
    await using bundle = await makeBundle({ version: '4.19.4' });
    const trust = [`--signature-keyring=${bundle.keyFile}`, `--trust-fingerprint=${bundle.key.fingerprint}`];
    const verified = await executeProgram('oc-adm_upgrade_bundle', ['verify', bundle.path, ...trust, '-o', 'html']);
    const pages = {
      verify: verified.stdout,
      preflight: formatPreflightPage(preflight, origin),
      drill: formatDrillPage('site-a', drills, origin),
    };
    for (const [name, html] of Object.entries(pages)) {
      const file = join(folder, `${name}.html`);
      await writeFile(file, html);
      const page = await openInBrowser(pathToFileURL(file).href, 1280);
      // Until the page is there, another document answers.
      while (!(await page.evaluate<boolean>("document.querySelector('footer') !== null")));
      const clipped = await page.evaluate<number>(
        "Math.max(...[...document.querySelectorAll('.scroll')].map((each) => each.scrollWidth - each.clientWidth))",
      );
      expect([name, clipped]).to.deep.equal([name, 0]);
      expect(page.errors).to.deep.equal([]);
      await page.close();
    }
    await removeFolder(folder);
  });
});
