// The modules of `lib/inside`, as JavaScript.

import { build } from 'esbuild';
import { mkdtemp } from 'node:fs/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { basename, join } from 'node:path';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

/** One module. It lies where it finds esbuild. */
export async function load(name) {
  const folder = await mkdtemp(here('../node_modules/.test-'));
  const outfile = join(folder, `${basename(name)}.mjs`);
  await build({ entryPoints: [here(`../../lib/inside/${name}.ts`)], outfile, bundle: true, platform: 'node', format: 'esm', external: ['esbuild'], logLevel: 'warning' });
  const { rm } = await import('node:fs/promises');
  const module = await import(pathToFileURL(outfile));
  await rm(folder, { recursive: true });
  return module;
}

export { here };
