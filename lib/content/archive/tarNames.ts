import { isDigest } from '../oci/digest.ts';
import { quoteEntry, type Refuse } from './tarHeader.ts';

const lengthLimit = 1000;
const depthLimit = 20;

/**
 * Converts the name of an entry to a path in the archive, without a leading `./` or a trailing slash. The root folder
 * is an empty path. Refuses names that tar programs or file systems change or extract elsewhere.
 */
export function parseName(name: string, isFolder: boolean, refuse: Refuse): string {
  const quoted = quoteEntry(name);
  if (isFolder && (name === '.' || name === './')) return '';
  const path = (isFolder ? name.replace(/\/$/, '') : name).replace(/^\.\//, '');
  const parts = path.split('/');
  // bsdtar removes a letter and a colon as a drive name.
  if (/^(?:\/|[a-z]:)/i.test(path) || parts.includes('..')) return refuse(`${quoted} is outside of the archive`);
  if (parts.some((part) => part === '' || part === '.'))
    return refuse(`${quoted} is not the shortest form of its path`);
  if (!/^[\x20-\x5b\x5d-\x7e]+$/.test(path))
    return refuse(`${quoted} has characters other than printable ASCII without a backslash`);
  if (path.length > lengthLimit || parts.length > depthLimit || parts.some((part) => part.length > 255))
    return refuse(`${quoted} is too long or has too many folders`);
  if (parts.some((part) => part.startsWith('._')))
    return refuse(`${quoted} is an AppleDouble file, which tar adds on macOS unless COPYFILE_DISABLE=1 is set`);
  return path;
}

/** Refuses a symbolic link unless it is a tag that points to a manifest beside it. */
export function checkLink(path: string, target: string, refuse: Refuse): void {
  if (!/^v2\/.+\/manifests\/[^/]+$/.test(path) || !isDigest(target))
    refuse(`${quoteEntry(path)} is a symbolic link; only tags are links, to manifests beside them`);
}

/**
 * The paths in an archive. Refuses a path that another entry would replace during extraction, or that would be written
 * through another entry.
 */
export class TarNames {
  /**
   * The spelling of each path, and whether it is a folder, by the path in lower case. Some file systems ignore case.
   */
  readonly #seen = new Map<string, { readonly path: string; readonly isFolder: boolean }>();

  /** Adds a file or a link. */
  addFile(path: string, refuse: Refuse): void {
    this.#addParents(path, refuse);
    const seen = this.#find(path, refuse);
    if (seen?.isFolder === true) refuse(`${quoteEntry(path)} is a file and a folder`);
    if (seen) refuse(`it has ${path} twice`);
    this.#add(path, false);
  }

  /** Adds a folder, which may already exist. */
  addFolder(path: string, refuse: Refuse): void {
    if (path === '') return;
    this.#addParents(path, refuse);
    const seen = this.#find(path, refuse);
    if (seen?.isFolder === false) refuse(`${quoteEntry(path)} is a file and a folder`);
    if (!seen) this.#add(path, true);
  }

  #addParents(path: string, refuse: Refuse): void {
    for (let end = path.lastIndexOf('/'); end > 0; end = path.lastIndexOf('/', end - 1)) {
      const parent = path.slice(0, end);
      const seen = this.#find(parent, refuse);
      if (seen?.isFolder === false) refuse(`${quoteEntry(path)} is below ${quoteEntry(parent)}, which is not a folder`);
      // The map already has its parents.
      if (seen) return;
      this.#add(parent, true);
    }
  }

  #add(path: string, isFolder: boolean): void {
    this.#seen.set(path.toLowerCase(), { path, isFolder });
  }

  #find(path: string, refuse: Refuse): { readonly isFolder: boolean } | undefined {
    const seen = this.#seen.get(path.toLowerCase());
    if (seen && seen.path !== path) refuse(`${quoteEntry(path)} and ${quoteEntry(seen.path)} differ only in case`);
    return seen;
  }
}
