const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Formats a number of bytes: `512 B`, `1.5 MiB`, `387 GiB`. */
export function formatBytes(bytes: number): string {
  const unit = unitOf(bytes);
  return `${formatIn(unit, bytes)} ${units[unit] ?? ''}`;
}

/** Formats a part of some bytes, in the unit of the whole: `0.3/1.5 MiB`. */
export function formatShare(part: number, whole: number): string {
  const unit = unitOf(whole);
  return `${formatIn(unit, part)}/${formatIn(unit, whole)} ${units[unit] ?? ''}`;
}

function unitOf(bytes: number): number {
  let unit = 0;
  // 1023.5 would be rounded to 1024.
  while (bytes / 1024 ** unit >= 1023.5 && unit < units.length - 1) unit += 1;
  return unit;
}

function formatIn(unit: number, bytes: number): string {
  const value = bytes / 1024 ** unit;
  return value.toFixed(unit === 0 || value >= 99.95 ? 0 : 1);
}
