import { nodeStateFolder } from '../../machine/paths.ts';

/** Where on a node the executable of the agents is. */
export const executablePath = `${nodeStateFolder}/bin/oc-adm_upgrade_bundle`;

/** Where the token is by which agents know each other, in a container and in what an agent sees as its root. */
export const tokenPath = '/run/secrets/oc-upgrade-bundle/token';

/** Where the keys are that agents were installed with, likewise. */
export const keyringPath = '/run/secrets/oc-upgrade-bundle-keys/keys.asc';

/** Where agents serve their executable, by plain HTTP: it is no secret, and the digest is checked. */
export const executablePort = 8081;

/** The architectures that there are executables for: as Kubernetes names them, and as `uname -m` does. */
export const machines = { amd64: 'x86_64', arm64: 'aarch64' } as const;

/** An architecture, by the name that Kubernetes has for it. */
export type NodeArchitecture = keyof typeof machines;

/** The SHA-256 of the executable for each architecture, in hex digits. */
export type ExecutableDigests = Readonly<Partial<Record<NodeArchitecture, string>>>;

/** The environment of an agent’s container by which it knows its executable. */
export function describeExecutables(digests: ExecutableDigests): { name: string; value: string }[] {
  return Object.entries(machines).flatMap(([architecture, machine]) => {
    const digest = digests[architecture as NodeArchitecture];
    return digest === undefined ? [] : [{ name: `EXECUTABLE_${machine}`, value: digest }];
  });
}

/**
 * What the container of an agent runs, with no more than bash, coreutils, curl and mount: waits until the node has the executable with the digest that is
 * stated for its architecture, asks the other agents for it meanwhile (`$PEERS/executable/<digest>`, without any secret), and becomes the agent or, by its name ($0), the controller, which has
 * the node’s file system as its root and the secrets of the pod in it, as the machine config daemon does. Its arguments are those of the agent. Nothing that has another digest is ever run.
 */
export const startScript = `set -o pipefail
file=/host${executablePath}
name=EXECUTABLE_$(uname -m)
export EXECUTABLE=\${!name-}
if [ -z "$EXECUTABLE" ]; then
  echo "no executable for $(uname -m) was installed" >&2
  sleep 60
  exit 1
fi
intact() {
  echo "$EXECUTABLE  $1" | sha256sum --check --status 2>/dev/null && [ -x "$1" ]
}
fetch() {
  # Where an agent runs too, it fetches.
  [ -n "$PEERS" ] || return
  mkdir -p "\${file%/*}" || return
  curl --silent --fail --connect-timeout 5 --speed-time 30 --speed-limit 1024 \\
    --output "$file.fetched" "$PEERS/executable/$EXECUTABLE" || return
  chmod 755 "$file.fetched"
  if intact "$file.fetched"; then
    sync "$file.fetched" && mv "$file.fetched" "$file"
  else
    echo 'what another node has is not the executable that was installed' >&2
    rm -f "$file.fetched"
    return 1
  fi
}
until intact "$file"; do
  fetch || sleep $((1 + RANDOM % 4))
done
mkdir -p /host/run/secrets
# Of this container only: nothing is mounted on the node.
mount --rbind /run/secrets /host/run/secrets || exit
exec chroot /host ${executablePath} "$0" "$@"
`;
