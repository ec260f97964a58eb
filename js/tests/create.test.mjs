/** `npm create wasmrun`: the package that is installed beside. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

// Here, npm finds what is installed.
const cwd = mkdtempSync(join(process.cwd(), 'created-'));
const create = (...args) => spawnSync('npm', ['create', '--offline', 'wasmrun', ...args], { cwd, encoding: 'utf8' });

test('`npm create wasmrun` writes the project of `wasmrun new`', () => {
  for (const [name, asked, file] of [
    ['by-default', [], 'app.ts'],
    ['in-js', ['--', '--lang', 'js'], 'app.js'],
  ]) {
    const made = create(name, ...asked);
    assert.equal(made.status, 0, made.stderr);
    assert.equal(JSON.parse(readFileSync(join(cwd, name, 'package.json'), 'utf8')).name, name);
    assert(readdirSync(join(cwd, name)).includes(file));
  }
});

test('what `wasmrun new` refuses, it refuses', () => {
  const refused = create('No-Name');
  assert.notEqual(refused.status, 0);
  assert.match(refused.stderr, /a project's name is that of a package/);
});
