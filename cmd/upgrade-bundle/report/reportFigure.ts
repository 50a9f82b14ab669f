import type { InspectedImage, Inspection } from '#bundle/inspect';
import { formatBytes } from '#text';
import { markup, type Markup } from './page.ts';

/** The classes of images in a report, with their names. */
const imageClasses = {
  release: 'Release payload',
  'operating-system': 'Operating system',
  operator: 'Operators',
  component: 'Other components',
  extra: 'Extra images',
  shared: 'Shared layers',
} as const;

/** One of `imageClasses`: a kind of image, or the layers that images share. */
export type ImageClass = keyof typeof imageClasses;

/** Returns `operator` for a component whose name ends with `-operator`, else the kind of the image. */
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

/** A rectangle; x to the right, y downward, in the unit of the caller. */
interface Rectangle {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** An item and its rectangle. */
interface Tile<T> extends Rectangle {
  readonly item: T;
}

/**
 * Divides an area among items by their weights, the heaviest first, in rectangles that are as square as possible
 * (Bruls, Huizing, van Wijk: “Squarified treemaps”). Items without a weight get no tile.
 */
export function layOutTreemap<T extends { readonly weight: number }>(items: readonly T[], area: Rectangle): Tile<T>[] {
  const heavy = items.filter(({ weight }) => weight > 0).sort((a, b) => b.weight - a.weight);
  const total = weigh(heavy);
  const scale = (area.width * area.height) / total;
  const tiles: Tile<T>[] = [];
  let free = area;
  let row: T[] = [];
  for (const item of heavy) {
    const side = Math.max(Math.min(free.width, free.height), 1e-9);
    if (row.length > 0 && elongation([...row, item], side, scale) > elongation(row, side, scale)) {
      free = placeRow(row, free, scale, tiles);
      row = [];
    }
    row.push(item);
  }
  placeRow(row, free, scale, tiles);
  return tiles;
}

/** Returns how far the least square tile of a row along `side` is from a square; 1 is a square. */
function elongation(row: readonly { weight: number }[], side: number, scale: number): number {
  const depth = (weigh(row) * scale) / side;
  const lengths = [row[0], row.at(-1)].map((item) => ((item?.weight ?? 0) * scale) / depth);
  return Math.max(...lengths.map((length) => Math.max(length / depth, depth / length)));
}

/** Places a row along the shorter side. Returns the remaining area. */
function placeRow<T extends { readonly weight: number }>(
  row: readonly T[],
  { x, y, width, height }: Rectangle,
  scale: number,
  tiles: Tile<T>[],
): Rectangle {
  const upright = width >= height;
  // Rounding may leave a negative size for the last tiles.
  const depth = Math.min((weigh(row) * scale) / Math.max(upright ? height : width, 1e-9), upright ? width : height);
  let along = 0;
  for (const item of row) {
    const length = (item.weight / weigh(row)) * (upright ? height : width);
    tiles.push(
      upright
        ? { item, x, y: y + along, width: depth, height: length }
        : { item, x: x + along, y, width: length, height: depth },
    );
    along += length;
  }
  return upright
    ? { x: x + depth, y, width: Math.max(0, width - depth), height }
    : { x, y: y + depth, width, height: Math.max(0, height - depth) };
}

function weigh(items: readonly { weight: number }[]): number {
  return items.reduce((total, { weight }) => total + weight, 0);
}
