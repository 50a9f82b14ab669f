import { executablePath, screenFile } from '#node/machine';
import { agentArchitectures } from '#readiness/nodes';

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

/** The executable for each architecture: its size in bytes, and its SHA-256 in hex digits. */
export type ExecutableRecords = Readonly<
  Partial<Record<NodeArchitecture, { readonly size: number; readonly digest: string }>>
>;

/** Returns the environment variables with the digests and sizes of the executables, for an agent’s container. */
export function describeExecutables(executables: ExecutableRecords): { name: string; value: string }[] {
  return agentArchitectures.flatMap((architecture) => {
    const executable = executables[architecture];
    if (!executable) return [];
    return [
      { name: executableVariable(architecture), value: executable.digest },
      { name: `SIZE_OF_${executableVariable(architecture)}`, value: String(executable.size) },
    ];
  });
}

/** Returns the name of the environment variable with the digest of the executable for an architecture. */
export function executableVariable(architecture: NodeArchitecture): string {
  return `EXECUTABLE_${machines[architecture]}`;
}

/**
 * The script that starts an agent, with bash, coreutils, curl and mount. It waits until the node has the executable
 * with the digest for its architecture, and asks other agents for it (`$PEERS/executable/<digest>`, without a secret).
 * It takes no more than the installed size from an agent, and compares it before it can be run. An attempt may take a
 * minute, and each later one twice as long, up to an hour. Then it runs it as the agent or, by its name ($0), as the
 * controller, with its own arguments. The root directory is the node’s file system with the secrets of the pod. It
 * never runs another file.
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
size=SIZE_OF_EXECUTABLE_$(uname -m)
size=\${!size}
limit=60
matches() {
  echo "$EXECUTABLE  $1" | sha256sum --check --status 2>/dev/null
}
intact() {
  matches "$1" && [ -x "$1" ]
}
fetch() {
  # Where an agent runs too, it fetches.
  [ -n "$PEERS" ] || return
  mkdir -p "\${file%/*}" || return
  # The partial file of an attempt that was killed is not executable, and may be of any length.
  rm -f "$file.fetched"
  curl --silent --fail --connect-timeout 5 --speed-time 30 --speed-limit 65536 --max-time $limit \\
    --max-filesize "$size" "$PEERS/executable/$EXECUTABLE" | head -c $((size + 1)) > "$file.fetched"
  code=$?
  if matches "$file.fetched"; then
    chmod 755 "$file.fetched" && sync "$file.fetched" && mv "$file.fetched" "$file"
    return
  fi
  got=$(stat --format=%s "$file.fetched")
  rm -f "$file.fetched"
  limit=$((limit < 1800 ? limit * 2 : 3600))
  if [ "$code" = 0 ] || [ "$got" -gt "$size" ]; then
    echo 'what another node has is not the executable that was installed' >&2
  fi
  return 1
}
# An agent that was killed leaves its text on the login screen to the next one, which may not come to it.
screen=/host${screenFile}
if [ "$0" = agent ] && [ -e "$screen" ] && [ $(($(date +%s) - $(stat --format=%Y "$screen"))) -gt 1800 ]; then
  rm -f "$screen"
  chroot /host agetty --reload
fi
until intact "$file"; do
  fetch || sleep $((1 + RANDOM % 4))
done
mkdir -p /host/run/secrets
# Of this container only: nothing is mounted on the node.
mount --rbind /run/secrets /host/run/secrets || exit
exec chroot /host ${executablePath} "$0" "$@"
`;
