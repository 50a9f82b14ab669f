/**
 * A systemd service that runs `plan` and a timer that starts it every week, as two files in one text, each under its name. The service fails
 * when there is something to do, which is what monitoring notices; it changes nothing. `program` is the path of the executable, `bundle`
 * where releases are looked for, if anywhere.
 */
export function formatCheckTimer(program: string, isUser: boolean, bundle?: string): string {
  const folder = isUser ? '~/.config/systemd/user' : '/etc/systemd/system';
  const systemctl = isUser ? 'systemctl --user' : 'systemctl';
  // What begins with a percent sign means something to systemd.
  const releases = bundle === undefined ? '' : ` "--bundle=${bundle.replaceAll('%', '%%')}"`;
  return `# ${folder}/oc-mirror-registry-check.service
[Unit]
Description=See whether the mirror registry needs an upgrade or new certificates

[Service]
Type=oneshot
ExecStart="${program}" plan --detailed-exitcode --scope=${isUser ? 'user' : 'system'}${releases}

# ${folder}/oc-mirror-registry-check.timer
[Unit]
Description=See every week whether the mirror registry needs an upgrade or new certificates

[Timer]
OnCalendar=weekly
Persistent=true
RandomizedDelaySec=1h

[Install]
WantedBy=timers.target

# Then: ${systemctl} daemon-reload && ${systemctl} enable --now oc-mirror-registry-check.timer
`;
}
