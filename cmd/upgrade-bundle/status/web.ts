import { servePage } from '#content/server';
import type { Context } from '#context';
import { isPluginError } from '#errors';
import { formatBytes } from '#text';
import type { NodeProgress, UpgradeBundle } from '#update/record';
import type { Terminal } from '../../cli/terminal.ts';
import { markup, formatPage, drawTable, policyOf } from '../report/page.ts';
import { accentOf, describeImages, viewStatus, type ClusterStatus } from './statusView.ts';

/** What the page follows: UpgradeBundles as they change, and the rest of the status at each change. */
interface FollowedUpdate {
  readonly bundles: AsyncIterable<UpgradeBundle | undefined>;
  readonly read: (bundle: UpgradeBundle | undefined) => Promise<ClusterStatus>;
}

/** Serves a page that follows an update, to this machine only. Ends if it is interrupted. */
export async function showInBrowser(
  { bundles, read }: FollowedUpdate,
  { context, terminal }: { readonly context: Context; readonly terminal: Terminal },
): Promise<void> {
  let data = toData({ bundle: undefined, elapsed: undefined, mirrors: [] });
  const server = await servePage({ ...statusPage, data: () => data }, context);
  try {
    terminal.print(server.url);
    context.log('info', 'Open this page in a browser of this machine. Only this URL shows it. Ctrl-C ends it.');
    for await (const bundle of bundles) data = toData(await read(bundle));
  } catch (error) {
    // An interruption is the normal end of a server.
    if (!isPluginError(error, 'interrupted')) throw error;
  } finally {
    await server.close();
  }
}

function toData(status: ClusterStatus): object {
  const { nodes, problem, ...view } = viewStatus(status);
  return { ...view, problem: problem.map((words) => words.join(': ')), nodes: nodes.map(describeNode) };
}

function describeNode(node: NodeProgress): object {
  const { name, phase, imagesLoaded, imagesTotal, bytes, message = '' } = node;
  const share = imagesTotal === 0 ? 0 : imagesLoaded / imagesTotal;
  const images = imagesTotal === 0 ? describeImages(node) : `${describeImages(node)} images`;
  return { name, phase, accent: accentOf(phase) ?? '', images, share, bytes: formatBytes(bytes), message };
}

/** Shows the data of the server, and asks for it again every two seconds. All texts stay texts. */
const liveScript = `
const byId = (id) => document.getElementById(id);
const make = (tag, text, className = '') => {
  const element = document.createElement(tag);
  element.textContent = text;
  element.className = className;
  return element;
};
const join = (tag, children) => {
  const element = document.createElement(tag);
  element.append(...children);
  return element;
};
const showNode = ({ name, phase, accent, images, share, bytes, message }) => {
  const bar = document.createElement('progress');
  bar.value = share;
  bar.className = accent;
  bar.setAttribute('aria-label', name);
  return join('li', [
    make('b', name),
    make('span', phase, accent),
    bar,
    make('span', images),
    make('span', bytes),
    make('span', message, 'message'),
  ]);
};
let shown = '';
let time = new Date();
const show = (text) => {
  time = new Date();
  if (text === shown) return;
  shown = text;
  const { title, accent = '', problem, facts, conditions, nodes, mirrors } = JSON.parse(text);
  document.title = title;
  byId('title').textContent = title;
  byId('title').className = accent;
  byId('problem').replaceChildren(...problem.map((text) => make('p', text)));
  byId('problem').hidden = problem.length === 0;
  byId('facts').replaceChildren(...facts.flatMap(([name, value]) => [make('dt', name), make('dd', value)]));
  byId('nodes').replaceChildren(...nodes.map(showNode));
  for (const [id, rows] of [['conditions', conditions], ['mirrors', mirrors]])
    byId(id).replaceChildren(
      ...rows.map(({ cells, accent }) => join('tr', cells.map((cell, column) => make('td', cell, column < 2 ? accent : '')))),
    );
  for (const id of ['nodes', 'conditions', 'mirrors']) byId(id).closest('section').hidden = byId(id).children.length === 0;
};
const refresh = async () => {
  try {
    const response = await fetch('data');
    if (!response.ok) throw new Error(response.statusText);
    show(await response.text());
    byId('lost').hidden = true;
  } catch {
    byId('lost').hidden = false;
    byId('since').textContent = time.toLocaleTimeString();
  }
  setTimeout(refresh, 2000);
};
refresh();
`;

/** The page that follows an update, and its content security policy. It needs no other file. */
const statusPage = {
  policy: policyOf({ liveScript }),
  html: formatPage({
    title: 'Update of the cluster',
    header: markup`<p class="eyebrow">Update of the cluster</p>
      <h1 id="title" aria-live="polite"></h1>
      <p class="notice" id="lost" hidden>
        <strong>No answer since <span id="since"></span>.</strong> The command that serves this page may have ended. This
        page shows the last state.
      </p>`,
    main: markup`<div class="notice bad" id="problem" aria-live="polite" hidden></div>
      <dl id="facts"></dl>
      <section hidden>
        <h2>Conditions</h2>
        ${drawTable('stacked', ['Condition', 'Status', 'Reason', 'Message'], [], 'conditions')}
      </section>
      <section hidden>
        <h2>Nodes</h2>
        <ul class="nodes" id="nodes"></ul>
      </section>
      <section hidden>
        <h2>Mirrors</h2>
        ${drawTable('stacked', ['Mirror', 'Serves', 'Images given', 'Message'], [], 'mirrors')}
      </section>`,
    footer: 'This page follows the cluster until oc adm-upgrade-bundle status ends.',
    liveScript,
  }),
};
