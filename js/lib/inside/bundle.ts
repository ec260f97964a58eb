// Modules as programs: what a sandbox evaluates is one text.
//
// Owns how esbuild is used. A program is the body of a function that returns what the first module exports, or a promise of it.

import { build, type BuildFailure, type Plugin } from 'esbuild';
import { isBuiltin } from 'node:module';
import { basename, dirname, resolve } from 'node:path';

import { BundleError } from '../errors.js';
import { GUEST, GUEST_OF_SANDBOX } from './names.js';

export interface Program {
  text: string;
  /** What its lines are in the sources, as a source map has it. The first of them is the second of the text. */
  map: string;
}

export { BundleError };

const sandbox: Plugin = {
  name: 'sandbox',
  setup(of) {
    of.onResolve({ filter: /^wasmrun\/guest$/ }, () => ({ path: 'wasmrun/guest', namespace: 'sandbox' }));
    of.onLoad({ filter: /^/, namespace: 'sandbox' }, () => ({
      contents: `export const { ${GUEST.join(', ')} } = ${GUEST_OF_SANDBOX};`,
    }));
    of.onResolve({ filter: /\.node$/ }, ({ path }) => ({
      errors: [{ text: `${path} is native code, which cannot run in a sandbox: use a package of JavaScript or WebAssembly` }],
    }));
    of.onResolve({ filter: /^/ }, ({ path, kind }) => {
      if (kind === 'entry-point' || !isBuiltin(path)) return undefined;
      return { errors: [{ text: `'${path}' is a module of Node's, which a sandbox does not have` }] };
    });
  },
};

async function bundled(file: string, format: 'iife' | 'esm'): Promise<Program> {
  const { outputFiles } = await build({
    stdin: {
      contents: `import * as program from ${JSON.stringify(`./${basename(file)}`)}; exported = program;`,
      resolveDir: dirname(file),
      sourcefile: '<wasmrun>',
    },
    outfile: 'program.js',
    bundle: true,
    write: false,
    format,
    platform: 'browser',
    target: 'es2022',
    charset: 'utf8',
    sourcemap: 'external',
    sourcesContent: false,
    legalComments: 'none',
    logLevel: 'silent',
    plugins: [sandbox],
  });
  const of = (end: string) => outputFiles.find((it) => it.path.endsWith(end))!.text;
  const [before, after] = format === 'iife' ? ['', ''] : ['return (async () => {', '})();'];
  const text = `"use strict";let exported;${before}\n${of('.js')}return exported;${after}\n//# sourceURL=${basename(file)}.bundle`;
  return { text, map: of('.map') };
}

/** The program whose first module is this file. */
export async function bundle(file: string): Promise<Program> {
  const path = resolve(file);
  const isWaiting = ({ errors }: BuildFailure) => errors?.length > 0 && errors.every((it) => it.text.includes('Top-level await'));
  try {
    return await bundled(path, 'iife').catch((error) => {
      if (isWaiting(error)) return bundled(path, 'esm');
      throw error;
    });
  } catch (error) {
    const { errors } = error as BuildFailure;
    if (!errors) throw error;
    const told = errors.map(({ location, text }) => (location ? `${location.file}:${location.line}: ${text}` : text));
    throw new BundleError(`${file} cannot be bundled: ${told.join('\n')}`);
  }
}
