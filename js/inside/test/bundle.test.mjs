// Modules as programs.

import assert from 'node:assert/strict';
import { mkdtemp, writeFile } from 'node:fs/promises';
import { SourceMap } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

import { here, load } from './modules.mjs';

const { BundleError, bundle } = await load('bundle');
const { GUEST } = await load('names');
const { placing } = await load('places');
const folder = await mkdtemp(join(tmpdir(), 'bundle-'));
globalThis[Symbol.for('wasmrun/guest')] = Object.fromEntries(GUEST.map((name) => [name, name]));

async function file(name, text) {
  const path = join(folder, name);
  await writeFile(path, text);
  return path;
}
/** As the interpreter does it. */
const evaluated = ({ text }) => (0, eval)(`(function () {${text}\n})`)();

test('a module is a program, with what it imports', async () => {
  await file('other.ts', 'export const twice = (n: number): number => 2 * n; export enum Kind { A, B }');
  const path = await file('app.ts', "import { get } from 'wasmrun/guest';\nimport { twice, Kind } from './other';\nexport const f = (n: number) => [twice(n), get, Kind.B];\nexport default class {}\nvar exported = 5;\nexport { exported };");
  const program = evaluated(await bundle(path));
  assert.deepEqual(Object.keys(program).sort(), ['default', 'exported', 'f']);
  assert.deepEqual(program.f(2), [4, 'get', 1]);
  assert.equal(program.exported, 5);
});

test('a module that waits is a promise of a program', async () => {
  const program = evaluated(await bundle(await file('tla.mjs', 'export const x = await Promise.resolve(1);')));
  assert.ok(program instanceof Promise);
  assert.equal((await program).x, 1);
});

test('what a sandbox does not have is an error that says so', async () => {
  const wrong = [
    ["import fs from 'node:fs'; fs.x;", /wrong\.mjs:1: 'node:fs' is a module of Node's/],
    ["import fs from 'fs'; fs.x;", /'fs' is a module of Node's/],
    ["import x from './x.node'; x();", /native code/],
    ["import { gett } from 'wasmrun/guest'; gett();", /No matching export.*gett/],
    ["import x from 'not-there'; x();", /Could not resolve "not-there"/],
    ['const = 1;', /wrong\.mjs:1: /],
  ];
  for (const [text, why] of wrong) {
    await assert.rejects(bundle(await file('wrong.mjs', text)), (error) => error instanceof BundleError && why.test(error.message), text);
  }
  await assert.rejects(bundle(join(folder, 'missing.ts')), BundleError);
});

test('places of a bundle are those that its map has', async () => {
  const { text, map } = await bundle(here('programs/api.ts'));
  const [place, theirs] = [placing(map), new SourceMap(JSON.parse(map))];
  let count = 0;
  text.split('\n').forEach((line, row) => {
    for (let column = 0; column <= line.length; column++) {
      const { originalSource, originalLine, originalColumn, generatedLine } = theirs.findEntry(row - 1, column);
      // Theirs may be of a row before.
      if (generatedLine !== row - 1) continue;
      count++;
      assert.equal(place(`f@api.ts.bundle:${row + 1}:${column + 1}`), `f@${originalSource}:${originalLine + 1}:${originalColumn + 1}`);
    }
  });
  assert(count > 1000, `${count}`);
  for (const other of ['f@api.ts.bundle:1:1', 'f@api.ts.bundle:99999:1', 'f@other:3:1', 'text']) assert.equal(place(other), other);
});

test('the names of the guest are the same where there is no sandbox', async () => {
  const guest = await load('../guest');
  assert.deepEqual(Object.keys(guest).sort(), [...GUEST].sort());
  assert.throws(() => guest.get(), /for functions that run in sandboxes/);
  assert.throws(() => guest.context.node, /for functions that run in sandboxes/);
});
