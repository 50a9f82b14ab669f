import { FILE_HEADERS_ONLY, formatPatch, structuredPatch } from 'diff';

/**
 * Formats the difference between two texts as a unified diff; empty if they are equal. Omits the values of environment
 * variables on command lines of podman, because they may be secrets.
 */
export function formatUnifiedDiff(path: string, before: string, after: string): string {
  if (before === after) return '';
  const patch = structuredPatch(path, path, before, after, undefined, undefined, { context: 3 });
  const hunks = patch.hunks.map((hunk) => ({
    ...hunk,
    lines: hunk.lines.map((line) => line.slice(0, 1) + hideValues(line.slice(1))),
  }));
  return formatPatch({ ...patch, hunks }, FILE_HEADERS_ONLY);
}

const harmless = /^(?:WORKER_COUNT|WORKER_COUNT_UNSUPPORTED_MINIMUM|PYTHONUSERBASE_SITE_PACKAGE|DEBUGLOG)$/;

function hideValues(line: string): string {
  return line.replace(/((?:-e|--env)(?:\s+|=)?["']?)(\w+)=[^\s"']+/g, (all, start: string, name: string) =>
    harmless.test(name) ? all : `${start}${name}=…`,
  );
}
