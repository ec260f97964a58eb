/** What every driver and every guest does: the tables of `tests/conformance`, as JavaScript has them. */

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import * as wasmrun from 'wasmrun';

import { fixture, graph, guest, node } from './session.mjs';

const folder = process.env.WASMRUN_CONFORMANCE ?? 'tests/conformance';
const [table, rows] = ['drivers', 'guests'].map((name) => JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8')));
const program = await node.program(fileURLToPath(new URL('programs/conformance-guest.ts', import.meta.url)));
const guests = { fixture, graph, sdk: await node.load(guest('sdk')) };
const numbers = {
  u8: Uint8Array, s8: Int8Array, u16: Uint16Array, s16: Int16Array, u32: Uint32Array, s32: Int32Array,
  u64: BigUint64Array, s64: BigInt64Array, f32: Float32Array, f64: Float64Array,
};
const classes = {
  trap: 'TrapError', 'guest-error': 'GuestError', exit: 'ExitError', limit: 'LimitError', cancelled: 'TaskCancelledError',
  arguments: 'ArgumentsError', dependency: 'DependencyError', 'actor-died': 'ActorDiedError',
  unschedulable: 'UnschedulableError', sandbox: 'SandboxError', 'object-lost': 'ObjectLostError', refused: 'RefusedError',
  timeout: 'GetTimeoutError', connection: 'ConnectionLostError', 'not-running': 'NodeNotRunningError',
  // What is thrown before anything is sent.
  misfit: 'TypeError', name: 'TypeError',
};

const camel = (name) => name.replace(/-(.)/g, (_, letter) => letter.toUpperCase());
const pascal = (name) => camel(`-${name}`);

/** A list of types, each its head and what is in its brackets. */
function types(text) {
  const tokens = text.match(/[\w-]+|[<>,]/g) ?? [];
  const some = () => {
    const found = [];
    while (tokens.length > 0 && tokens[0] !== '>') {
      const head = tokens.shift();
      let parts = [];
      if (tokens[0] === '<') {
        tokens.shift();
        parts = some();
        tokens.shift();
      }
      found.push([head, parts]);
      if (tokens[0] === ',') tokens.shift();
    }
    return found;
  };
  return some();
}

/** The types of the parameters, and that of the result. */
function signature(path) {
  const [params, result = ''] = (table.functions[path] ?? '').split('->');
  return [types(params), types(result)[0]];
}

/** Objects and actors by their names, and of what types the objects are. */
class Stage {
  named = new Map();
  types = new Map();

  /** A value of a type, from JSON. */
  value([head, parts], it) {
    if (it !== null && typeof it === 'object' && Object.keys(it).join() === 'ref') return this.named.get(it.ref);
    const given = table.types[head];
    if (given !== undefined) return this.#ofNamed(given, it);
    switch (head) {
      case 'u64':
      case 's64':
        return BigInt(it);
      case 'f32':
      case 'f64':
        return typeof it === 'number' ? it : Number(it.replace('inf', 'Infinity'));
      case 'list': {
        const values = it.map((each) => this.value(parts[0], each));
        return numbers[parts[0][0]]?.from(values) ?? values;
      }
      case 'tuple':
        return it.map((each, at) => this.value(parts[at], each));
      case 'option':
        if (parts[0][0] !== 'option') return it === null ? undefined : this.value(parts[0], it);
        return it === null ? { tag: 'none' } : { tag: 'some', val: this.value(parts[0], it.some) };
      case 'result': {
        const [[tag, payload]] = Object.entries(it);
        return { tag, val: this.value(parts[tag === 'ok' ? 0 : 1], payload) };
      }
      default:
        return it;
    }
  }

  #ofNamed(given, it) {
    const [[kind, members]] = Object.entries(given);
    if (kind === 'enum') return it;
    if (kind === 'flags') return Object.fromEntries(members.map((name) => [camel(name), it.includes(name)]));
    if (kind === 'variant') {
      if (typeof it === 'string') return { tag: it };
      const [[tag, payload]] = Object.entries(it);
      return { tag, val: this.value(types(members[tag])[0], payload) };
    }
    const fields = Object.entries(members);
    return Object.fromEntries(fields.map(([name, of]) => [camel(name), this.value(types(of)[0], it[name])]));
  }

  keep({ as }, it, type) {
    this.named.set(as, it);
    this.types.set(as, type);
  }

  async #call(step) {
    const path = step.call;
    const callee = step.on === undefined ? find(path) : this.named.get(step.on)[camel(path.split('.')[1])];
    const asked = step.options === undefined ? callee : callee.options(options(step));
    const [given, type] = [this.#arguments(step, path), signature(path)[1]];
    if (step.as !== undefined) return this.keep(step, asked.ref(...given), type);
    return [await asked(...given), type];
  }

  #arguments(step, path) {
    const given = step.args ?? [];
    // What does not fit goes as it is.
    if (step.fails?.kind === 'misfit') return given;
    const [params] = signature(path);
    return given.map((it, at) => this.value(params[at], it));
  }

  async #get(step) {
    const limit = { timeout: step['timeout-ms'] };
    if (Array.isArray(step.get)) {
      const got = await node.get(step.get.map((it) => this.named.get(it)), limit);
      return [got, step.get.map((it) => this.types.get(it))];
    }
    const got = await this.named.get(step.get).get(limit);
    if (step.as === undefined) return [got, this.types.get(step.get)];
    return this.keep(step, got, step.of && signature(step.of)[1]);
  }

  /** What a step gives, and of which type that is, if it is not kept. */
  async perform(step) {
    const of = (names) => names.map((it) => this.named.get(it));
    if (step.call !== undefined) return this.#call(step);
    if (step.get !== undefined) return this.#get(step);
    if (step.put !== undefined) {
      const type = signature(step.for)[0][0];
      this.keep(step, await node.put(this.value(type, step.put)), type);
    } else if (step.create !== undefined) {
      const cls = find(step.create, pascal).options(options(step));
      this.keep(step, await cls.create(...this.#arguments(step, step.create)));
    } else if (step.find !== undefined) {
      this.keep(step, await node.getActor(step.find));
    } else if (step.kill !== undefined) {
      await node.kill(this.named.get(step.kill));
    } else if (step.cancel !== undefined) {
      await node.cancel(this.named.get(step.cancel));
    } else if (step.wait !== undefined) {
      const limit = { count: step.count, timeout: step['timeout-ms'] };
      const [ready, waiting] = await node.wait(of(step.wait), limit);
      assert.deepEqual(ready, of(step.ready));
      assert.equal(waiting.length, step.wait.length - ready.length);
    } else if (step.completed !== undefined) {
      const { value } = await node.completed(of(step.completed)).next();
      assert.equal(value, this.named.get(step.first));
    } else {
      assert.fail(`there is no step ${JSON.stringify(step)}`);
    }
  }

  /** Of a result that a function returns it is the ok case. */
  #expected(type, it) {
    const of = type?.[0] === 'result' ? type[1][0] : type;
    return of === undefined || of[0] === '_' ? undefined : this.value(of, it);
  }

  async step(step) {
    if (step.fails !== undefined) {
      await assert.rejects(this.perform(step), (error) => check(error, step.fails));
      return;
    }
    const made = await this.perform(step);
    if (!('is' in step)) return;
    const [got, type] = made;
    const isMany = Array.isArray(step.get);
    assert.deepEqual(got, isMany ? step.is.map((it, at) => this.#expected(type[at], it)) : this.#expected(type, step.is));
  }
}

/** What a module has by a name. */
function find(path, spell = camel) {
  const [module, name] = path.split('.');
  const interfaces = name.split('#');
  const plain = interfaces.pop();
  const found = interfaces.reduce((of, it) => of[camel(it)], guests[module])[spell(plain)];
  if (found === undefined) throw new TypeError(`there is no ${path}`);
  return found;
}

function options({ options: given = {} }) {
  const { 'time-limit-ms': timeLimit, ...others } = given;
  const asked = Object.entries(others).map(([name, it]) => [camel(name), it]);
  return Object.fromEntries(timeLimit === undefined ? asked : [...asked, ['timeLimit', timeLimit]]);
}

function check(error, { kind, value, argument, cause }) {
  assert.equal(error.name, classes[kind], error);
  if (value !== undefined) assert.equal(error.payload, value);
  if (argument !== undefined) assert.equal(error.argument, argument);
  if (cause !== undefined) assert.equal(error.cause.name, classes[cause]);
  return true;
}

for (const [path, [type, ...values]] of Object.entries(table.values)) {
  test(`${path} gives what it is given`, async () => {
    for (const it of values) {
      const given = new Stage().value(types(type)[0], it);
      assert.deepEqual(await find(path)(given), given);
    }
  });
}

for (const [path, values] of Object.entries(table.misfits)) {
  test(`${path} does not take what does not fit`, async () => {
    for (const it of values) await assert.rejects(find(path)(it), TypeError, JSON.stringify(it));
  });
}

for (const [name, steps] of Object.entries(table.cases)) {
  test(name, async () => {
    const stage = new Stage();
    for (const step of steps) await stage.step(step);
  });
}

for (const [name, { calls }] of Object.entries(rows)) {
  test(`a guest: ${name}`, async () => {
    for (const { args, is, fails } of calls) {
      const called = program[camel(name)](...args);
      if (fails === undefined) assert.deepEqual(await called, is);
      // What a guest of JavaScript throws is no `GuestError`, but thrown here as it was.
      else await assert.rejects(called, { name: 'Error', message: args[0] });
    }
  });
}

test('each kind of failure has a class', async () => {
  // The part that makes them is the package's own.
  const { made } = await import(new URL('errors.js', import.meta.resolve('wasmrun')));
  for (const kind of table.kinds) {
    assert.equal(made({ kind, message: 'why' }).name, classes[kind]);
    assert(classes[kind] in wasmrun);
  }
});
