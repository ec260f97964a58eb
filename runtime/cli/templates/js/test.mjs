import { equal } from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';

test('parts add up to the whole', () => {
  const submit = ['submit', '{{name}}.wasm', '--invoke', 'sum(1000, 4)'];
  equal(execFileSync('wasmrun', submit, { encoding: 'utf8' }), 'ok(500500)\n');
});
