// JavaScript in sandboxes, as a driver sees it: functions, classes and snippets, and what becomes of their values and errors.
//
// Owns how they cross; what comes out of a sandbox is read as data, and nothing of it is ever executed. Must not: know how a node is
// talked to. That is the interface `Driver`, which the driver implements over its session with the interpreter (`javascript.wasm`)
// as a module that it has loaded: it submits a typed call and gives back its typed result, with values as jco maps WIT types.

import { SourceMap } from 'node:module';

import { NoValue, read, write, type Handle } from './data.js';
import { GUEST, GUEST_OF_SANDBOX } from './names.js';
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
  /** The typed value of an object. Rejects with an error whose `value` is the error case of the function, if it has failed with that. */
  get(ref: R, options: { signal?: AbortSignal }): Promise<unknown>;
  isRef(value: object): value is R;
  isActor(value: object): value is A;
}

/** The record `data`. */
interface Data<R, A> {
  bytes: Uint8Array;
  objects: R[];
  actors: A[];
}

/** A function in sandboxes. */
export interface Remote<P extends unknown[], T, R> {
  (...args: P): Promise<Awaited<T>>;
  /** Starts it: the object that it will make, for `value` and for arguments. */
  ref(...args: P): R;
  options(options: object): Remote<P, T, R>;
}

type Methods<T, R> = {
  [K in keyof T as T[K] extends (...args: any) => any ? K : never]: T[K] extends (...args: infer P) => infer V ? Omit<Remote<P, V, R>, 'options'> & ((...args: P) => Promise<Awaited<V>>) : never;
};

/** A class whose instances are actors. */
export interface RemoteClass<P extends unknown[], T, R> {
  create(...args: P): Promise<Methods<T, R>>;
  options(options: object): RemoteClass<P, T, R>;
}

/** What a program exports. */
export type Exports<M, R> = {
  [K in keyof M]: M[K] extends new (...args: infer P) => infer T ? RemoteClass<P, T, R> : M[K] extends (...args: infer P) => infer T ? Remote<P, T, R> : never;
};

/** What was thrown in a sandbox and is no `Error`. Of one, `get` throws its like. */
export class SandboxError extends Error {
  override name = 'SandboxError';
}

const OF_CALL = 'p';
const STORED = 'd';

// Programs that are longer are stored once, and not sent along with each call.
const MOST_ALONG = 2 << 10;

/** Text without what terminals act on. */
function plain(text: string): string {
  return text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (it) => `\\x${it.charCodeAt(0).toString(16)}`);
}

/** Functions, classes and snippets of JavaScript in the sandboxes of one session. */
export class Inside<R extends object, A extends object> {
  #driver: Driver<R, A>;
  #show: (name: string, text: string) => void;
  // What the values of references are: see `python/inside/wasmrun/_host.py`.
  #kinds = new WeakMap<R, string>();
  #actors = new WeakMap<object, { actor: A; methods: string }>();

  /** `show` is told what functions have printed. */
  constructor(driver: Driver<R, A>, show: (name: string, text: string) => void) {
    this.#driver = driver;
    this.#show = show;
  }

  /**
   * A function, or a class, by its own text. It takes nothing of what is around it along but the names of `wasmrun/guest`.
   */
  remote<P extends unknown[], T>(given: new (...args: P) => T, options?: object): RemoteClass<P, T, R>;
  remote<P extends unknown[], T>(given: (...args: P) => T, options?: object): Remote<P, T, R>;
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
    const program: Sent = { crossing: { tag: 'text', val: text } };
    return source.startsWith('class') ? this.#class(program, name, options, methods(given)) : this.#function(program, name, options);
  }

  /** What a bundled program exports. Which of it are classes, the caller says: `create` is for those. */
  async program<M>(of: Program, options: object = {}): Promise<Exports<M, R>> {
    const isShort = Buffer.byteLength(of.text) <= MOST_ALONG;
    const crossing = isShort ? { tag: 'text', val: of.text } : { tag: 'stored', val: await this.#driver.store('list<u8>', Buffer.from(of.text)) };
    const program: Sent = { crossing, of };
    const made = new Map<string, unknown>();
    return new Proxy(Object.create(null), {
      get: (_, name) => {
        if (typeof name !== 'string' || name === 'then') return undefined;
        if (!made.has(name)) {
          const { create } = this.#class(program, name, options, '');
          made.set(name, Object.assign(this.#function(program, name, options), { create }));
        }
        return made.get(name);
      },
    }) as Exports<M, R>;
  }

  /** Runs a snippet, the body of a function whose parameters are the properties of `inputs`: what it returns, and what it printed. */
  async run(code: string, { inputs = {}, signal, ...options }: { inputs?: Record<string, unknown>; signal?: AbortSignal } = {}): Promise<{ value: unknown; printed: string }> {
    if (typeof code !== 'string') throw new TypeError(`a snippet is text; got ${typeof code}`);
    const ref = this.#driver.call('run', [code, this.#data({ ...inputs }, 'inputs')], [], { name: 'snippet', ...options });
    const got: any = await this.#got(ref, signal === undefined ? {} : { signal });
    return { value: this.#read(got.value), printed: String(got.printed) };
  }

  /** Stores a value of JavaScript's. */
  async put(value: unknown): Promise<R> {
    const ref = await this.#driver.store('data', this.#data(value, 'put() argument'));
    this.#kinds.set(ref, STORED);
    return ref;
  }

  /** The value of an object that one of these has made; `undefined` if none has. */
  value(ref: R, options: { signal?: AbortSignal } = {}): Promise<unknown> | undefined {
    const kind = this.#kinds.get(ref);
    if (kind === undefined) return undefined;
    return this.#value(ref, kind, '', undefined, options);
  }

  /** Ends an actor: what the driver ends. */
  actor(handle: object): A | undefined {
    return this.#actors.get(handle)?.actor;
  }

  #function(program: Sent, name: string, options: object): any {
    const ref = (...args: unknown[]): R => {
      const after = args.filter((it): it is R => typeof it === 'object' && it !== null && this.#driver.isRef(it));
      const data = this.#data(args, `${name}() argument `);
      const made = this.#driver.call('call', [program.crossing, name, data], after, { name, ...options });
      this.#kinds.set(made, OF_CALL);
      return made;
    };
    const call = (...args: unknown[]) => this.#value(ref(...args), OF_CALL, name, program);
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
    const made = new Proxy(Object.create(null), {
      get: (_, name) => {
        if (typeof name !== 'string' || name === 'then' || name === 'toJSON') return undefined;
        if (names !== undefined && !names.includes(name)) throw new TypeError(`the actor has no method '${name}'; it has ${known}`);
        const ref = (...args: unknown[]): R => {
          const called = this.#driver.invoke(actor, [name, this.#data(args, `${name}() argument `)], {});
          this.#kinds.set(called, OF_CALL);
          return called;
        };
        return Object.assign((...args: unknown[]) => this.#value(ref(...args), OF_CALL, name, program), { ref });
      },
    });
    this.#actors.set(made, { actor, methods: known });
    return made;
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
        return { tag: 'R', at: objects.push(it) - 1, kind: this.#kinds.get(it) ?? '' };
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
        if (kind === OF_CALL || kind === STORED) this.#kinds.set(found as R, kind);
        return found;
      });
    } catch (error) {
      throw new SandboxError(`what came out of the sandbox is no value: ${(error as Error).message}`);
    }
  }

  async #value(ref: R, kind: string, name: string, program?: Sent, options: { signal?: AbortSignal } = {}): Promise<any> {
    const got: any = await this.#got(ref, options, name, program);
    if (kind === STORED) return this.#read(got);
    if (got.printed) this.#show(name, plain(got.printed));
    return this.#read(got.value);
  }

  async #got(ref: R, options: { signal?: AbortSignal }, name = '', program?: Sent): Promise<unknown> {
    try {
      return await this.#driver.get(ref, options);
    } catch (error: any) {
      const told = error?.value;
      if (typeof told?.stack !== 'string') throw error;
      throw this.#thrown(told, error, name, program);
    }
  }

  /** What a program has thrown, as an error of here. */
  #thrown(told: any, error: any, name: string, program?: Sent): Error {
    let details: any;
    try {
      details = this.#read(told.details);
    } catch {
      // Its class and what it says are there.
    }
    if (typeof details !== 'object' || details === null) details = {};
    if (details.printed && name) this.#show(name, plain(String(details.printed)));
    const thrown = details.error;
    const made: any = thrown instanceof Error ? thrown : new SandboxError(plain(`${told.class}: ${told.message}`), { cause: thrown });
    if (told.class === 'ReferenceError' && program !== undefined && program.of === undefined) {
      made.message += ': remote() takes nothing along of what is around a function; pass it as an argument, or bundle the file with program()';
    }
    const lines = plain(told.stack).trimEnd().split('\n');
    const stack = lines.map((line) => `\n    at ${program === undefined ? line : place(program, line)} (in the sandbox)`).join('');
    Object.defineProperty(made, 'stack', { value: `${made.name}: ${made.message}${stack}`, writable: true, configurable: true });
    if (error.task !== undefined) Object.defineProperty(made, 'task', { value: error.task, configurable: true });
    return made;
  }
}

/** A program as the variant `program`, and as it was bundled, if it was. */
interface Sent {
  readonly crossing: unknown;
  readonly of?: Program;
  map?: SourceMap;
}

/** A line of a stack with its place in the sources. */
function place(program: Sent, line: string): string {
  const [, name, row, column] = /^(.*)@.*:(\d+):(\d+)$/.exec(line) ?? [];
  if (program.of === undefined || row === undefined) return line;
  program.map ??= new SourceMap(JSON.parse(program.of.map));
  // Rows and columns of maps begin with 0, and the first row of the text is ours.
  const found: any = program.map.findEntry(Number(row) - 2, Number(column) - 1);
  if (found.originalSource === undefined) return line;
  return `${name || '<anonymous>'}@${found.originalSource}:${found.originalLine + 1}:${found.originalColumn + 1}`;
}

/** The names of a class's methods, for the error of a call of another. */
function methods(of: Function): string {
  const found = new Set<string>();
  for (let it = of.prototype; it && it !== Object.prototype; it = Object.getPrototypeOf(it)) {
    for (const name of Object.getOwnPropertyNames(it)) {
      const isMethod = typeof Object.getOwnPropertyDescriptor(it, name)?.value === 'function';
      if (isMethod && name !== 'constructor' && !name.startsWith('_')) found.add(name);
    }
  }
  return [...found].join(',');
}
