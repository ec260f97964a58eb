// For the program `wasmrun`: prints a bundled file, which `wasmrun submit` runs. Ends with 1 and says why on standard error if it cannot.

import { bundle } from './bundle.js';

try {
  process.stdout.write((await bundle(process.argv[2]!)).text);
} catch (error) {
  process.stderr.write(`${(error as Error).message}\n`);
  process.exitCode = 1;
}
