/** What is typed after oc for each plugin. */
export const pluginWords = ['adm-upgrade-bundle', 'adm-release-mirror-config', 'adm-mirror-registry'];

/** The names that their executables go by. */
export const executables = ['oc', 'kubectl'].flatMap((client) =>
  pluginWords.map((word) => `${client}-${word.replaceAll('-', '_')}`),
);

/** The words that a shell-hook makes a command. */
export const literalWords = 'adm upgrade create bundle';
