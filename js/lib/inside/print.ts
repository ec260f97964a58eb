// For the program `wasmrun`: prints a bundled file, which `wasmrun submit` runs, with its map, so that the sandbox tells places in the
// sources. Ends with 1 and says why on standard error if it cannot.

import { bundle } from './bundle.js';
import { MAP } from './places.js';

/** What `wasmrun submit` takes, in bytes. */
const MOST_BYTES = 512 << 10;

try {
  const { text, map } = await bundle(process.argv[2]!);
  const both = `${text}${MAP}${encodeURI(map)}`;
  process.stdout.write(Buffer.byteLength(both) <= MOST_BYTES ? both : text);
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`);
  process.exitCode = 1;
}
