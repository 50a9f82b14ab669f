/** A rectangle; x to the right, y downward, in whatever unit the caller draws in. */
export interface Rectangle {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** Something with a weight and the rectangle that it was given. */
export interface Tile<T> extends Rectangle {
  readonly item: T;
}

/**
 * Divides an area among items by their weights, the heaviest first, in rectangles as square as can be (Bruls, Huizing,
 * van Wijk: “Squarified treemaps”). What has no weight gets no tile.
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

/** How far the least square tile of a row along `side` is from a square; 1 is one. */
function elongation(row: readonly { weight: number }[], side: number, scale: number): number {
  const depth = (weigh(row) * scale) / side;
  const lengths = [row[0], row.at(-1)].map((item) => ((item?.weight ?? 0) * scale) / depth);
  return Math.max(...lengths.map((length) => Math.max(length / depth, depth / length)));
}

/** Places a row along the shorter side, and returns what is left of the area. */
function placeRow<T extends { readonly weight: number }>(
  row: readonly T[],
  { x, y, width, height }: Rectangle,
  scale: number,
  tiles: Tile<T>[],
): Rectangle {
  const upright = width >= height;
  // Rounding may have left less than nothing for the last tiles.
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
