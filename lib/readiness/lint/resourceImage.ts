import { fieldsAt, isFields, textOf, type Fields } from '../../fields.ts';

/** An image that an operator’s resource names, in fields that only its operator knows. */
export interface ResourceImage {
  readonly image: string;
  /** The field that has it, relative to the item. */
  readonly field?: string;
  /** Whether the resource wants it pulled at each start. */
  readonly pullsAlways?: boolean;
}

/**
 * Reads the image that fields of an operator’s resource name in one of the usual forms. These are `image`, also beside a
 * pull policy, `repository`, `image` and `version` (NVIDIA), or `repository` and `tag` (Helm). Undefined for others.
 */
export function readResourceImage(fields: Fields): ResourceImage | undefined {
  const { registry, repository, image, version, tag, digest, imagePullPolicy, pullPolicy } = fields;
  const pullsAlways = [imagePullPolicy, pullPolicy].includes('Always');
  const [host, base, name] = [textOf(registry), textOf(repository), textOf(image)];
  const mark = textOf(digest) ?? textOf(version) ?? textOf(tag);
  const path = [host, base, name].filter((part) => part !== undefined && part !== '').join('/');
  const isSplit = base !== undefined && mark !== undefined && mark !== '';
  const text = isSplit ? `${path}${mark.startsWith('sha256:') ? '@' : ':'}${mark}` : name;
  if (text === undefined || (!isSplit && !pullsAlways && !looksLikeImage(text))) return undefined;
  return { image: text, field: name === undefined ? 'repository' : 'image', pullsAlways };
}

/** Returns whether the value of a field `image` is an image with a tag or a registry, and no other word. */
function looksLikeImage(text: string): boolean {
  return /^[\w.-]+(?::\d+)?(?:\/[\w.-]+)*:[\w.-]+$/.test(text) || /^[\w-]+(?:\.[\w-]+)+(?::\d+)?\/[\w./-]+$/.test(text);
}

/** A disk of a virtual machine that CDI imports from a registry. */
export interface DiskImport {
  readonly url: string;
  /** The field that has the URL, relative to the item. */
  readonly field: string;
  /** Whether it is imported again on a schedule (DataImportCron). */
  readonly isScheduled: boolean;
}

/** Reads the import in the spec of a DataVolume or of a DataImportCron; undefined for other fields. */
export function readDiskImport(fields: Fields): DiskImport | undefined {
  const isScheduled = textOf(fields['schedule']) !== undefined && fields['managedDataSource'] !== undefined;
  const path = isScheduled ? ['template', 'spec', 'source', 'registry'] : ['source', 'registry'];
  const registry = fieldsAt(fields, ...path);
  const key = isFields(registry) && registry['url'] === undefined ? 'imageStream' : 'url';
  const url = textOf(registry[key]);
  return url === undefined ? undefined : { url, field: [...path, key].join('.'), isScheduled };
}
