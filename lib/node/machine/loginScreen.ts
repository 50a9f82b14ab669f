import { access, constants, readFile, readlink, rename, rm, stat, symlink } from 'node:fs/promises';
import { dirname, relative } from 'node:path';
import { writeAtomically, describeWriteError, makeFolders } from '#content/files';
import type { Context } from '#context';
import { ignoring } from '#errors';
import { pathOnHost, type Host, screenFile, screenLinks } from './host.ts';
import { runProgram } from './programs.ts';

/** What a login screen says, and since when, in milliseconds. */
export interface ShownText {
  readonly text: string;
  readonly age: number;
}

/**
 * A text on the login screen of a host: on its consoles, and on serial ones. agetty shows it before the prompt, and
 * each waiting agetty shows a new text at once. A person who types a name, or has logged in, does not see it.
 *
 * Up to 2.40, agetty reads only /etc/issue.d if /etc/issue exists, as on RHEL, and only /run/issue.d otherwise. Later
 * versions read both (agetty(8); term-utils/agetty.c, eval_issue_file). So the text is in a file of /run, which no boot
 * keeps, and one link in one of the folders leads to it. A link that leads nowhere shows nothing. SELinux lets agetty
 * read both (selinux-policy, getty.te).
 */
export class LoginScreen {
  readonly #host: Host;

  constructor(host: Host) {
    this.#host = host;
  }

  /** Reads the present text; undefined if there is none. */
  async read(): Promise<ShownText | undefined> {
    const path = pathOnHost(this.#host, screenFile);
    const text = await readFile(path, 'utf8').catch(() => undefined);
    const stats = text === undefined ? undefined : await stat(path).catch(() => undefined);
    return text === undefined || !stats ? undefined : { text, age: Date.now() - stats.mtimeMs };
  }

  /**
   * Shows lines of plain ASCII without backslashes, which agetty would interpret, between empty lines. Throws
   * `not-writable` and `disk-full`.
   */
  async show(lines: readonly string[], context: Context): Promise<void> {
    await writeAtomically(pathOnHost(this.#host, screenFile), formatText(lines), { mode: 0o644 });
    await this.#link();
    await this.#reload(context);
  }

  /** Removes the text. Throws `not-writable`. */
  async clear(context: Context): Promise<void> {
    if ((await this.read()) === undefined) return;
    await this.#attempt(() => rm(pathOnHost(this.#host, screenFile), { force: true }));
    await this.#reload(context);
  }

  /** Removes the text and the links. Throws `not-writable`. */
  async remove(context: Context): Promise<void> {
    await this.clear(context);
    for (const link of Object.values(screenLinks))
      await this.#attempt(() => rm(pathOnHost(this.#host, link), { force: true }));
  }

  /** Makes the link that agetty reads. The other one would show the text twice. */
  async #link(): Promise<void> {
    const hasIssue = await access(pathOnHost(this.#host, '/etc/issue'), constants.R_OK).then(
      () => true,
      () => false,
    );
    const [link, other] = hasIssue ? [screenLinks.etc, screenLinks.run] : [screenLinks.run, screenLinks.etc];
    const target = relative(dirname(link), screenFile);
    const path = pathOnHost(this.#host, link);
    await this.#attempt(async () => {
      await rm(pathOnHost(this.#host, other), { force: true });
      if ((await readlink(path).catch(() => undefined)) === target) return;
      await makeFolders(dirname(path));
      // agetty ignores names that do not end with .issue.
      await rm(`${path}.partial`, { force: true });
      await symlink(target, `${path}.partial`);
      await rename(`${path}.partial`, path);
    });
  }

  async #attempt(change: () => Promise<void>): Promise<void> {
    try {
      await change();
    } catch (error) {
      throw describeWriteError(error, screenFile);
    }
  }

  /** Has each waiting agetty read its files again. */
  async #reload(context: Context): Promise<void> {
    const result = await runProgram(this.#host, 'agetty', ['--reload'], context).catch(ignoring('not-found'));
    if (result && result.code !== 0) context.log('debug', `agetty --reload: ${result.stderr.trim()}`);
  }
}

/** Returns the content of an issue file. agetty prints the prompt directly after it. */
export function formatText(lines: readonly string[]): string {
  return `\n${lines.join('\n')}\n\n`;
}
