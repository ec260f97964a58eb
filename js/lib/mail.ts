/** What came, as bytes: the layout of frames is in `src/mail.rs`. Values are read in postcard. */

export const NOTHING = 0;
export const VALUE = 1;
export const NUMBERS = 2;
export const SHARED = 3;
export const FAILED = 4;
export const JSON_TEXT = 5;
export const INDEXES = 6;
export const TYPED = 7;

export class Reader {
  /** What a value names, in the order in which it does. */
  named: unknown[] = [];
  readonly bytes: Buffer;
  #view: DataView;
  #at = 0;

  constructor(bytes: ArrayBuffer) {
    this.bytes = Buffer.from(bytes);
    this.#view = new DataView(bytes);
  }

  get isAtEnd(): boolean {
    return this.#at === this.bytes.length;
  }

  /** Where it is; to go on from elsewhere. */
  get at(): number {
    return this.#at;
  }

  set at(at: number) {
    this.#at = at;
  }

  u8(): number {
    return this.#view.getUint8(this.#at++);
  }

  s8(): number {
    return this.#view.getInt8(this.#at++);
  }

  u32(): number {
    const at = this.#at;
    this.#at += 4;
    return this.#view.getUint32(at, true);
  }

  f32(): number {
    const at = this.#at;
    this.#at += 4;
    return this.#view.getFloat32(at, true);
  }

  f64(): number {
    const at = this.#at;
    this.#at += 8;
    return this.#view.getFloat64(at, true);
  }

  varint(): number {
    let value = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.u8();
      value |= (byte & 127) << shift;
      if (byte < 128) return value >>> 0;
    }
  }

  varint64(): bigint {
    let low = 0;
    let high = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.u8();
      const bits = byte & 127;
      if (shift < 32) low |= bits << shift;
      if (shift === 28) high = bits >>> 4;
      if (shift > 28) high |= bits << (shift - 32);
      if (byte < 128) break;
    }
    const value = BigInt(low >>> 0);
    return high === 0 ? value : (BigInt(high >>> 0) << 32n) | value;
  }

  /** So many bytes, as a copy. */
  raw(count: number): Uint8Array {
    const at = this.skip(count);
    return new Uint8Array(this.#view.buffer as ArrayBuffer, at, count).slice();
  }

  text(count: number): string {
    const at = this.skip(count);
    return this.bytes.toString('utf8', at, at + count);
  }

  /** Where they are. */
  skip(count: number): number {
    const at = this.#at;
    this.#at += count;
    if (this.#at > this.bytes.length) throw new RangeError('a value is cut off');
    return at;
  }

  json(): unknown {
    const text = this.text(this.u32());
    return text === '' ? undefined : JSON.parse(text);
  }
}
