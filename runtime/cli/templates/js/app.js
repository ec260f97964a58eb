// @ts-check
import { create } from 'wasmrun:runtime/actors@0.1.0';
import { put } from 'wasmrun:runtime/objects@0.1.0';
import { spawn } from 'wasmrun:runtime/tasks@0.1.0';

class Tally {
  #total = 0;

  /** @param {number} n */
  add(n) {
    return (this.#total += n);
  }
}

/** What `wit/world.wit` promises: functions are tasks, classes are actors. @type {typeof import('local:{{name}}/app')} */
export const app = {
  Tally,

  sumPart(numbers, index, parts) {
    const bound = (/** @type {number} */ part) => Math.floor((numbers.length * part) / parts);
    return numbers.subarray(bound(index), bound(index + 1)).reduce((sum, n) => sum + n, 0);
  },

  sum(n, parts) {
    const numbers = Float64Array.from({ length: n }, (_, i) => i + 1);
    const stored = put({ tag: 'buffer', val: 'f64' }, new Uint8Array(numbers.buffer));
    const tally = create('tally', [], undefined);
    let total = tally.call('add', [f64(0)]);
    for (let index = 0; index < parts; index++) {
      const part = spawn('sum-part', [{ tag: 'object', val: stored }, u32(index), u32(parts)], undefined);
      // Nothing has waited so far: the call runs when the task has ended, after the calls before it.
      total = tally.call('add', [{ tag: 'object', val: part }]);
    }
    const { bytes } = total.get(undefined);
    return new DataView(bytes.buffer, bytes.byteOffset).getFloat64(0, true);
  },
};

/** An argument as its bytes, by its type: wasmrun's docs/values.md has the table. @param {number} n */
function f64(n) {
  return { tag: /** @type {const} */ ('value'), val: new Uint8Array(Float64Array.of(n).buffer) };
}

/** @param {number} n */
function u32(n) {
  const bytes = [];
  for (; n > 127; n >>>= 7) bytes.push((n & 127) | 128);
  return { tag: /** @type {const} */ ('value'), val: Uint8Array.of(...bytes, n) };
}
