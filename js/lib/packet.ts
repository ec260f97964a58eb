/**
 * What is asked for, as bytes: many commands in one packet, whose layout is in `src/packet.rs`. Values are written in postcard.
 */

const FIRST_BYTES = 1 << 16;
/** One that has grown beyond this is not kept. */
const KEPT_BYTES = 1 << 22;

export const CALL = 1;
export const METHOD = 2;
export const CREATE = 3;
export const PUT = 4;
export const GET = 5;
export const WAIT = 6;
export const CANCEL = 7;
export const FORGET = 8;
export const RELEASE = 9;
export const KILL = 10;
export const TYPE = 11;
export const REFUSE = 12;

/** Of a call: its value is waited for, and the object is not kept. */
export const IS_WANTED = 1;
/** It can be told not to wait any more. */
export const IS_ALONE = 2;

export class Packet {
  bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
  length = 0;
  /** Buffers that lie beside it. */
  buffers: Uint8Array[] = [];
  /** Names that are still to be written into the value: where, and of which item. */
  names: { at: number; id: number }[] = [];
  /** The session that it is for. */
  readonly owner: unknown;
  #view = view(this.bytes);

  constructor(owner: unknown) {
    this.owner = owner;
  }

  reset(): void {
    this.length = 0;
    if (this.buffers.length > 0) this.buffers = [];
    if (this.bytes.length > KEPT_BYTES) {
      this.bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
      this.#view = view(this.bytes);
    }
  }

  /** Room for so many bytes more. */
  #room(count: number): number {
    const at = this.length;
    const end = at + count;
    if (end > this.bytes.length) {
      const larger = Buffer.allocUnsafeSlow(Math.max(end, 2 * this.bytes.length));
      larger.set(this.bytes.subarray(0, at));
      this.bytes = larger;
      this.#view = view(larger);
    }
    this.length = end;
    return at;
  }

  u8(value: number): void {
    const at = this.#room(1);
    this.bytes[at] = value;
  }

  u32(value: number): void {
    const at = this.#room(4);
    this.#view.setUint32(at, value, true);
  }

  f32(value: number): void {
    const at = this.#room(4);
    this.#view.setFloat32(at, value, true);
  }

  f64(value: number): void {
    const at = this.#room(8);
    this.#view.setFloat64(at, value, true);
  }

  /** A number of up to 32 bits. */
  varint(value: number): void {
    while (value > 127) {
      this.u8((value & 127) | 128);
      value >>>= 7;
    }
    this.u8(value);
  }

  /** A number of 64 bits. */
  varint64(value: bigint): void {
    let low = Number(value & 0xffff_ffffn);
    let high = Number(value >> 32n);
    while (high > 0) {
      this.u8((low & 127) | 128);
      low = ((low >>> 7) | (high << 25)) >>> 0;
      high >>>= 7;
    }
    this.varint(low);
  }

  raw(bytes: Uint8Array): void {
    const at = this.#room(bytes.length);
    this.bytes.set(bytes, at);
  }

  /** Text in UTF-8, its length before it. It has no lone surrogates. */
  text(text: string): void {
    const { length } = text;
    if (length < 48) {
      // Most are short, and ASCII.
      const start = this.length;
      const at = this.#room(length + 1);
      this.bytes[at] = length;
      let count = 0;
      while (count < length) {
        const code = text.charCodeAt(count);
        if (code > 127) break;
        count += 1;
        this.bytes[at + count] = code;
      }
      if (count === length) return;
      this.length = start;
    }
    const count = Buffer.byteLength(text);
    this.varint(count);
    const at = this.#room(count);
    this.bytes.write(text, at, count, 'utf8');
  }

  /** Room for a length, which is to be set when what it is of is written. */
  open(): number {
    return this.#room(4);
  }

  close(at: number): void {
    this.#view.setUint32(at, this.length - at - 4, true);
  }

  /** Room for the name of an item. */
  name(bytes: number, id: number): void {
    const at = this.#room(bytes);
    this.names.push({ at, id });
  }
}

function view(of: Uint8Array): DataView {
  return new DataView(of.buffer, of.byteOffset, of.byteLength);
}
