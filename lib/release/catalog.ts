/** Operator catalogs: reading one, and selecting packages, channels and versions. */
export { filterCatalog, openCatalog, type OpenedCatalog } from './catalog/catalogImage.ts';
export type { OperatorRequest, SelectedPackage, Selection } from './catalog/selection.ts';
