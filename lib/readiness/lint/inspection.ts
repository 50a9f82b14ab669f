import { PluginError } from '#errors';
import { fieldsAt, fieldsOf, listOf, textOf, textsOf, type Fields } from '#fields';
import { exclusionOf, releaseMarksOf, selfManaged, type ManifestFilter } from '#release/payload';
import { commandLinesOf, readContainers, type Container, readBase64, readDataUrl } from './container.ts';
import { isFullReference, readDiskImport, readResourceImage } from './image.ts';
import {
  readManifest,
  applyRules,
  oneLine,
  placeBelow,
  type LintState,
  type ManifestPlace,
  type Rule,
} from './report.ts';
import { rulesFor } from './rules.ts';
import { commandsIn } from './shell.ts';

const deepest = 64;
const excess = 'its size, aliases or nesting exceed the limits';

/**
 * Reads a file of manifests, and adds a finding for each part that breaks a rule. Throws `too-large` above the limits
 * of all files.
 */
export function inspectFile(text: string, file: string, state: LintState): void {
  const object = { kind: 'File', name: file };
  const place = { file, object, field: '', name: file, hasTexts: true, depth: 0 };
  if (!/\.(?:ya?ml|json|ign|bu)$/.test(file) && !looksLikeManifest(text, '')) {
    state.objects += 1;
    inspectCommands(text, place, state);
    return;
  }
  for (const value of attempt(() => readManifest(text, state.budget), place, state) ?? [])
    inspectObject(value, place, state);
}

/** Adds a finding for a file that cannot be read at all. */
export function reportUnreadable(file: string, reason: string, state: LintState): void {
  const place = { file, object: { kind: 'File', name: file }, field: '', name: file, hasTexts: true, depth: 0 };
  applyRules(rulesFor.file, reason, 'the file', place, state);
}

/** Reads a value; what keeps it from being read is a finding. */
function attempt<Value>(read: () => Value, place: ManifestPlace, state: LintState): Value | undefined {
  try {
    return read();
  } catch (error) {
    if (state.budget.tokens < 1000) throw tooLarge();
    const isLarge = error instanceof RangeError || error instanceof ReferenceError;
    const reason = isLarge ? excess : 'it is neither YAML nor JSON';
    applyRules(rulesFor.file, reason, place.field === '' ? 'the file' : place.name, place, state);
    return undefined;
  }
}

function inspectObject(value: unknown, place: ManifestPlace, state: LintState): void {
  if (typeof value === 'object' && value !== null && isSeen(value, state)) return;
  const inner = { ...place, depth: place.depth + 1 };
  if (place.depth > deepest) reportDepth(place, state);
  if (place.depth > deepest) return;
  if (Array.isArray(value)) {
    for (const item of value) inspectObject(item, inner, state);
    return;
  }
  const object = fieldsOf(value);
  const { kind, items, metadata, spec } = object;
  if (textOf(kind) === undefined || object['apiVersion'] === undefined) {
    if (place.field === '' && isPart(object)) state.objects += 1;
    if (typeof value === 'object') inspectFields(object, place, state);
    else inspectValue(value, place, state);
    return;
  }
  if (Array.isArray(items)) {
    for (const item of items) inspectObject(item, inner, state);
    return;
  }
  // An object within another one is created by what reads that.
  const isCreated = isForClusters(object, place.field === '' ? state.filter : undefined);
  if (isCreated) state.objects += 1;
  else state.excluded += 1;
  if (!isCreated) return;
  const { name, namespace } = fieldsOf(metadata);
  const own = {
    kind: oneLine(String(kind)),
    name: oneLine(textOf(name) ?? ''),
    ...(textOf(namespace) && { namespace: oneLine(String(namespace)) }),
  };
  // A static pod in a machine configuration is reported with the object of the cluster that has it.
  const at: ManifestPlace = {
    ...place,
    object: place.field === '' ? own : place.object,
    hasTexts: /^(?:ConfigMap|MachineConfig|Secret)$/.test(own.kind),
    isCustom: isCustomKind(textOf(object['apiVersion']) ?? ''),
  };
  applyRules(rulesFor.admissionPolicy, object, 'the policy', at, state);
  if (kind === 'CatalogSource' || kind === 'ClusterCatalog') {
    applyRules(rulesFor.catalog, fieldsOf(spec), 'the catalog', placeBelow(at, 'spec'), state);
  }
  if (kind === 'ImageStream') inspectImageStream(spec, placeBelow(at, 'spec.tags'), state);
  for (const [key, field] of Object.entries(object)) {
    if (/^(?:apiVersion|kind|metadata|status)$/.test(key)) continue;
    const isEncoded = key === 'binaryData' || (kind === 'Secret' && key === 'data');
    if (isEncoded) inspectEncoded(fieldsOf(field), placeBelow(at, key), state);
    else inspectValue(field, placeBelow(at, key), state);
  }
}

/** The groups of Kubernetes, of OpenShift and of OLM whose fields the other rules know, or which name no image. */
const knownGroups =
  /^(?:[a-z]*|[a-z0-9.]+\.k8s\.io|(?:apps|build|config|image|machineconfiguration|operator|samples\.operator|template)\.openshift\.io|(?:packages\.)?operators\.coreos\.com|olm\.operatorframework\.io)$/;

function isCustomKind(apiVersion: string): boolean {
  const [group = '', version] = apiVersion.split('/');
  return version !== undefined && !knownGroups.test(group);
}

/** Returns whether an object without a kind is a pod template, an Ignition file, or a file or unit of one. */
function isPart(object: Fields): boolean {
  return ['containers', 'contents', 'ignition', 'spec', 'storage', 'systemd', 'template'].some((key) => key in object);
}

function reportDepth(place: ManifestPlace, state: LintState): void {
  applyRules(rulesFor.file, excess, place.field === '' ? 'the file' : place.name, place, state);
}

function inspectImageStream(spec: unknown, place: ManifestPlace, state: LintState): void {
  for (const tag of listOf(fieldsOf(spec)['tags'])) {
    applyRules(
      rulesFor.imageStreamTag,
      tag,
      `tag ${String(tag['name'])}`,
      placeBelow(place, `[${String(tag['name'])}]`),
      state,
    );
  }
}

function inspectEncoded(values: Fields, place: ManifestPlace, state: LintState): void {
  for (const [key, value] of Object.entries(values)) {
    const at = { ...placeBelow(place, key), name: key };
    const text = typeof value === 'string' ? attempt(() => readBase64(value), at, state) : undefined;
    if (text !== undefined) inspectText(text, at, state);
  }
}

/** Reads a value at any depth: pods by their shape, lists of admission plugins, and texts. */
function inspectValue(value: unknown, place: ManifestPlace, state: LintState): void {
  if ((state.budget.values -= 1) < 0) throw tooLarge();
  if (place.depth > deepest) {
    reportDepth(place, state);
  } else if (typeof value === 'string') {
    if (place.isCustom) applyRules(rulesFor.resourceImage, { image: value }, 'the resource', place, state);
    if (place.hasTexts) inspectText(value, place, state);
  } else if (typeof value !== 'object' || value === null || isSeen(value, state)) {
    return;
  } else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) inspectValue(item, placeBelow(place, labelOf(item, index)), state);
  } else {
    inspectFields(fieldsOf(value), place, state);
  }
}

function inspectFields(fields: Fields, place: ManifestPlace, state: LintState): void {
  // Operators fill in images, and patches have none.
  if (
    listOf(fields['containers']).some(
      ({ name, image, imagePullPolicy }) => textOf(name) && (typeof image === 'string' || textOf(imagePullPolicy)),
    )
  ) {
    for (const container of readContainers(fields)) inspectContainer(container, place, state);
    return;
  }
  const inspected = inspectParts(fields, place, state);
  const name = textOf(fields['path']) ?? textOf(fields['name']);
  for (const [key, value] of Object.entries(fields)) {
    if (inspected.includes(key)) continue;
    const at = {
      ...placeBelow(place, key),
      name: name ?? (/^(?:contents|source|inline|local)$/.test(key) ? place.name : key),
    };
    if (/^(?:enable-?admission-?plugins|enabledPlugins|enabledAdmissionPlugins)$/i.test(key)) {
      applyRules(rulesFor.admissionPlugins, typeof value === 'string' ? [value] : textsOf(value), key, at, state);
    }
    inspectValue(value, at, state);
  }
}

/** Inspects the parts of a build, a virtual machine and an operator’s resource. Returns the keys that need no more. */
function inspectParts(fields: Fields, place: ManifestPlace, state: LintState): string[] {
  applyRules(rulesFor.build, fields, 'the build', place, state);
  const disks = readContainers({ volumes: fields['volumes'] }).filter(({ kind }) => kind === 'container disk');
  for (const disk of disks) inspectContainer(disk, place, state);
  const diskImport = readDiskImport(fields);
  if (diskImport) applyRules(rulesFor.diskImport, diskImport, 'the disk', place, state);
  const image = place.isCustom ? readResourceImage(fields) : undefined;
  if (image) applyRules(rulesFor.resourceImage, image, 'the resource', place, state);
  return [
    ...(disks.length > 0 ? ['volumes'] : []),
    ...(diskImport ? [diskImport.field.split('.')[0] ?? ''] : []),
    ...(image ? ['image', 'repository'] : []),
  ];
}

function inspectContainer(container: Container, place: ManifestPlace, state: LintState): void {
  const { list, name, fields, image } = container;
  const at = placeBelow(place, `${list}[${name}]`);
  const report = <Item>(rules: readonly Rule<Item>[], item: Item, field: string): void => {
    applyRules(rules, item, '', field === '' ? at : placeBelow(at, field), state, container);
  };
  report(rulesFor.container, container, '');
  for (const [field, words] of commandLinesOf(container)) {
    report(rulesFor.commands, [words], field);
    const plugins = [...words.join(' ').matchAll(/--enable-admission-plugins[= ]([\w,]+)/g)].map(
      (match) => match[1] ?? '',
    );
    report(rulesFor.admissionPlugins, plugins, field);
    for (const word of words)
      inspectReference(word.replace(/^--?[\w-]+=/, ''), placeBelow(at, field), state, container);
  }
  for (const { name: variable, value } of listOf(fields['env'])) {
    const text = textOf(value) ?? '';
    if (text !== image) inspectReference(text, placeBelow(at, `env[${String(variable)}]`), state, container);
  }
}

function inspectReference(text: string, place: ManifestPlace, state: LintState, container?: Container): void {
  if (isFullReference(text)) applyRules(rulesFor.reference, text, place.name, place, state, container);
}

/** Reads a text of a file, unit or script: what it names, what it runs, and the manifests in it. */
function inspectText(text: string, place: ManifestPlace, state: LintState): void {
  state.budget.values -= text.length / 100;
  const inner = { ...place, depth: place.depth + 8 };
  const decoded = text.startsWith('data:') ? attempt(() => readDataUrl(text), place, state) : undefined;
  if (decoded !== undefined) {
    inspectText(decoded, inner, state);
    return;
  }
  inspectReference(text.trim(), place, state);
  if (!text.includes('\n') && !/^\s*[{]/.test(text) && !/\s/.test(text.trim())) return;
  if (place.depth < deepest && looksLikeManifest(text, place.name)) {
    const values = attemptNested(text, place, state);
    if (values !== undefined) {
      for (const value of values) inspectObject(value, { ...inner, field: `${place.field} >` }, state);
      return;
    }
  }
  inspectCommands(text, place, state);
}

function inspectCommands(text: string, place: ManifestPlace, state: LintState): void {
  applyRules(rulesFor.commands, commandsIn(text, place.name), place.name, place, state);
}

/** Many texts only look like YAML; they are read as scripts. */
function attemptNested(text: string, place: ManifestPlace, state: LintState): unknown[] | undefined {
  try {
    return readManifest(text, state.budget);
  } catch (error) {
    if (error instanceof RangeError || error instanceof ReferenceError)
      return void attempt(
        () => {
          throw error;
        },
        place,
        state,
      );
    return undefined;
  }
}

function looksLikeManifest(text: string, name: string): boolean {
  if (text.startsWith('#!')) return false;
  return (
    /\.(?:ya?ml|json|ign)$/.test(name) ||
    /^\s*\{\s*["}]/.test(text) ||
    (/^kind:/m.test(text) && /^apiVersion:/m.test(text))
  );
}

/** Items with a name keep their path if others are added before them. */
function labelOf(item: unknown, index: number): string {
  const { path, name } = fieldsAt(item);
  return `[${textOf(path) ?? textOf(name) ?? index}]`;
}

function tooLarge(): PluginError {
  return new PluginError('too-large', 'the manifests exceed the limits of all files together', {
    hint: 'Name a folder with fewer files. Lists of a whole cluster are read faster as JSON.',
  });
}

function isSeen(value: object, { seen }: LintState): boolean {
  const wasSeen = seen.has(value);
  seen.add(value);
  return wasSeen;
}

/**
 * Returns whether the version operator creates an object in self-managed clusters. `filter` is for the objects of a
 * release, of which those without annotations are left out. Other objects count unless their annotations exclude them.
 */
function isForClusters(object: Fields, filter: ManifestFilter | undefined): boolean {
  if (filter) return exclusionOf(object, filter) === undefined;
  const { any, profiles } = releaseMarksOf(object);
  const defaultFilter = { featureSet: 'Default', ...(profiles && { profile: selfManaged }) };
  return !any || exclusionOf(object, defaultFilter) === undefined;
}
