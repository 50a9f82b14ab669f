import type { InspectedImage, Inspection } from '../../../lib/bundle/inspect/inspect.ts';
import { formatBytes } from '../../../lib/byteSize.ts';
import { markup, type Markup } from './markup.ts';
import { layOutTreemap, type Rectangle, type Tile } from './treemap.ts';

/** The classes of images in a report, with their names. */
const imageClasses = {
  release: 'Release payload',
  'operating-system': 'Operating system',
  operator: 'Operators',
  component: 'Other components',
  extra: 'Extra images',
  shared: 'Shared layers',
} as const;

/** A class of images. */
export type ImageClass = keyof typeof imageClasses;

/** Returns the class of an image. */
export function classOf({ kind, name }: InspectedImage): ImageClass {
  return kind === 'component' && name.endsWith('-operator') ? 'operator' : kind;
}

interface Plot {
  readonly weight: number;
  readonly name: string;
  readonly words: string;
  readonly className: ImageClass | 'shared-blob';
  readonly parts?: readonly Plot[];
}

const area: Rectangle = { x: 0, y: 0, width: 1168, height: 620 };
const lineHeight = 14;
const characterWidth = 6.7;
const headline = 20;
/** The largest number of tiles. With more, tiles are too small to see. */
const tileLimit = 400;

/** The largest number of rows in the list for narrow screens. */
const rowLimit = 30;

/**
 * Draws the sizes of images: the bytes that each image has for itself, and the shared bytes. Areas are proportional to
 * sizes. Narrow screens show a list instead.
 */
export function drawFigure({ images, sharedBlobs, totals }: Inspection): Markup {
  const own = images.map((image): Plot => {
    const words = `${image.name}: ${formatBytes(image.unique)} of its own, ${formatBytes(image.shared)} shared with others`;
    return { weight: image.unique, name: image.name, words, className: classOf(image) };
  });
  const blobs = sharedBlobs.map(({ digest, size, images: count }): Plot => {
    const words = `${digest}: ${formatBytes(size)}, needed by ${count} images`;
    return { weight: size, name: `${count} images`, words, className: 'shared-blob' };
  });
  const weight = blobs.reduce((sum, blob) => sum + blob.weight, 0);
  const words = `${imageClasses.shared}: ${blobs.length} blobs, ${formatBytes(weight)}`;
  const shared: Plot = { weight, name: imageClasses.shared, words, className: 'shared', parts: blobs };
  const used = new Set(own.map(({ className }) => className));
  const legend = (Object.entries(imageClasses) as [ImageClass, string][])
    .filter(([className]) => (className === 'shared' ? weight > 0 : used.has(className)))
    .map(([className, label]) => markup`<li><i class="${className}"></i>${label}</li>`);
  const total = formatBytes(totals.bytes);
  return markup`<figure>
    <svg
      class="treemap"
      viewBox="0 0 ${area.width} ${area.height}"
      role="img"
      aria-label="Treemap of the ${total} in this bundle by image. The tables below have the same numbers."
    >
      ${drawTiles([...own, shared], area)}
    </svg>
    ${drawRows([...own, shared])}
    <ul class="legend">
      ${legend}
    </ul>
    <figcaption>
      An area or a bar is a number of bytes: what only that image needs. What several images need is in the bundle
      once.
    </figcaption>
  </figure>`;
}

/** Draws the largest sizes as bars, and the sum of the others. */
function drawRows(plots: readonly Plot[]): Markup {
  const sorted = plots.filter(({ weight }) => weight > 0).sort((a, b) => b.weight - a.weight);
  const longest = sorted[0]?.weight ?? 1;
  const rest = sorted.slice(rowLimit);
  const others = rest.reduce((sum, { weight }) => sum + weight, 0);
  return markup`<ol class="bars">
    ${sorted.slice(0, rowLimit).map(
      ({ name, weight, className }) =>
        markup`<li>
          <span>${name}</span> <b>${formatBytes(weight)}</b>
          <svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
            <rect class="${className}" width="${round((100 * weight) / longest)}" height="1" />
          </svg>
        </li>`,
    )}
    ${rest.length > 0 && markup`<li><span>${rest.length} others</span> <b>${formatBytes(others)}</b></li>`}
  </ol>`;
}

function drawTiles(plots: readonly Plot[], within: Rectangle): Markup[] {
  return layOutTreemap(plots, within)
    .slice(0, tileLimit)
    .map((tile) => {
      const { item, x, y, width, height } = tile;
      const { parts = [] } = item;
      const inside = { x: x + 4, y: y + headline, width: width - 8, height: height - headline - 4 };
      const divided = parts.length > 0 && inside.width > 60 && inside.height > 30;
      const amount = formatBytes(item.weight);
      // A divided tile has one line above its parts.
      const lines = fitLines(item.name, amount, divided ? { ...tile, height: headline } : tile);
      const text = lines.map((line, index) => {
        const place = markup`x="${round(x + 6)}" y="${round(y + lineHeight * (index + 1))}"`;
        return markup`<text class="${line === amount ? 'amount' : 'name'}" ${place}>${line}</text>`;
      });
      const size = markup`width="${round(width)}" height="${round(height)}"`;
      return markup`<g>
        <title>${item.words}</title>
        <rect class="${item.className}" x="${round(x)}" y="${round(y)}" ${size} />
        ${text}${divided ? drawTiles(parts, inside) : []}
      </g>`;
    });
}

/** Returns the name, broken at its dashes, and the amount below it, if they fit. */
function fitLines(name: string, amount: string, { width, height }: Tile<unknown>): string[] {
  const columns = Math.floor((width - 10) / characterWidth);
  const rows = Math.floor((height - 4) / lineHeight);
  if (columns < 5 || rows < 1) return [];
  const lines = [''];
  for (const part of name.split(/(?<=[-/@])/)) {
    const last = lines.length - 1;
    const joined = (lines[last] ?? '') + part;
    if (joined.length <= columns) lines[last] = joined;
    else if (lines[last] === '') lines[last] = part;
    else lines.push(part);
  }
  const cut = (line: string): string => (line.length > columns ? `${line.slice(0, columns - 1)}…` : line);
  const shown = lines.slice(0, rows).map(cut);
  const end = shown.at(-1) ?? '';
  if (rows < lines.length) shown[rows - 1] = cut(`${end.slice(0, columns - 1)}…`);
  return rows > shown.length && amount.length <= columns ? [...shown, amount] : shown;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
