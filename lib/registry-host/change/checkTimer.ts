/** The input of the timer. */
export interface CheckTimer {
  /** The program with its arguments; all paths are absolute. */
  readonly command: readonly string[];
  /** Whether the systemd of a user runs it. */
  readonly isUser: boolean;
  /** The exit code of the command if there are changes to make. */
  readonly changesExitCode: number;
}

/**
 * Formats a systemd service that runs `plan`, and a timer that starts it every week, as two files in one text, each
 * under its name. The service changes nothing. It fails if there are changes to make, so that monitoring detects them.
 */
export function formatCheckTimer({ command, isUser, changesExitCode }: CheckTimer): string {
  const folder = isUser ? '~/.config/systemd/user' : '/etc/systemd/system';
  const systemctl = isUser ? 'systemctl --user' : 'systemctl';
  const description = 'Check whether the mirror registry needs an upgrade or new certificates';
  const service = [
    `# ${folder}/oc-mirror-registry-check.service`,
    `# Exit status: ${changesExitCode} if there is something to do, 1 if blocked or failed, 2 for a usage error`,
    '[Unit]',
    `Description=${description}`,
    '',
    '[Service]',
    'Type=oneshot',
    `ExecStart=${command.map(quote).join(' ')}`,
    '',
  ];
  const timer = [
    `# ${folder}/oc-mirror-registry-check.timer`,
    '[Unit]',
    `Description=${description} (weekly)`,
    '',
    '[Timer]',
    'OnCalendar=weekly',
    'Persistent=true',
    'RandomizedDelaySec=1h',
    '',
    '[Install]',
    'WantedBy=timers.target',
    '',
  ];
  const next = `# Next: ${systemctl} daemon-reload && ${systemctl} enable --now oc-mirror-registry-check.timer`;
  return [...service, ...timer, next, ''].join('\n');
}

/** Quotes a word by the rules of systemd.service(5), so that systemd expands nothing in it. */
function quote(word: string): string {
  const escaped = word.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('%', '%%').replaceAll('$', '$$$$');
  return `"${escaped}"`;
}
