/**
 * Objects and actors, as JavaScript holds them.
 *
 * Owns [`Ref`] and [`Actor`]. What they stand for lives in the node until they are disposed of, or nobody has them any more.
 */

import { inspect } from 'node:util';

import { HANDLE, type Handle, known } from './codec.js';
import { type Method, type MethodDescription, method } from './functions.js';
import type { Link, Result, WaitOptions } from './link.js';
import { typeError } from './misfit.js';
import { GET, IS_ALONE, KILL } from './packet.js';

/** A handle of this session. */
export class Held implements Handle {
  isReleased = false;
  constructor(
    readonly link: Link,
    readonly id: number,
    readonly kind: 'object' | 'actor',
  ) {
    unused.register(this, { link, id }, this);
  }

  release(): void {
    if (this.isReleased) return;
    this.isReleased = true;
    unused.unregister(this);
    this.link.release(this.id);
  }

  /** Its number, for what `name` asks of it. */
  number(name: string): number {
    try {
      return known(this.link, this);
    } catch (error) {
      throw typeError(error, name);
    }
  }
}

const unused = new FinalizationRegistry<{ link: Link; id: number }>(({ link, id }) => link.release(id));

/** What makes one; nobody else has it. */
const own = Symbol('wasmrun.own');

/** What is known of the type of an object. */
export const RESULT = Symbol('wasmrun.result');

/** An object that is there or will be: what a task makes, or what was put. It is an argument wherever its value is. */
export class Ref<T = unknown> {
  /** What people call it. */
  readonly name: string;
  /** @internal */
  readonly [HANDLE]: Held;
  /** @internal */
  [RESULT]: Result;

  /** @internal */
  constructor(key: symbol, held: Held, result: Result, name: string) {
    if (key !== own) throw new TypeError('a Ref is made by .ref(…) of a function, or by put');
    this[HANDLE] = held;
    this[RESULT] = result;
    this.name = name;
  }

  /**
   * Its value, once it is there. A stored list of numbers is not copied: its memory is that of the node until it is written to.
   *
   * @throws {TaskError} What it failed with.
   * @throws {GetTimeoutError} After `timeout` milliseconds. What makes it goes on, also when `signal` ends the wait.
   */
  get(options: WaitOptions = {}): Promise<T> {
    const ofJavaScript = this[HANDLE].link.inside?.value(this, options);
    return (ofJavaScript ?? read(this, options)) as Promise<T>;
  }

  /** Lets the object go. What makes it goes on. */
  [Symbol.dispose](): void {
    this[HANDLE].release();
  }

  /** @internal */
  [inspect.custom](): string {
    return `Ref { ${this.name} }`;
  }
}

/** The value of an object, as its type says. */
export function read(of: Ref, options: WaitOptions): Promise<unknown> {
  const held = of[HANDLE];
  const { link } = held;
  try {
    link.check();
    options.signal?.throwIfAborted();
    const object = held.number('Ref.get()');
    const isLimited = options.signal !== undefined || options.timeout !== undefined;
    const id = link.number();
    const answer = isLimited ? link.limited(id, of[RESULT], of.name, options, false) : link.wait(id, of[RESULT], of.name);
    const to = link.begin();
    to.u8(GET);
    to.u8(isLimited ? IS_ALONE : 0);
    to.f64(id);
    to.f64(object);
    link.end(to);
    return answer;
  } catch (error) {
    return Promise.reject(error);
  }
}

export function ref<T>(link: Link, id: number, result: Result, name: string): Ref<T> {
  return new Ref<T>(own, new Held(link, id, 'object'), result, name);
}

/** What the node says of an actor. */
export interface ActorDescription {
  number: number;
  id: string;
  class: string;
  methods: [name: string, type: MethodDescription][];
}

/** An actor. Its methods are functions: `counter.add(1)`, `counter.add.ref(1)`. */
export class Actor {
  /** @internal */
  readonly [HANDLE]: Held;
  readonly #text: string;

  /** @internal */
  constructor(key: symbol, link: Link, described: ActorDescription) {
    if (key !== own) throw new TypeError('an Actor is made by .create(…) of a class, or by getActor');
    this[HANDLE] = new Held(link, described.number, 'actor');
    this.#text = `${described.class} ${described.id}`;
    described.methods.forEach(([name, type], at) => {
      const made: Method = method(this[HANDLE], name, type, at);
      Object.defineProperty(this, made.name, { value: made, enumerable: true, configurable: true });
    });
  }

  /** Lets the actor go. One without a name ends when nobody has it. */
  [Symbol.dispose](): void {
    this[HANDLE].release();
  }

  /** @internal */
  [inspect.custom](): string {
    return `Actor { ${this.#text} }`;
  }
}

/** An actor, as the node describes it. Its methods are those of `T`. */
export function actor<T extends object>(link: Link, described: ActorDescription): Actor & T {
  return new Actor(own, link, described) as Actor & T;
}

/** Makes an object or actor that a value names. */
export function named(link: Link, id: number, described: unknown): unknown {
  return described === undefined ? ref(link, id, undefined, 'object') : actor(link, described as ActorDescription);
}

/** Ends an actor. */
export function kill(link: Link, held: Held): Promise<void> {
  const actor = held.number('kill()');
  const to = link.begin();
  const id = link.number();
  to.u8(KILL);
  to.f64(id);
  to.f64(actor);
  return link.wait(id, null, 'kill') as Promise<void>;
}
