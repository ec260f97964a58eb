// The interpreter in a node: WASMRUN_BIN is the program, and WASMRUN_JAVASCRIPT the component with its manifest.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

import { here, load } from './modules.mjs';

const { WASMRUN_BIN: bin, WASMRUN_JAVASCRIPT: component } = process.env;
const skip = bin && component ? false : 'no WASMRUN_BIN and WASMRUN_JAVASCRIPT';
const { bundle } = await load('bundle');

async function submit(text, ...args) {
  const env = { ...process.env, WASMRUN_ADDRESS: undefined };
  const all = ['submit', '--quiet', component, '--env', `WASMRUN_SCRIPT=${text}`, '--env', 'FOO=bar', '--', 'x.ts', ...args];
  return spawnSync(bin, all, { encoding: 'utf8', env });
}

for (const name of ['api', 'hostile']) {
  test(`the program ${name} runs`, { skip }, async () => {
    const { text } = await bundle(here(`programs/${name}.ts`));
    const { status, stderr } = await submit(text, 'a', 'b c');
    assert.equal(status, 0, stderr);
  });
}

test('a program that throws says where, and ends with 1', { skip }, async () => {
  const { status, stdout, stderr } = await submit('"use strict";\nconsole.log("before", { a: [1n] });\nthrow new TypeError("wrong");\n//# sourceURL=here');
  assert.deepEqual([status, stdout], [1, 'before { a: [ 1n ] }\n']);
  assert.match(stderr, /TypeError: wrong\n@here:3:7/);
});

test('a snippet has its inputs, and can start nothing', { skip }, () => {
  const run = (code) => {
    const call = `run(${JSON.stringify(code)}, {bytes: [100, 1, 115, 1, 120, 105, 1, 41], objects: [], actors: []})`;
    const { stdout, stderr } = spawnSync(bin, ['submit', '--quiet', component, '--invoke', call], { encoding: 'utf8' });
    return stdout + stderr;
  };
  assert.match(run('return x + 1'), /bytes: \[105, 1, 42\]/);
  assert.match(run('await null; return x + 1'), /bytes: \[105, 1, 42\]/);
  assert.match(run("globalThis[Symbol.for('wasmrun/guest')].getActor('a')"), /RefusedError.*this code is isolated.*@snippet:1:/);
  assert.match(run('return ('), /SyntaxError/);
});
