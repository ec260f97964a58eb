/**
 * The interpreter of JavaScript in a session: what `inside/inside.ts` asks of a driver.
 *
 * Owns when it is loaded: when it is first needed. Until then calls are held back, and all that is asked for after them.
 */

import { readFile } from 'node:fs/promises';

import { type Codec, HANDLE, type Handle, type Rows, codecOf } from './codec.js';
import { WasmrunError } from './errors.js';
import { type ActorOptions, type CallOptions, type Class, type Description, type Fn, begin, cls, fn, plainName, put } from './functions.js';
import { Actor, RESULT, Ref, read, ref } from './handles.js';
import type { Driver, GetOptions } from './inside/inside.js';
import type { Link } from './link.js';
import type { ModuleDescription } from './module.js';

const COMPONENT = new URL('../javascript.wasm', import.meta.url);
const BYTES: Rows = ['u8', { list: 0 }];

/** A type as it is sent, and as it is read and written. */
interface Type {
  readonly rows: Rows;
  readonly codec: Codec;
}

interface Loaded {
  readonly functions: { readonly [name: string]: Fn };
  readonly instance: Class;
  readonly returned: Type;
  readonly data: Type;
}

export class Interpreter implements Driver<Ref, Actor> {
  readonly #link: Link;
  #loading: Promise<Loaded> | undefined;
  #loaded: Loaded | undefined;
  /** Why it could not be loaded. */
  #failure = '';
  /** Functions and classes that ask for more, by the options that all calls of one share. */
  readonly #asking = new WeakMap<object, Fn | Class>();
  /** What calls give: its type is known once the interpreter is loaded. */
  readonly #returned: Codec;

  constructor(link: Link) {
    this.#link = link;
    const known = () => this.#loaded!.returned.codec;
    this.#returned = {
      wit: 'result',
      hasHandles: true,
      isShared: true,
      get ok() {
        return known().ok ?? null;
      },
      write: (to, value) => known().write(to, value),
      read: (from) => known().read(from),
    };
  }

  /** Loads it, if that is not done. */
  load(): Promise<Loaded> {
    this.#loading ??= this.#load().catch((error: Error) => {
      this.#loading = undefined;
      this.#failure = error.message;
      throw error;
    });
    return this.#loading;
  }

  async #load(): Promise<Loaded> {
    const link = this.#link;
    const bytes = await readFile(COMPONENT).catch((cause: Error) => {
      throw new WasmrunError(`${COMPONENT.pathname} runs JavaScript in sandboxes, and cannot be read: install the package anew`, { cause });
    });
    const described = (await link.ask('load', (id) => link.native.load(id, bytes))) as ModuleDescription;
    const functions: Record<string, Fn> = {};
    for (const [name, id, type] of described.functions) functions[plainName(name)] = fn(link, id, name, type);
    const call = described.functions.find(([name]) => plainName(name) === 'call')![2];
    const [name, id, type] = described.classes[0]!;
    this.#loaded = {
      functions,
      instance: cls(link, id, name, type),
      returned: typeOf(call.result!),
      data: typeOf((call.params.at(-1) as Description['params'][number])[1]),
    };
    return this.#loaded;
  }

  call(name: string, args: unknown[], after: Ref[], options: CallOptions): Ref {
    const link = this.#link;
    link.check();
    const [id, shown] = [link.number(), options.name ?? name];
    const made = () => ref(link, id, this.#returned, shown);
    const loaded = this.#loaded;
    if (loaded !== undefined) {
      begin(this.#asked(loaded.functions[name]!, options), id, args, after.map((it) => it[HANDLE]));
      return made();
    }
    const given = args.map((it) => fixed(it, shown));
    const awaited = after.map((it) => handle(it, shown));
    const loading = this.load();
    // Its object tells of it.
    loading.catch(() => {});
    link.later(loading, () => {
      try {
        if (this.#loaded === undefined) throw new WasmrunError(this.#failure);
        begin(this.#asked(this.#loaded.functions[name]!, options), id, given, awaited);
      } catch (error) {
        link.refuse(id, (error as Error).message);
      }
    });
    return made();
  }

  async create(args: unknown[], options: ActorOptions): Promise<Actor> {
    const given = args.map((it) => fixed(it, 'create()'));
    const { instance } = await this.load();
    return this.#asked(instance, options).create(...given);
  }

  invoke(actor: Actor, args: unknown[]): Ref {
    return (actor as unknown as { call: Fn }).call.ref(...args);
  }

  async store(type: 'list<u8>' | 'data', value: unknown): Promise<Ref> {
    if (type === 'list<u8>') return put(this.#link, codecOf(BYTES), BYTES, value);
    const given = fixed(value, 'put()');
    const { codec, rows } = (await this.load()).data;
    return put(this.#link, codec, rows, given);
  }

  async get(it: Ref, { isOurs = false, ...options }: GetOptions): Promise<unknown> {
    try {
      return await read(it, options);
    } catch (error) {
      if (isOurs && options.signal?.aborted && !this.#link.isClosed) {
        this.#link.cancel(this.#link.begin(), 0, [it[HANDLE].id]);
      }
      throw error;
    } finally {
      if (isOurs) it[Symbol.dispose]();
    }
  }

  typed(it: Ref, type: 'returned' | 'data'): void {
    // A value of the interpreter's was read, so it is loaded.
    const { codec, rows } = this.#loaded![type];
    if (it[RESULT] !== undefined) return;
    it[RESULT] = codec;
    this.#link.type(it[HANDLE].id, rows);
  }

  kind(it: Ref): 's' | 'n' | '' {
    const result = it[RESULT];
    if (result === null) return 'n';
    return result?.wit === 'string' ? 's' : '';
  }

  isRef(value: object): value is Ref {
    return value instanceof Ref;
  }

  isActor(value: object): value is Actor {
    return value instanceof Actor;
  }

  #asked(of: Fn, options: CallOptions): Fn;
  #asked(of: Class, options: ActorOptions): Class;
  #asked(of: Fn | Class, options: object): Fn | Class {
    let asking = this.#asking.get(options);
    if (asking === undefined) {
      asking = of.options(options);
      this.#asking.set(options, asking);
    }
    return asking;
  }
}

function typeOf(rows: Rows): Type {
  return { rows, codec: codecOf(rows) };
}

/** What an object or actor is now: it may be disposed of before the call is sent. */
function handle(it: Ref | Actor, name: string): Handle {
  const { link, kind } = it[HANDLE];
  return { id: it[HANDLE].number(name), kind, link, isReleased: false };
}

/** A value whose objects and actors stay what they are now. */
function fixed(value: unknown, name: string): unknown {
  if (value instanceof Ref || value instanceof Actor) return { [HANDLE]: handle(value, name) };
  if (Array.isArray(value)) return value.map((it) => fixed(it, name));
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, of]) => [key, fixed(of, name)]));
}
