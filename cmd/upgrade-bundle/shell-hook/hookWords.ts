/** The words that a hook knows. */
export interface HookWords {
  /** The options that make “oc adm release mirror” a command of the plugin. */
  readonly mirrorOptions: readonly string[];
  /** Flags that oc has everywhere: with a value in the next word, and without one. */
  readonly valued: readonly string[];
  readonly plain: readonly string[];
}

/** Returns the line after the help of “oc adm release mirror”, which knows nothing of the plugin. */
export function helpNote(mirrorOptions: readonly string[]): string {
  return `With ${mirrorOptions.join(' or ')}, oc adm-release-mirror-config runs instead. See its --help.`;
}
