#!/usr/bin/env node
// `npm create wasmrun NAME [-- --lang LANGUAGE]`: the project of `wasmrun new`, by the program that the package wasmrun brings.

import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const program = fileURLToPath(new URL('../native/wasmrun', import.meta.resolve('wasmrun')));
const given = process.argv.slice(2);
const isNamed = given.some((it) => it === '--lang' || it.startsWith('--lang='));
const { status, error } = spawnSync(program, ['new', ...given, ...(isNamed ? [] : ['--lang', 'ts'])], { stdio: 'inherit' });
if (error) throw error;
if (status === 0) console.error('That `wasmrun` is found by `npm test` and `npx` if the package wasmrun is installed in the project, too.');
process.exitCode = status ?? 1;
