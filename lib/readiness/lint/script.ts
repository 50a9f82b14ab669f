import { listCommands } from './shell.ts';

const unitSection = /^\[(?:Unit|Service|Container|Install|Kube|Image)\]\s*$/m;
/** Files that no shell reads. */
const otherFormat = /\.(?:md|txt|html?|css|js|json|ya?ml|toml|py|lua|go|conf|cfg|ini|rules|pem|crt|key|service\.d)$/i;

/** Returns the commands of a script or a systemd unit, by its text and name; none for a text of another format. */
export function commandsIn(text: string, name: string): string[][] {
  if (unitSection.test(text)) return listUnitCommands(text);
  const [, interpreter] = /^#!\s*(.*)/.exec(text) ?? [];
  if (interpreter !== undefined) return /\b(?:ba|da|k|z)?sh\b/.test(interpreter) ? listCommands(text) : [];
  return otherFormat.test(name) ? [] : listCommands(text);
}

/** The `Exec…=` lines of a unit, and what Quadlet makes of `Pull=` and `AutoUpdate=`. */
function listUnitCommands(text: string): string[][] {
  const joined = text.replace(/^\s*[#;].*$/gm, '').replace(/\\\n\s*/g, ' ');
  const image = /^Image=(.*)$/m.exec(joined)?.[1]?.trim() ?? '';
  const pull = /^Pull=(always|newer)\s*$/m.exec(joined)?.[1];
  const updates = /^AutoUpdate=registry\s*$/m.test(joined);
  return [
    ...[...joined.matchAll(/^Exec\w+=[-@:+!|]*(.*)$/gm)].flatMap(([, line = '']) => listCommands(line)),
    ...(pull === undefined ? [] : [['podman', 'run', `--pull=${pull}`, image]]),
    ...(updates ? [['podman', 'auto-update', image]] : []),
  ];
}
