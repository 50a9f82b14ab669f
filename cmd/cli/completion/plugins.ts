/** The word of each plugin after oc. */
export const pluginWords = ['adm-upgrade-bundle', 'adm-release-mirror-config', 'adm-mirror-registry'];

/** The names of their executables. */
export const executables = ['oc', 'kubectl'].flatMap((client) =>
  pluginWords.map((word) => `${client}-${word.replaceAll('-', '_')}`),
);

/** The words that a shell-hook turns into a command. */
export const literalWords = 'adm upgrade create bundle';
