import { HostFiles } from '../node/machine/hostFiles.ts';

/** The files of a host as they would be after changes. */
export class ChangedFiles extends HostFiles {
  readonly #changed: ReadonlyMap<string, Buffer | undefined>;

  constructor(root: string, changed: ReadonlyMap<string, Buffer | undefined>) {
    super(root);
    this.#changed = changed;
  }

  override async read(path: string): Promise<Buffer | undefined> {
    return this.#changed.has(path) ? this.#changed.get(path) : super.read(path);
  }

  override async exists(path: string): Promise<boolean> {
    return this.#changed.has(path) ? this.#changed.get(path) !== undefined : super.exists(path);
  }
}
