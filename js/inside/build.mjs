// Builds the interpreter: `npm ci && node build.mjs javascript.wasm`.
//
// Owns how componentize-js is used: its engine and its bindings, without its way to a snapshot (see `snapshot.mjs`). The result is
// the same each time.

import { componentNew, preview1AdapterReactorPath } from '@bytecodealliance/jco';
import { build } from 'esbuild';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { snapshot } from './snapshot.mjs';
import { host, warm } from './warm.mjs';

const library = new URL('../lib/', import.meta.resolve('@bytecodealliance/componentize-js'));
const { splicer } = await import(new URL('spidermonkey-embedding-splicer.js', library));

const WORLD = 'javascript';
// `http` leaves the imports of wasi:http there, for `fetch.ts`.
const FEATURES = ['stdio', 'random', 'clocks', 'http'];

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const out = process.argv[2];
if (out === undefined) throw new Error('say where to: node build.mjs javascript.wasm');

/** The world, with wasmrun's own beside what it needs. */
async function worlds() {
  const wit = await mkdtemp(join(tmpdir(), 'wit-'));
  await cp(here('wit'), wit, { recursive: true });
  await cp(here('../../wit'), join(wit, 'deps/runtime'), { recursive: true });
  return wit;
}

// What arguments of imports are copied to would be freed when the call of the export is over, which for a program is its end. Nobody
// needs it once the import has returned, so the next one has it again.
const LENDING = `
var [room, roomSize, used] = [0, 0, 0];
function lend(_, __, align, size) {
  let at = (used + align - 1) & -align;
  if (at + size > roomSize) {
    roomSize = Math.max(1024, 2 * roomSize, size);
    room = $realloc(0, 0, 8, roomSize);
    at = 0;
  }
  used = at + size;
  return room + at;
}
`;

/** The bindings of componentize-js, without what they cost each call, and what they keep. */
function mended(bindings) {
  const exported = bindings.indexOf('async function export_');
  const changed = (part, pattern, by) => {
    const made = part.replaceAll(pattern, by);
    if (made === part) throw new Error(`the bindings of componentize-js are not what they were: there is no ${pattern}`);
    return made;
  };
  // They make objects for a log that nobody reads.
  const log = /^ *_debugLog\((?:'[^']*'|'[^']*', \{[^}]*\})\);\n/gm;
  let imports = changed(bindings.slice(0, exported), log, '');
  imports = changed(imports, '= $realloc(0, 0,', '= lend(0, 0,');
  imports = changed(imports, ', $realloc, $memory)', ', lend, $memory)');
  imports = changed(imports, /^ *(?:ret = )?\$import_\w+(?:\$\w+)*\(.*\);\n/gm, '$&used = 0;\n');
  let exports = changed(bindings.slice(exported), log, '');
  exports = changed(exports, /^async function export_.*\{\n/gm, '$&room = roomSize = used = 0;\n');
  return `${imports}${LENDING}${exports}`;
}

async function bundled() {
  const { outputFiles } = await build({
    entryPoints: [here('app.ts')],
    absWorkingDir: here('.'),
    bundle: true,
    format: 'esm',
    target: 'es2022',
    external: ['wasmrun:*', 'wasi:*'],
    legalComments: 'none',
    // Fields that are assigned are cheaper than those that are defined.
    tsconfigRaw: { compilerOptions: { useDefineForClassFields: false } },
    write: false,
  });
  return outputFiles[0].text;
}

const wit = await worlds();
const engine = await readFile(new URL('starlingmonkey_embedding.wasm', library));
const { wasm, jsBindings, exports, imports } = splicer.spliceBindings(engine, FEATURES, undefined, wit, WORLD, false);
const env = { DEBUG: '', SOURCE_NAME: 'source.js', FEATURE_CLOCKS: '1', EXPORT_CNT: exports.length, IMPORT_CNT: imports.length };
exports.forEach(([name, { params, paramptr, ret, retptr, retsize }], at) => {
  env[`EXPORT${at}_NAME`] = name;
  env[`EXPORT${at}_ARGS`] = (paramptr ? '*' : '') + params.join(',');
  env[`EXPORT${at}_RET`] = (retptr ? '*' : '') + (ret ?? '');
  env[`EXPORT${at}_RETSIZE`] = retsize;
});
imports.forEach(([, name, count], at) => {
  env[`IMPORT${at}_NAME`] = name;
  env[`IMPORT${at}_ARGCNT`] = count;
});
const world = {
  env,
  stdin: '--initializer-script-path initializer.js --strip-path-prefix / source.js',
  files: { 'initializer.js': mended(jsBindings), 'source.js': await bundled() },
};
const made = await snapshot(wasm, { world, host, init: 'componentize.wizer', warm });
const core = splicer.stubWasi(made, FEATURES, undefined, wit, WORLD);
await rm(wit, { recursive: true });
const adapter = await readFile(preview1AdapterReactorPath());
await writeFile(out, await componentNew(core, [['wasi_snapshot_preview1', adapter]], false));
