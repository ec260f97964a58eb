/*
 * Prices orders, each in a sandbox of its own, with the types of the module.
 *
 *     cargo xtask guests
 *     wasmrun stubs target/guests/orders.wasm --lang ts --out examples/javascript/orders.d.ts
 *     npx tsc --strict --target es2022 --module nodenext examples/javascript/price-orders.ts
 *     node examples/javascript/price-orders.js
 */

import { GuestError, connect } from 'wasmrun';

import type * as orders from './orders.js';

const GUESTS = process.env.WASMRUN_GUESTS ?? 'target/guests';

const mugs: orders.Order = {
  id: 'A-17',
  currency: 'eur',
  tier: 'member',
  items: [{ sku: 'mug', quantity: 3, unitPrice: 1250n, weight: 400 }],
  care: { fragile: true },
  delivery: { tag: 'parcel', val: 'DE' },
};
const rules: orders.Rule[] = [
  { tag: 'one-free', val: ['mug', 3] },
  { tag: 'tax', val: 1900 },
];

await using node = await connect();
const shop = await node.load<orders.Module>(`${GUESTS}/orders.wasm`);

const { total, currency } = await shop.price(mugs, rules);
console.log(`total ${Number(total) / 100} ${currency}`);

// The rules are stored once; each of the orders is a task. They are told as they come.
const stored = await shop.price.put('rules', rules);
const refs = [1, 2, 0].map((quantity) => {
  const items = mugs.items.map((item) => ({ ...item, quantity }));
  return shop.price.ref(quantity > 0 ? { ...mugs, items } : { ...mugs, items: [] }, stored);
});
for await (const ref of node.completed(refs)) {
  try {
    console.log(`another one: ${(await ref.get()).total}`);
  } catch (error) {
    if (!(error instanceof GuestError)) throw error;
    const refused = error.payload as orders.OrderError;
    console.log(`no price: ${refused.tag}`);
  }
}
