// The interpreter's exports: calls of programs, snippets, actors.
//
// Owns the fast lane, through which all of them come. Values are decoded here, and not element by element on their way in.

import { getArguments, getEnvironment } from 'wasi:cli/environment@0.2.0';

import './web';
import './fetch';
import { watched } from './loop';
import { line, taken } from './console';
import * as guest from './guest';
import { crossing, get, joined, number, ObjectRef, Postcard, text } from './host';
import { release } from '../lib/inside/text';
import { placed } from './places';
import { evaluated, find, has, load, loadText } from './program';

// How much of each part of an error is told, in characters: errors go along with other messages, as text.
const MOST_OF_ERROR = 6 << 10;

type Answer = Uint8Array | Promise<Uint8Array>;

// What bundles find it by.
Object.defineProperty(globalThis, Symbol.for('wasmrun/guest'), { value: Object.freeze({ ...guest }) });

// Of a build, and no time of this sandbox's.
let began: number | undefined;
Object.defineProperty(performance, 'now', { value: () => Date.now() - (began ??= Date.now()) });
Object.defineProperty(performance, 'timeOrigin', { get: () => (began ??= Date.now()) });

/** A stack without our own frames. */
function stackOf(error: any): string {
  try {
    const lines = String(error.stack).split('\n');
    return lines.filter((it) => it && !/@(source|initializer)\.js:\d+:\d+$/.test(it)).join('\n');
  } catch {
    return '';
  }
}

function end(given: string): string {
  return given.slice(-MOST_OF_ERROR);
}

function raised(error: any): Uint8Array {
  let name = 'Error';
  let message: string;
  try {
    const isError = error instanceof Error;
    name = isError ? String(error.name) : typeof error;
    message = isError ? String(error.message) : line([error]);
    // What the engine throws.
    if (error === 'out of memory') [name, message] = ['InternalError', 'out of memory: to allow more, give the option memory'];
  } catch {
    message = 'an error that cannot be told';
  }
  const printed = taken();
  const parts = [new Uint8Array([1]), text(end(name)), text(end(message)), text(end(stackOf(error)))];
  try {
    const details = crossing({ printed, error }, 'error');
    if (details.length <= 4 * MOST_OF_ERROR) return joined([...parts, details]);
  } catch {
    // Its class and what it says are there in any case.
  }
  return joined([...parts, crossing({ printed: end(printed) }, 'error')]);
}

function returned(value: unknown): Uint8Array {
  try {
    return joined([[0], crossing(value, 'result'), text(taken())]);
  } catch (error) {
    return raised(error);
  }
}

// Made before a program can have changed what it is made with.
const BROKEN = joined([
  [1],
  text('Error'),
  text('the program has changed prototypes that the interpreter needs: its result cannot be told'),
  text(''),
  crossing({}, ''),
]);

function last(error: unknown): Uint8Array {
  try {
    return raised(error);
  } catch {
    return BROKEN;
  }
}

/** What comes of this, at once if it can be. */
function answer(make: () => unknown): Answer {
  try {
    const made: any = make();
    return typeof made?.then === 'function' ? watched(made).then(returned).catch(last) : returned(made);
  } catch (error) {
    return last(error);
  }
}

/** Does this after the other, which may be a promise. */
function after(first: unknown, then: () => unknown): unknown {
  return first === undefined ? then() : Promise.resolve(first).then(then);
}

/** Arguments, where objects stand for their values. */
function resolved(given: Uint8Array): unknown[] {
  const args = new Postcard(given).data() as unknown[];
  release(given);
  for (let at = 0; at < args.length; at++) {
    const ref = args[at];
    if (!ObjectRef.is(ref)) continue;
    args[at] = get(ref);
    ref[Symbol.dispose]();
  }
  return args;
}

function call(given: Uint8Array[]): Answer {
  return answer(() =>
    after(load(given[0]!), () => {
      const found = find(new Postcard(given[1]!).text());
      if (typeof found !== 'function') throw new TypeError('what is called is no function');
      return found.apply(undefined, resolved(given[2]!));
    }),
  );
}

function run(given: Uint8Array[]): Answer {
  return answer(() => {
    const body = new Postcard(given[0]!).text();
    const inputs = new Postcard(given[1]!).data() as Record<string, unknown>;
    const names = Object.keys(inputs);
    const values: unknown[] = [];
    for (let at = 0; at < names.length; at++) {
      if (!/^[\w$\u0080-\uffff]+$/.test(names[at]!)) throw new TypeError(`no variable can be called '${names[at]}'`);
      values.push(inputs[names[at]!]);
    }
    return evaluated(`${body}\n//# sourceURL=snippet`, names).apply(undefined, values);
  });
}

class Instance {
  private object: any;
  private failed: Uint8Array | undefined;
  private program: Uint8Array | undefined;
  private name = '';

  /** Makes it; a promise if that takes time. What goes wrong, its calls fail with. */
  make(program: Uint8Array, name: string, by: (found: any) => unknown): unknown {
    this.program = program;
    this.name = name;
    try {
      const made = after(load(program), () => {
        const found = find(name);
        if (typeof found?.prototype?.checkpoint === 'function' && typeof found.restore !== 'function') {
          throw new TypeError(`${name} has the method checkpoint, and so needs a static method restore, which makes an instance of what that returns`);
        }
        const object: any = by(found);
        if (object instanceof Promise) return watched(object).then((it) => void (this.object = it));
        this.object = object;
      });
      return made === undefined ? undefined : Promise.resolve(made).catch((error) => void (this.failed = last(error)));
    } catch (error) {
      this.failed = last(error);
    }
  }

  /** What `restored` makes another of, if its class can give that. */
  checkpoint(): Uint8Array | undefined | Promise<Uint8Array> {
    if (this.failed !== undefined || typeof this.object.checkpoint !== 'function') return undefined;
    const state: any = this.object.checkpoint();
    return state instanceof Promise ? watched(state).then((it) => this.kept(it)) : this.kept(state);
  }

  private kept(state: unknown): Uint8Array {
    const names: Uint8Array[] = [];
    const bytes = crossing(state, 'checkpoint() result', names);
    if (names.length) throw new TypeError('checkpoint() result: objects and actors end with the instance that has them, and cannot be in it');
    return joined([number(this.program!.length), this.program!, text(this.name), bytes]);
  }

  invoke(given: Uint8Array[]): Answer {
    if (this.failed !== undefined) return this.failed;
    return answer(() => {
      const name = new Postcard(given[0]!).text();
      const found = this.object[name];
      if (typeof found !== 'function' || name.startsWith('_') || name in Object.prototype) {
        throw new TypeError(`the actor has no method '${name}'`);
      }
      return found.apply(this.object, resolved(given[1]!));
    });
  }
}

const instances: Instance[] = [];

/** The number of a new one. */
function instance(program: Uint8Array, name: string, by: (found: any) => unknown): number | Promise<number> {
  const made = new Instance();
  const at = instances.push(made) - 1;
  const coming = made.make(program, name, by);
  return coming === undefined ? at : Promise.resolve(coming).then(() => at);
}

const notByTypes = (): never => {
  throw new Error('calls come by the fast lane');
};

export const calls = {
  call(name: string, args: Uint8Array[]): Answer {
    return name.endsWith('#run') ? run(args) : call(args);
  },
  create(_: string, args: Uint8Array[]): number | Promise<number> {
    return instance(args[0]!, new Postcard(args[1]!).text(), (found) => new found(...resolved(args[2]!)));
  },
  invoke(at: number, _: string, args: Uint8Array[]): Answer {
    return instances[at]!.invoke(args);
  },
  checkpoint(at: number): Uint8Array | undefined | Promise<Uint8Array> {
    return instances[at]!.checkpoint();
  },
  restore(_: string, state: Uint8Array): number | Promise<number> {
    const given = new Postcard(state);
    return instance(given.take(given.number()), given.text(), (found) => found.restore(given.data()));
  },
};

export const interpreter = {
  call: notByTypes,
  run: notByTypes,
  Instance: class {
    constructor() {
      notByTypes();
    }
    call(): void {}
    checkpoint(): void {}
    static restore = notByTypes;
  },
};

/** The program: a module's text, whose default export is called with the arguments. */
async function main(): Promise<void> {
  const script = getEnvironment().find(([name]) => name === 'WASMRUN_SCRIPT')?.[1];
  if (script === undefined) {
    throw new Error('there is nothing to run: `npx wasmrun submit app.ts` bundles a module and runs it');
  }
  await loadText(script);
  if (has('default')) {
    const found = find('default');
    if (typeof found === 'function') await found(...getArguments().slice(2));
  }
}

export { programRun as run };
const programRun = {
  async run(): Promise<void> {
    try {
      await watched(main());
    } catch (error) {
      const told = error instanceof Error ? `${error.name}: ${error.message}\n${placed(stackOf(error))}` : line([error]);
      console.error(told.trimEnd());
      // What is no error is the error case.
      throw undefined;
    }
  },
};
