/** Prints the software bill of materials of all platforms: `npm run sbom`. */
import { billOf } from './bill.ts';
import { platforms } from './krew.ts';

process.stdout.write(billOf(platforms));
