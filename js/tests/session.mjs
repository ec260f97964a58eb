/** Real parts only: the package that is installed, a node of its own, and the guests that the other tests use. */

import { join } from 'node:path';
import { after } from 'node:test';

import { connect } from 'wasmrun';

export const guest = (name) => join(process.env.WASMRUN_GUESTS ?? 'target/guests', `${name}.wasm`);

export const node = await connect({ nodeOptions: ['--node-cpus', '2', '--node-name', 'own'] });
after(() => node.close());

export const fixture = await node.load(guest('fixture'));
export const graph = await node.load(guest('graph'));
export const orders = await node.load(guest('orders'));
