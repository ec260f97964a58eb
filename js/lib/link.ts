/**
 * A session with a node, as the rest of the package sees it.
 *
 * Owns who waits for what, and when commands are sent: those of one turn of the event loop go together, and what came of many comes
 * together. The process goes on as long as somebody waits.
 */

import { setMaxListeners } from 'node:events';

import { type Codec, type Handle, type Rows, codecOf, handleOf, known } from './codec.js';
import { ConnectionLostError, DependencyError, type Failure, GuestError, WasmrunError, made } from './errors.js';
import * as mail from './mail.js';
import { Reader } from './mail.js';
import { typeError } from './misfit.js';
import { native, type NativeSession } from './native.js';
import { arrayOf, bytesOf, kinds, type TypedArray } from './numbers.js';
import * as packet from './packet.js';
import { Packet } from './packet.js';

/** What is known of the type of what is to come: null is nothing, undefined that the node knows it. */
export type Result = Codec | null | undefined;

interface Waiting {
  resolve(value: unknown): void;
  reject(error: unknown): void;
  readonly result: Result;
  /** What people call it. */
  readonly name: string;
  /** Done when it does not wait any more. */
  done?: (() => void) | undefined;
}

export interface WaitOptions {
  /** Ends the wait: what is waited for goes on. */
  signal?: AbortSignal | undefined;
  /** How many milliseconds to wait at most. */
  timeout?: number | undefined;
}

/** From so many bytes on a packet is sent without waiting for the end of the turn. */
const FULL_BYTES = 1 << 18;
/** Numbers from so many bytes on lie beside the packet. */
const BESIDE_BYTES = 1 << 14;
/** For ever, as timers can. */
const LONG_MS = 0x7fff_ffff;

/** Sessions that somebody waits for. */
const busy = new Set<Link>();
let hold: NodeJS.Timeout | undefined;

export class Link {
  readonly native: NativeSession;
  /** Makes an object or actor of what the node names. */
  readonly name: (link: Link, id: number, actor: unknown) => unknown;
  /** What reads values of JavaScript from sandboxes; undefined where it is none. */
  inside: { value(ref: object, options: WaitOptions): Promise<unknown> | undefined } | undefined;
  readonly #packet = new Packet(this);
  readonly #draft = new Packet(this);
  readonly #waiting = new Map<number, Waiting>();
  /** Nobody has a number here that is not answered. */
  #next = 1;
  #isScheduled = false;
  /** Whether the values of a command are being read, which may run code of theirs. */
  isReading = false;
  /** Done when nothing is held back. */
  settled: Promise<void> | undefined;
  /** What is sent later, in its order; undefined if nothing is held back. */
  #held: (() => void)[] | undefined;
  #isClosed = false;

  constructor(name: (link: Link, id: number, actor: unknown) => unknown) {
    this.name = name;
    // The compiled part keeps the function, and that is not to keep this.
    const weak = new WeakRef(this);
    this.native = new native.Session(() => {
      const link = weak.deref();
      if (link !== undefined) link.#drain();
    });
  }

  /** Whether it was closed. */
  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The number of the next request. */
  number(): number {
    return this.#next++;
  }

  /** Waits for the answer to a request. */
  wait(id: number, result: Result, name: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject, result, name });
      if (this.#waiting.size === 1) this.#hold();
    });
  }

  /** As `wait`, for a request that is not in a packet. */
  ask(name: string, request: (id: number) => void): Promise<unknown> {
    this.check();
    this.flush();
    const id = this.number();
    const answer = this.wait(id, null, name);
    try {
      request(id);
    } catch (error) {
      this.#take(id)?.reject(new WasmrunError((error as Error).message));
    }
    return answer;
  }

  /** Throws where the session was closed. */
  check(): void {
    if (this.isReading) throw new WasmrunError('a getter of an argument calls wasmrun: call it before');
    if (this.#isClosed) throw new WasmrunError('this session was closed: connect again');
  }

  /** The packet, for a command that goes with the others of this turn. */
  begin(): Packet {
    this.check();
    if (!this.#isScheduled) {
      this.#isScheduled = true;
      queueMicrotask(() => this.flush());
    }
    return this.#packet;
  }

  /** Sends what is there. */
  flush(): void {
    this.#isScheduled = false;
    const it = this.#packet;
    if (it.length === 0) return;
    if (this.#held === undefined) {
      this.#send(it.bytes, it.length, it.buffers);
    } else {
      const bytes = Buffer.from(it.bytes.subarray(0, it.length));
      const buffers = it.buffers.map((of) => new Uint8Array(of));
      this.#held.push(() => this.#send(bytes, bytes.length, buffers));
    }
    it.reset();
  }

  #send(bytes: Uint8Array, length: number, buffers: Uint8Array[]): void {
    try {
      this.native.send(bytes, length, buffers);
    } catch (error) {
      this.#fail(new WasmrunError((error as Error).message));
    }
  }

  /** Has a command written once `until` is settled, which is the same for all. What is asked for after it stays behind it. */
  later(until: Promise<unknown>, command: () => void): void {
    this.check();
    this.flush();
    if (this.#held === undefined) {
      this.#held = [];
      const go = () => {
        // What was asked for in this turn is behind them.
        this.flush();
        const held = this.#held ?? [];
        this.#held = undefined;
        for (const it of held) {
          if (this.#isClosed) return;
          it();
          this.flush();
        }
      };
      this.settled = until.then(go, go);
    }
    this.#held.push(command);
  }

  /** What to do once a command is written. */
  end(to: Packet): void {
    // Buffers are taken at once: the caller may change them.
    if (to.buffers.length > 0 || to.length > FULL_BYTES) this.flush();
  }

  /** Writes a value of a type, which `name` says. */
  value(to: Packet, codec: Codec, value: unknown, name: string): void {
    const start = to.length;
    try {
      this.#value(to, codec, value);
    } catch (error) {
      to.length = start;
      throw typeError(error, name);
    }
  }

  #value(to: Packet, codec: Codec, value: unknown): void {
    const handle = handleOf(value);
    if (handle?.kind === 'object') {
      // Whether the parameter takes what it stands for, or is an object itself.
      to.u8(3);
      to.f64(known(this, handle));
    } else if (codec.numbers !== undefined) {
      const bytes = bytesOf(codec.numbers, value);
      const isBeside = bytes.length >= BESIDE_BYTES;
      to.u8(isBeside ? 2 : 1);
      to.u8(codec.numbers.index);
      to.u32(isBeside ? to.buffers.length : bytes.length);
      if (isBeside) to.buffers.push(bytes);
      else to.raw(bytes);
    } else if (codec.hasHandles) {
      const draft = this.#draft;
      draft.reset();
      draft.names = [];
      codec.write(draft, value);
      to.u8(4);
      to.u32(draft.names.length);
      for (const { at, id } of draft.names) {
        to.u32(at);
        to.f64(id);
      }
      to.u32(draft.length);
      to.raw(draft.bytes.subarray(0, draft.length));
    } else {
      to.u8(0);
      const at = to.open();
      codec.write(to, value);
      to.close(at);
    }
  }

  /** The values of a call, behind their number, and objects that it waits for besides. */
  values(
    to: Packet,
    params: readonly { name: string; codec: Codec }[],
    values: readonly unknown[],
    name: string,
    after: readonly Handle[] = [],
  ): void {
    to.u32(params.length + after.length);
    params.forEach((param, at) => {
      this.value(to, param.codec, values[at], `${name}() argument ${param.name}`);
    });
    for (const it of after) {
      to.u8(3);
      to.f64(known(this, it));
    }
  }

  /** Waits for a value that a command with this flag brings, for as long as the options say. */
  limited(id: number, result: Result, name: string, options: WaitOptions, isCall: boolean): Promise<unknown> {
    const { signal, timeout } = options;
    if (timeout !== undefined && !(timeout >= 0)) {
      throw new TypeError(`${name}: option timeout: expected milliseconds, got ${String(timeout)}`);
    }
    const answer = this.wait(id, result, name);
    const waiting = this.#waiting.get(id)!;
    const abandon = (error: unknown) => {
      if (!this.#take(id)) return;
      if (!this.#isClosed) {
        const to = this.begin();
        if (isCall) this.cancel(to, 0, [id]);
        to.u8(packet.FORGET);
        to.f64(id);
      }
      waiting.reject(error);
    };
    const onAbort = () => abandon(signal!.reason);
    const timer = timeout === undefined ? undefined : setTimeout(() => abandon(late(timeout)), Math.min(timeout, LONG_MS));
    // As many as there are calls: each is taken off again.
    if (signal !== undefined) setMaxListeners(0, signal);
    signal?.addEventListener('abort', onAbort, { once: true });
    waiting.done = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', onAbort);
    };
    return answer;
  }

  /** Writes that objects are to be cancelled. */
  cancel(to: Packet, id: number, objects: readonly number[]): void {
    to.u8(packet.CANCEL);
    to.f64(id);
    this.numbers(to, objects);
  }

  numbers(to: Packet, numbers: readonly number[]): void {
    to.u32(numbers.length);
    for (const number of numbers) to.f64(number);
  }

  /** Writes that a call cannot be made: its object has failed. */
  refuse(id: number, why: string): void {
    const to = this.begin();
    to.u8(packet.REFUSE);
    to.f64(id);
    const at = to.open();
    to.raw(Buffer.from(why));
    to.close(at);
  }

  /** Writes of what type an object is that a value has named. */
  type(id: number, rows: Rows): void {
    const to = this.begin();
    to.u8(packet.TYPE);
    to.f64(id);
    const at = to.open();
    to.raw(Buffer.from(JSON.stringify(rows)));
    to.close(at);
  }

  /** An item is not needed any more. */
  release(id: number): void {
    if (this.#isClosed) return;
    const to = this.begin();
    to.u8(packet.RELEASE);
    to.f64(id);
  }

  /** Ends the session. Calls that still wait reject. */
  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.flush();
    const closed = this.ask('close', (id) => this.native.close(id));
    this.#isClosed = true;
    await closed;
    this.#drain();
    this.#fail(new ConnectionLostError('this session was closed: what it had submitted is cancelled'));
  }

  #hold(): void {
    if (busy.size === 0) {
      hold ??= setInterval(() => {}, LONG_MS);
      hold.ref();
    }
    busy.add(this);
  }

  /** Who waits for an answer, and does not any more. */
  #take(id: number): Waiting | undefined {
    const waiting = this.#waiting.get(id);
    if (waiting === undefined) return undefined;
    this.#waiting.delete(id);
    waiting.done?.();
    if (this.#waiting.size === 0) {
      busy.delete(this);
      if (busy.size === 0) hold?.unref();
    }
    return waiting;
  }

  #fail(error: Error): void {
    for (const id of [...this.#waiting.keys()]) this.#take(id)?.reject(error);
  }

  /** Tells all that came. */
  #drain(): void {
    const [frames, ...buffers] = this.native.take();
    if (frames === undefined) return;
    const from = new Reader(frames);
    while (!from.isAtEnd) {
      const waiting = this.#take(from.f64());
      let value: unknown;
      let error: unknown;
      try {
        value = this.#frame(from, from.u8(), waiting, waiting?.result, buffers);
      } catch (thrown) {
        error = thrown;
      }
      if (error === undefined) waiting?.resolve(value);
      else waiting?.reject(error);
    }
  }

  /** What a frame says, or throws what it failed with. */
  #frame(from: Reader, kind: number, waiting: Waiting | undefined, result: Result, buffers: ArrayBuffer[]): unknown {
    switch (kind) {
      case mail.NOTHING:
        return undefined;
      case mail.VALUE:
        return this.#read(from, waiting, result);
      case mail.NUMBERS: {
        const of = kinds[from.u8()]!;
        return arrayOf(of, from.raw(from.u32()));
      }
      case mail.SHARED: {
        const of = kinds[from.u8()]!;
        const buffer = buffers[from.u32()]!;
        return new of.array(buffer) satisfies TypedArray;
      }
      case mail.FAILED:
        throw this.#failed(from, waiting);
      case mail.JSON_TEXT:
        return from.json();
      case mail.INDEXES:
        return Array.from({ length: from.u32() }, () => from.u32());
      default: {
        const codec = codecOf(from.json() as Rows);
        return this.#frame(from, from.u8(), waiting, codec, buffers);
      }
    }
  }

  #read(from: Reader, waiting: Waiting | undefined, result: Result): unknown {
    const count = from.u32();
    const named: [id: number, actor: unknown][] = [];
    for (let at = 0; at < count; at += 1) named.push([from.f64(), from.json()]);
    const end = from.u32() + from.at;
    try {
      if (waiting === undefined || !result) {
        // Nobody waits for it any more.
        for (const [id] of named) this.release(id);
        return undefined;
      }
      from.named = named.map(([id, actor]) => this.name(this, id, actor));
      if (result.ok === undefined) return result.read(from);
      // An error would have been thrown.
      from.u8();
      return result.ok?.read(from);
    } finally {
      from.at = end;
    }
  }

  #failed(from: Reader, waiting: Waiting | undefined): Error {
    const failure = from.json() as Failure;
    const length = from.u32();
    const bytes = from.raw(length);
    const error = made(waiting ? { ...failure, function: waiting.name } : failure);
    let guest: unknown = error;
    while (waiting?.result?.isShared && guest instanceof DependencyError) guest = guest.cause;
    if (guest instanceof GuestError && length > 0 && waiting?.result) {
      try {
        const whole = new Reader(bytes.buffer as ArrayBuffer);
        guest.payload = (waiting.result.read(whole) as { val?: unknown }).val;
      } catch {
        // It is of a function in another language, or names what was not kept.
      }
    }
    return error;
  }
}

function late(timeout: number): Error {
  return made({
    kind: 'timeout',
    message: `timed out after ${timeout} ms: it is not there yet; wait for longer, or cancel what makes it`,
  });
}
