import { listCommands } from './shell.ts';

const unitSection = /^\[(?:Unit|Service|Container|Install|Kube|Image|Build|Pod|Volume|Artifact)\]\s*$/m;
/** Files that no shell reads. */
const otherFormat = /\.(?:md|txt|html?|css|js|json|ya?ml|toml|py|lua|go|conf|cfg|ini|rules|pem|crt|key|service\.d)$/i;

/** Returns the commands of a script or a systemd unit, by its text and name; none for a text of another format. */
export function commandsIn(text: string, name: string): string[][] {
  if (unitSection.test(text)) return listUnitCommands(text);
  const [, interpreter] = /^#!\s*(.*)/.exec(text) ?? [];
  if (interpreter !== undefined) return /\b(?:ba|da|k|z)?sh\b/.test(interpreter) ? listCommands(text) : [];
  return otherFormat.test(name) ? [] : listCommands(text);
}

/** The `Exec…=` lines of a unit, and the commands of podman that Quadlet makes of its files (podman-systemd.unit). */
function listUnitCommands(text: string): string[][] {
  const joined = text.replace(/^\s*[#;].*$/gm, '').replace(/\\\n\s*/g, ' ');
  const valueOf = (key: string): string => new RegExp(`^${key}=(.*)$`, 'm').exec(joined)?.[1]?.trim() ?? '';
  const has = (section: string): boolean => new RegExp(`^\\[${section}\\]\\s*$`, 'm').test(joined);
  const [image, pull, policy] = [valueOf('Image'), valueOf('Pull'), valueOf('Policy')];
  const options = [...joined.matchAll(/^PodmanArgs=(.*)$/gm)].flatMap(([, line = '']) => listCommands(line).flat());
  const [pulls, policies] = [pull === '' ? [] : [`--pull=${pull}`], policy === '' ? [] : [`--policy=${policy}`]];
  return [
    ...[...joined.matchAll(/^Exec\w+=[-@:+!|]*(.*)$/gm)].flatMap(([, line = '']) => listCommands(line)),
    ...(has('Image') ? [['podman', 'image', 'pull', ...policies, ...options, image]] : []),
    ...(has('Artifact') ? [['podman', 'artifact', 'pull', ...options, valueOf('Artifact')]] : []),
    ...(has('Build') ? [['podman', 'build', ...pulls, ...options]] : []),
    ...(has('Container') ? [['podman', 'run', ...pulls, ...options, image]] : []),
    ...(valueOf('AutoUpdate') === 'registry' ? [['podman', 'auto-update', image]] : []),
  ];
}
