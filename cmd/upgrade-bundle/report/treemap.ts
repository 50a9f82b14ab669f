/** A rectangle; x to the right, y downward, in the unit of the caller. */
export interface Rectangle {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** An item and its rectangle. */
export interface Tile<T> extends Rectangle {
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
