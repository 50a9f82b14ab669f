import { agentArchitectures } from '../../readiness/preflight/node.ts';
import { executablePath } from '../../node/machine/paths.ts';

/** The path of the token of the agents, in a container and below the root directory of an agent. */
export const tokenPath = '/run/secrets/oc-upgrade-bundle/token';

/** The path of the keys with which agents were installed, in the same file systems. */
export const keyringPath = '/run/secrets/oc-upgrade-bundle-keys/keys.asc';

/** The port on which agents serve their executable by plain HTTP. It is not secret, and clients check its digest. */
export const executablePort = 8081;

/** The architectures that have executables: the names of Kubernetes, and of `uname -m`. */
export const machines: Readonly<Record<NodeArchitecture, string>> = { amd64: 'x86_64', arm64: 'aarch64' };

/** An architecture, by its name in Kubernetes. */
export type NodeArchitecture = (typeof agentArchitectures)[number];

/** The SHA-256 of the executable for each architecture, in hex digits. */
export type ExecutableDigests = Readonly<Partial<Record<NodeArchitecture, string>>>;

/** Returns the environment variables with the digests of the executables, for an agent’s container. */
export function describeExecutables(digests: ExecutableDigests): { name: string; value: string }[] {
  return agentArchitectures.flatMap((architecture) => {
    const value = digests[architecture];
    return value === undefined ? [] : [{ name: executableVariable(architecture), value }];
  });
}

/** Returns the name of the environment variable with the digest of the executable for an architecture. */
export function executableVariable(architecture: NodeArchitecture): string {
  return `EXECUTABLE_${machines[architecture]}`;
}

/**
 * The script that starts an agent, with bash, coreutils, curl and mount. It waits until the node has the executable
 * with the digest for its architecture, and asks other agents for it (`$PEERS/executable/<digest>`, without a secret).
 * Then it runs it as the agent or, by its name ($0), as the controller, with its own arguments. The root directory is
 * the node’s file system with the secrets of the pod. It never runs another file.
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
