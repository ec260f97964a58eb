// JavaScript in sandboxes, as a driver sees it: functions, classes and snippets, and what becomes of their values and errors.
//
// Owns how they cross; what comes out of a sandbox is read as data, and nothing of it is ever executed. Must not: know how a node is
// talked to. That is the interface `Driver`, which the driver implements over its session with the interpreter (`javascript.wasm`)
// as a module that it has loaded: it submits a typed call and gives back its typed result, with values as jco maps WIT types. What the
// functions here give is described by `lib/remote.ts`.

import { DependencyError, TrapError, WasmrunError } from '../errors.js';

// For tests: a bundle has classes of its own.
export { DependencyError, TrapError };
import { NoValue, read, write, type Handle } from './data.js';
import { GUEST, GUEST_OF_SANDBOX, methods } from './names.js';
import { placing } from './places.js';
import type { Program } from './bundle.js';

/** What this module needs of a driver. `R` is its references to objects, and `A` those to actors. */
export interface Driver<R extends object, A extends object> {
  /** Calls an exported function of the interpreter, once the objects `after` are there: `call` or `run`. */
  call(name: string, args: unknown[], after: R[], options: object): R;
  /** Creates an actor of its class `instance`. */
  create(args: unknown[], options: object): A | Promise<A>;
  /** Calls the method `call` of such an actor. */
  invoke(actor: A, args: unknown[], options: object): R;
  /** Stores a value of a type of the interpreter's: bytes, or the record `data`. */
  store(type: 'list<u8>' | 'data', value: unknown): R | Promise<R>;
  /** The typed value of an object. Rejects with an error whose `payload` is the error case of the function, if it has failed with that. */
  get(ref: R, options: GetOptions): Promise<unknown>;
  /** An object of which a sandbox says that a function has made it, or that it is data. */
  typed(ref: R, type: 'returned' | 'data'): void;
  /** How a sandbox reads an object that is of another module: `s`, text; `n`, nothing; or it says so itself. */
  kind(ref: R): 's' | 'n' | '';
  isRef(value: object): value is R;
  isActor(value: object): value is A;
}

/** How an object is waited for. */
export interface GetOptions {
  signal?: AbortSignal | undefined;
  timeout?: number | undefined;
  /** Whether nobody else has it: then it is let go, and cancelled when the signal ends the wait. */
  isOurs?: boolean;
}

/** The record `data`. */
interface Data<R, A> {
  bytes: Uint8Array;
  objects: R[];
  actors: A[];
}

/** What was thrown in a sandbox and is no `Error`, as the `cause`. Of one, its like is thrown. */
export class JavaScriptError extends WasmrunError {
  /** The id of the task. */
  declare task?: string;
  static {
    this.prototype.name = 'JavaScriptError';
  }
}

/** Options, of which the driver has all but the signal. */
type Asked = { readonly signal?: AbortSignal };

const SNIPPET = { name: 'snippet' };

const OF_CALL = 'p';
const STORED = 'd';

// Programs that are longer are stored once, and not sent along with each call.
const MOST_ALONG = 2 << 10;

// What Node has and a sandbox has not, by names that nobody takes for their own.
const OF_NODE = ['Buffer', 'Intl', 'SharedArrayBuffer', 'WebAssembly', 'Worker', '__dirname', '__filename', 'clearImmediate', 'global', 'module', 'process', 'require', 'setImmediate'];

/** Text without what terminals act on. */
function plain(text: string): string {
  return text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (it) => `\\x${it.charCodeAt(0).toString(16)}`);
}

/** Functions, classes and snippets of JavaScript in the sandboxes of one session. */
export class Inside<R extends object, A extends object> {
  #driver: Driver<R, A>;
  #show: (name: string, text: string) => void;
  #made = new WeakMap<R, Made>();
  #actors = new WeakMap<object, { actor: A; methods: string }>();

  /** `show` is told what functions have printed. */
  constructor(driver: Driver<R, A>, show: (name: string, text: string) => void) {
    this.#driver = driver;
    this.#show = show;
  }

  /**
   * A function, or a class, by its own text. It takes nothing of what is around it along but the names of `wasmrun/guest`.
   */
  remote(given: any, options: object = {}): any {
    if (typeof given !== 'function') throw new TypeError(`remote() is for functions and classes; got ${typeof given}`);
    const source = Function.prototype.toString.call(given);
    try {
      // It is read, and not run.
      new Function(`"use strict"; return (${source}\n)`);
    } catch {
      throw new TypeError(`${given.name || 'it'} is no text of its own: give remote() a function or a class, not a method or what is built in`);
    }
    const name = given.name || 'remote';
    const text = `"use strict";const { ${GUEST.join(', ')} } = ${GUEST_OF_SANDBOX};const exported = {};\nexported[${JSON.stringify(name)}] = (${source}\n);return exported;\n//# sourceURL=${name}`;
    const program: Sent = { crossing: { tag: 'text', val: text }, code: source };
    return source.startsWith('class') ? this.#class(program, name, options, methods(given)) : this.#function(program, name, options);
  }

  /** What a bundled program exports. Which of it are classes, the caller says: `create` is for those. */
  async program(of: Program, options: object = {}): Promise<any> {
    const isShort = Buffer.byteLength(of.text) <= MOST_ALONG;
    const crossing = isShort ? { tag: 'text', val: of.text } : { tag: 'stored', val: await this.#driver.store('list<u8>', Buffer.from(of.text)) };
    const program: Sent = { crossing, of };
    const made = new Map<string, unknown>();
    const either = (name: string, asked: object): object => {
      const { create } = this.#class(program, name, asked, '');
      const more = (more: object): object => either(name, { ...asked, ...more });
      return Object.assign(this.#function(program, name, asked), { create, options: more });
    };
    return new Proxy(Object.create(null), {
      get: (_, name) => {
        if (typeof name !== 'string' || name === 'then') return undefined;
        if (!made.has(name)) made.set(name, either(name, options));
        return made.get(name);
      },
    });
  }

  /** Runs a snippet, the body of a function whose parameters are the properties of `inputs`: what it returns, and what it printed. */
  async run(
    code: string,
    { inputs = {}, signal, ...options }: { inputs?: Record<string, unknown>; signal?: AbortSignal } = {},
  ): Promise<{ value: unknown; printed: string }> {
    if (typeof code !== 'string') throw new TypeError(`a snippet is text; got ${typeof code}`);
    signal?.throwIfAborted();
    const asked = Object.keys(options).length === 0 ? SNIPPET : { ...SNIPPET, ...options };
    const ref = this.#driver.call('run', [code, this.#data({ ...inputs }, 'inputs')], [], asked);
    const got: any = await this.#got(ref, { signal, isOurs: true }, { kind: OF_CALL, code });
    return { value: this.#read(got.value), printed: String(got.printed) };
  }

  /** Stores a value of JavaScript's. */
  async put(value: unknown): Promise<R> {
    const ref = await this.#driver.store('data', this.#data(value, 'put() argument'));
    this.#made.set(ref, { kind: STORED });
    return ref;
  }

  /** The value of an object that one of these has made; `undefined` if none has. */
  value(ref: R, options: GetOptions = {}): Promise<unknown> | undefined {
    const made = this.#made.get(ref);
    return made && this.#value(ref, made, options);
  }

  /** Ends an actor: what the driver ends. */
  actor(handle: object): A | undefined {
    return this.#actors.get(handle)?.actor;
  }

  /** An actor of the interpreter's, which was found by its name. */
  found(actor: A): object {
    return this.#handle(actor, '');
  }

  #function(program: Sent, name: string, options: Asked): any {
    const { signal, ...others } = options;
    // One object for all calls: the driver sends those together.
    const asked = { name, ...others };
    const made: Made = { kind: OF_CALL, name, program };
    const ref = (...args: unknown[]): R => {
      const after = args.filter((it): it is R => typeof it === 'object' && it !== null && this.#driver.isRef(it));
      const data = this.#data(args, `${name}() argument `);
      const called = this.#driver.call('call', [program.crossing, name, data], after, asked);
      this.#made.set(called, made);
      return called;
    };
    const call = async (...args: unknown[]) => {
      signal?.throwIfAborted();
      return this.#value(ref(...args), made, { signal, isOurs: true });
    };
    return Object.assign(call, { ref, options: (more: object) => this.#function(program, name, { ...options, ...more }) });
  }

  #class(program: Sent, name: string, options: object, known: string): any {
    const create = async (...args: unknown[]) => {
      const data = this.#data(args, `${name}() argument `);
      return this.#handle(await this.#driver.create([program.crossing, name, data], options), known, program);
    };
    return { create, options: (more: object) => this.#class(program, name, { ...options, ...more }, known) };
  }

  #handle(actor: A, known: string, program?: Sent): object {
    const names = known ? known.split(',') : undefined;
    const handle = new Proxy(Object.create(null), {
      get: (_, name) => {
        if (typeof name !== 'string' || name === 'then' || name === 'toJSON') return undefined;
        if (names !== undefined && !names.includes(name)) throw new TypeError(`the actor has no method '${name}'; it has ${known}`);
        const made: Made = { kind: OF_CALL, name, program };
        const ref = (...args: unknown[]): R => {
          const called = this.#driver.invoke(actor, [name, this.#data(args, `${name}() argument `)], {});
          this.#made.set(called, made);
          return called;
        };
        return Object.assign(async (...args: unknown[]) => this.#value(ref(...args), made, { isOurs: true }), { ref });
      },
    });
    this.#actors.set(handle, { actor, methods: known });
    return handle;
  }

  /** A value as it crosses. */
  #data(value: unknown, what: string): Data<R, A> {
    const objects: R[] = [];
    const actors: A[] = [];
    const bytes = write(
      value,
      (it): Handle | undefined => {
        const actor = this.#actors.get(it);
        if (actor !== undefined) return { tag: 'H', at: actors.push(actor.actor) - 1, kind: actor.methods };
        if (this.#driver.isActor(it)) throw new TypeError("an actor of another module's class cannot be called from JavaScript in a sandbox");
        if (!this.#driver.isRef(it)) return undefined;
        return { tag: 'R', at: objects.push(it) - 1, kind: this.#made.get(it)?.kind ?? this.#driver.kind(it) };
      },
      what,
    );
    return { bytes, objects, actors };
  }

  /** What has crossed. */
  #read({ bytes, objects, actors }: Data<R, A>): unknown {
    try {
      return read(bytes, ({ tag, at, kind }) => {
        const found = tag === 'R' ? objects[at] : actors[at];
        if (found === undefined) throw new NoValue('it names a handle that it does not have');
        if (tag === 'H') return this.#handle(found as A, kind);
        if (kind === OF_CALL || kind === STORED) {
          this.#made.set(found as R, { kind });
          this.#driver.typed(found as R, kind === OF_CALL ? 'returned' : 'data');
        }
        return found;
      });
    } catch (error) {
      throw new JavaScriptError(`what came out of the sandbox is no value: ${(error as Error).message}`);
    }
  }

  async #value(ref: R, made: Made, options: GetOptions): Promise<any> {
    const got: any = await this.#got(ref, options, made);
    if (made.kind === STORED) return this.#read(got);
    if (got.printed) this.#show(made.name ?? '', plain(got.printed));
    return this.#read(got.value);
  }

  async #got(ref: R, options: GetOptions, made: Made): Promise<unknown> {
    try {
      return await this.#driver.get(ref, options);
    } catch (error: any) {
      if (typeof error?.payload?.stack === 'string') throw this.#thrown(error.payload, error, made);
      if (error instanceof TrapError && /\bimport\s*\(/.test(made.code ?? made.program?.code ?? '')) {
        error.message += '; its import() may be why: what a sandbox imports is bundled, with node.program(file)';
      }
      // What it depends on has thrown.
      for (let of = error; of instanceof DependencyError; of = of.cause as any) {
        const cause: any = of.cause;
        if (typeof cause?.payload?.stack === 'string') of.cause = this.#thrown(cause.payload, cause, { kind: OF_CALL });
      }
      throw error;
    }
  }

  /** What a program has thrown, as an error of here. */
  #thrown(told: any, error: any, { name, program }: Made): Error {
    let details: any;
    try {
      details = this.#read(told.details);
    } catch {
      // Its class and what it says are there.
    }
    if (typeof details !== 'object' || details === null) details = {};
    if (details.printed && name) this.#show(name, plain(String(details.printed)));
    const thrown = details.error;
    const made: any = thrown instanceof Error ? thrown : new JavaScriptError(plain(`${told.class}: ${told.message}`), { cause: thrown });
    if (told.class === 'ReferenceError') {
      const missing = /^(\w+) is not defined$/.exec(made.message)?.[1];
      if (missing !== undefined && OF_NODE.includes(missing)) made.message += ': a sandbox has none';
      else if (program?.code !== undefined) {
        made.message += ': remote() takes nothing along of what is around a function; pass it as an argument, or bundle the file with program()';
      }
    }
    const lines = plain(told.stack).trimEnd().split('\n');
    const stack = lines.map((line) => `\n    at ${program === undefined ? line : place(program, line)} (in the sandbox)`).join('');
    Object.defineProperty(made, 'stack', { value: `${made.name}: ${made.message}${stack}`, writable: true, configurable: true });
    if (error.task !== undefined) Object.defineProperty(made, 'task', { value: error.task, configurable: true });
    return made;
  }
}

/** What the value of a reference is, as `python/inside/wasmrun/_host.py` calls it, and what of here has made it. */
interface Made {
  readonly kind: string;
  readonly name?: string;
  readonly program?: Sent | undefined;
  /** Of a snippet. */
  readonly code?: string;
}

/** A program as the variant `program`, and as it was bundled, if it was. */
interface Sent {
  readonly crossing: unknown;
  /** Of a function or class of `remote()`. */
  readonly code?: string;
  readonly of?: Program;
  place?: (line: string) => string;
}

/** A line of a stack with its place in the sources. */
function place(program: Sent, line: string): string {
  if (program.of === undefined) return line;
  program.place ??= placing(program.of.map);
  return program.place(line);
}
