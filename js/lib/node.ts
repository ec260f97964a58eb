/** A session with a node, and what can be asked of it. */

import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';

import { HANDLE, type Rows, codecOf } from './codec.js';
import { GetTimeoutError, NodeNotRunningError } from './errors.js';
import { type ActorOptions, type CallOptions, put } from './functions.js';
import { Actor, type ActorDescription, type Held, Ref, actor, kill, named } from './handles.js';
import { Inside } from './inside/inside.js';
import { Interpreter } from './interpreter.js';
import { Link, type WaitOptions } from './link.js';
import { shown } from './misfit.js';
import { type Module, type ModuleDescription, moduleOf } from './module.js';
import { kindOf } from './numbers.js';
import { OwnNode } from './own.js';
import { WAIT } from './packet.js';
import type { Exports, Remote, RemoteClass, RunOptions } from './remote.js';

/** With whom to begin a session. */
export interface ConnectOptions {
  /** `unix:PATH` or `HOST:PORT`; else as `WASMRUN_ADDRESS` says, else the node of this machine, else one of its own. */
  address?: string;
  /** Who pays for what is submitted. */
  tenant?: string;
  /** The folder of `wasmrun login`, which has the certificate for a node on the network. */
  identity?: string;
  /** Of a node of its own, as of `wasmrun node start`. */
  nodeOptions?: readonly string[];
  /** Whether what functions of JavaScript print is printed here when their values come; true if not given. */
  showsOutput?: boolean;
}

/** A node of the cluster, as in the state API. */
export interface Member {
  name: string;
  id: string;
  state: string;
  address: string | null;
  /** What it has, and what of that no task holds: decimals as text. */
  total: Record<string, string>;
  available: Record<string, string>;
  [field: string]: unknown;
}

/** What the interpreter's classes are called. */
const INTERPRETER = 'wasmrun:javascript/';

/** Prints what a function has printed. */
function show(name: string, text: string): void {
  const lines = text.endsWith('\n') ? text.slice(0, -1) : text;
  process.stdout.write(`${name === '' ? lines : lines.replace(/^/gm, `(${name}) `)}\n`);
}

/** What makes one; nobody else has it. */
const own = Symbol('wasmrun.own');

/** A session with a node. It ends with `close`, with the block of `await using`, or with the process. */
export class Node {
  readonly #link: Link;
  readonly #own: OwnNode | undefined;
  readonly #interpreter: Interpreter;
  readonly #inside: Inside<Ref, Actor>;
  /** What the node is called. */
  readonly name: string;

  /** @internal */
  constructor(key: symbol, link: Link, name: string, node: OwnNode | undefined, showsOutput: boolean) {
    if (key !== own) throw new TypeError('a session begins with connect()');
    this.#link = link;
    this.name = name;
    this.#own = node;
    this.#interpreter = new Interpreter(link);
    this.#inside = new Inside(this.#interpreter, showsOutput ? show : () => {});
    link.inside = this.#inside;
  }

  /** Whether the node is there. */
  get isConnected(): boolean {
    return !this.#link.isClosed && this.#link.native.isConnected();
  }

  /** Where the node that was started for this session is; undefined if it is another. */
  get address(): string | undefined {
    return this.#own?.address;
  }

  /**
   * Loads a module, from a file or as bytes. Its functions and classes are properties; `wasmrun stubs MODULE --lang ts` writes what
   * TypeScript is to know of them: `node.load<orders.Module>('orders.wasm')`.
   */
  async load<M extends object = Module>(module: string | URL | Uint8Array): Promise<M> {
    const bytes = module instanceof Uint8Array ? module : await readFile(module);
    const described = await this.#link.ask('load', (id) => this.#link.native.load(id, bytes));
    return moduleOf(this.#link, described as ModuleDescription) as M;
  }

  /**
   * A function whose calls run in sandboxes, or a class whose instances are actors there. It goes as its own text, with nothing of
   * what is around it but the names of `wasmrun/guest`.
   */
  remote<P extends unknown[], T>(given: new (...args: P) => T, options?: ActorOptions): RemoteClass<P, T>;
  remote<P extends unknown[], T>(given: (...args: P) => T, options?: CallOptions): Remote<P, T>;
  remote(given: unknown, options?: object): unknown {
    const made = this.#inside.remote(given, options);
    // It is needed soon. A call says what goes wrong.
    this.#interpreter.load().catch(() => {});
    return made;
  }

  /**
   * What a file of JavaScript or TypeScript exports, to be called in sandboxes, with what it imports:
   * `node.program<typeof import('./app.js')>('app.ts')`.
   *
   * @throws {BundleError} It imports what a sandbox does not have, or is wrong.
   */
  program(file: string | URL, options?: CallOptions): Promise<Module>;
  program<M extends object>(file: string | URL, options?: CallOptions): Promise<Exports<M>>;
  async program(file: string | URL, options?: CallOptions): Promise<unknown> {
    // Most programs have no use for what bundles.
    const { bundle } = await import('./inside/bundle.js');
    const bundled = await bundle(file instanceof URL ? fileURLToPath(file) : file);
    await this.#interpreter.load();
    return this.#inside.program(bundled, options);
  }

  /**
   * Runs code that nobody has read, in a sandbox that can start nothing: the body of a function, whose parameters are the properties of
   * `inputs`. What it returns, and what it printed.
   */
  async run(code: string, options?: RunOptions): Promise<{ value: any; printed: string }> {
    return this.#inside.run(code, options);
  }

  /** The value of an object, or the values of several, once all are there. Throws what the first of them fails with. */
  get<T>(ref: Ref<T>, options?: WaitOptions): Promise<T>;
  get<R extends readonly Ref[]>(
    refs: R,
    options?: WaitOptions,
  ): Promise<{ -readonly [K in keyof R]: R[K] extends Ref<infer T> ? T : never }>;
  async get(refs: Ref | readonly Ref[], options?: WaitOptions): Promise<unknown> {
    if (refs instanceof Ref) return refs.get(options);
    // Those that are no objects are refused before anything is asked.
    this.#numbers('get()', refs);
    return Promise.all(refs.map((it) => it.get(options)));
  }

  /**
   * Waits until `count` of the objects are there or have failed, 1 if not given, or `timeout` milliseconds are over. Those that are,
   * at most so many, and the others.
   */
  async wait<T>(refs: Iterable<Ref<T>>, options: WaitOptions & { count?: number } = {}): Promise<[ready: Ref<T>[], waiting: Ref<T>[]]> {
    const all = [...refs];
    const { count = 1, timeout, signal } = options;
    const numbers = this.#numbers('wait()', all);
    if (all.length === 0) return [[], []];
    if (!Number.isInteger(count) || count < 1 || count > all.length) {
      throw new RangeError(`wait(): count is 1 to ${all.length}, the number of objects; got ${count}`);
    }
    if (timeout !== undefined && !(timeout >= 0)) {
      throw new TypeError(`wait(): option timeout: expected milliseconds, got ${String(timeout)}`);
    }
    signal?.throwIfAborted();
    const id = this.#link.number();
    const answer = signal ? this.#link.limited(id, null, 'wait', { signal }, false) : this.#link.wait(id, null, 'wait');
    const to = this.#link.begin();
    to.u8(WAIT);
    to.f64(id);
    to.u32(count);
    to.f64(timeout ?? Number.NaN);
    this.#link.numbers(to, numbers);
    this.#link.end(to);
    const ready = new Set(((await answer) as number[]).slice(0, count));
    return [all.filter((_, at) => ready.has(at)), all.filter((_, at) => !ready.has(at))];
  }

  /** The objects, each as soon as it is there or has failed. `GetTimeoutError` if that takes longer than `timeout`. */
  async *completed<T>(refs: Iterable<Ref<T>>, options: WaitOptions = {}): AsyncGenerator<Ref<T>, void, undefined> {
    const end = options.timeout === undefined ? undefined : performance.now() + options.timeout;
    let left = [...refs];
    while (left.length > 0) {
      const timeout = end === undefined ? undefined : Math.max(end - performance.now(), 0);
      const [ready, waiting] = await this.#ready(left, { ...options, timeout });
      if (ready.length === 0) throw new GetTimeoutError(`timed out: ${left.length} objects are not there yet`);
      yield* ready;
      left = waiting;
    }
  }

  /** Those that are there once one is: all of them. */
  async #ready<T>(refs: Ref<T>[], options: WaitOptions): Promise<[Ref<T>[], Ref<T>[]]> {
    const [first] = await this.wait(refs, options);
    if (first.length === 0) return [[], refs];
    return this.wait(refs, { count: refs.length, timeout: 0 });
  }

  /**
   * Stores a value, to be given to many tasks. Text is a string of WIT's, a typed array a list of its numbers, an ArrayBuffer one of
   * bytes; all else is a value of JavaScript's, for functions of `remote()` and programs. A value that has a type of a module is
   * stored by a function that takes it: `orders.price.put('order', order)`.
   */
  async put<T>(value: T): Promise<Ref<T>> {
    const kind = value instanceof ArrayBuffer ? 'u8' : kindOf(value)?.wit;
    if (kind === undefined && typeof value !== 'string') return (await this.#inside.put(value)) as Ref<T>;
    const rows: Rows = kind === undefined ? ['string'] : [kind, { list: 0 }];
    return put(this.#link, codecOf(rows), rows, value) as Promise<Ref<T>>;
  }

  /** Cancels the tasks that are to make these objects, and all that those have started. */
  async cancel(refs: Ref | Iterable<Ref>): Promise<void> {
    const numbers = this.#numbers('cancel()', refs instanceof Ref ? [refs] : [...refs]);
    if (numbers.length === 0) return;
    const to = this.#link.begin();
    const id = this.#link.number();
    this.#link.cancel(to, id, numbers);
    await this.#link.wait(id, null, 'cancel');
  }

  /** An actor of the session's tenant, by its name. Its methods are those of `T`, which for a class of JavaScript is `RemoteActor<…>`. */
  async getActor<T extends object = Record<string, any>>(name: string): Promise<Actor & T> {
    const found = await this.#link.ask('getActor', (id) => this.#link.native.findActor(id, name));
    const described = found as ActorDescription;
    const made = actor<T>(this.#link, described);
    if (!described.class.startsWith(INTERPRETER)) return made;
    await this.#interpreter.load();
    return this.#inside.found(made) as Actor & T;
  }

  /** Ends an actor, also one that is detached. Its calls fail, the one that runs included. */
  async kill(it: object): Promise<void> {
    const of = this.#inside.actor(it) ?? it;
    if (!(of instanceof Actor)) throw new TypeError(`kill(): expected an Actor, got ${shown(of)}`);
    return kill(this.#link, this.#held('kill()', of));
  }

  /** Why a task, object, actor or placement group does not go on, or where it is, for people. */
  async explain(what: object | string): Promise<string> {
    const item = typeof what === 'string' ? 0 : this.#held('explain()', this.#inside.actor(what) ?? what).number('explain()');
    const name = typeof what === 'string' ? what : '';
    await this.#link.settled;
    return (await this.#link.ask('explain', (id) => this.#link.native.explain(id, name, item))) as string;
  }

  /** The nodes of the cluster, as far as this one knows. */
  async nodes(): Promise<Member[]> {
    const listed = await this.#link.ask('nodes', (id) => this.#link.native.nodes(id));
    return (listed as { nodes: Member[] }).nodes;
  }

  /** Ends the session, all that it has submitted and that is not detached, and the node if it is its own. */
  async close(): Promise<void> {
    await this.#link.close();
    await this.#own?.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** @internal */
  [inspect.custom](): string {
    return `Node { ${this.name}${this.#own ? ', its own' : ''} }`;
  }

  #held(name: string, it: unknown): Held {
    const held = (it as { [HANDLE]?: Held } | null | undefined)?.[HANDLE];
    if (held === undefined) throw new TypeError(`${name}: expected a Ref or an Actor, got ${shown(it)}`);
    if (held.link !== this.#link) throw new TypeError(`${name}: it is of another session`);
    return held;
  }

  #numbers(name: string, refs: readonly unknown[]): number[] {
    return refs.map((it, at) => {
      if (!(it instanceof Ref)) throw new TypeError(`${name} argument refs[${at}]: expected a Ref, got ${shown(it)}`);
      return this.#held(name, it).number(name);
    });
  }
}

/**
 * Begins a session: with the node at an address (`unix:PATH`, `HOST:PORT`, or as `WASMRUN_ADDRESS` says), else with the node of this
 * machine, if one runs, else with one of its own, which ends with the session or the process.
 *
 * @throws {NodeNotRunningError} No node runs at the address.
 */
export async function connect(options: string | ConnectOptions = {}): Promise<Node> {
  const given: ConnectOptions = typeof options === 'string' ? { address: options } : options;
  const { address, tenant, identity, nodeOptions = [], showsOutput = true, ...others } = given;
  const unknown = Object.keys(others)[0];
  if (unknown !== undefined) {
    throw new TypeError(`connect: there is no option '${unknown}'; there are address, tenant, identity, nodeOptions, showsOutput`);
  }
  const job = basename(process.argv[1] ?? '') || 'node';
  const begin = async (at: string | undefined, node: OwnNode | undefined) => {
    const link = new Link(named);
    const connected = link.ask('connect', (id) =>
      link.native.connect(id, at ?? null, tenant ?? null, identity ?? null, job),
    );
    return new Node(own, link, ((await connected) as { node: string }).node, node, showsOutput);
  };
  try {
    return await begin(address, undefined);
  } catch (error) {
    const isNamed = address !== undefined || process.env['WASMRUN_ADDRESS'];
    if (!(error instanceof NodeNotRunningError) || isNamed) throw error;
  }
  const node = await OwnNode.start(nodeOptions);
  try {
    return await begin(node.address, node);
  } catch (error) {
    await node.end();
    throw error;
  }
}
