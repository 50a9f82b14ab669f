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

/** Formats the volumes of a bundle: `5 files of 3.7 GiB: upgrade.tar.000 to upgrade.tar.004`. */
export function formatVolumes(volumes: readonly { readonly name: string; readonly size: number }[]): string {
  const [first, last] = [volumes[0], volumes.at(-1)];
  const size = formatBytes(first?.size ?? 0);
  return `${volumes.length} files of ${size}: ${first?.name ?? ''} to ${last?.name ?? ''}`;
}

/** Formats a time in seconds: `8s`, `2m05s`, `3h20m`. */
export function formatDuration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const pad = (value: number): string => String(value).padStart(2, '0');
  if (whole < 60) {
    return `${whole}s`;
  }
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}m${pad(whole % 60)}s` : `${Math.floor(minutes / 60)}h${pad(minutes % 60)}m`;
}

/** Returns a bar of `width` characters that is filled to a fraction from 0 to 1. */
export function formatBar(fraction: number, width: number): string {
  const filled = Math.floor(fraction * width);
  return '█'.repeat(filled) + '░'.repeat(width - filled);
}

/**
 * Formats rows as aligned columns with two spaces between them. The first row is the header. Columns in `right` are
 * aligned to the right.
 */
export function formatTable(rows: readonly (readonly string[])[], right: readonly string[] = []): string {
  const header = rows[0] ?? [];
  const widths = header.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const format = (row: readonly string[]): string =>
    widths
      .map((width, column) => {
        const cell = row[column] ?? '';
        return right.includes(header[column] ?? '') ? cell.padStart(width) : cell.padEnd(width);
      })
      .join('  ')
      .trimEnd();
  return rows.map(format).join('\n');
}

/** Formats names and values as indented lines, with the values aligned. */
export function formatFields(fields: readonly (readonly string[])[]): string {
  return fields.map(([name = '', value = '']) => `  ${name.padEnd(10)} ${value}`).join('\n');
}

/** Formats plain data as YAML, for `-o yaml`. */
export async function formatYaml(value: unknown): Promise<string> {
  // Loaded on first use, because most commands do not need it.
  const { stringify } = await import('yaml');
  return stringify(value, { lineWidth: 0, aliasDuplicateObjects: false });
}
