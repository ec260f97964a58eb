// Text as bytes, which may have lone surrogates, and the memory of bytes.

const LARGE = 64 << 10;

/** Gives back the memory of bytes that nobody needs any more, if it is much: the garbage collector may come too late for it. */
export function release(bytes: Uint8Array): void {
  // Newer than the types.
  if (bytes.byteLength > LARGE) (bytes.buffer as any).transfer?.(0);
}

const encoder = new TextEncoder();
const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Text in UTF-8, with lone surrogates as if they were characters. */
export function encoded(text: string): Uint8Array {
  // Newer than the types.
  if ((text as any).isWellFormed()) return encoder.encode(text);
  const bytes: number[] = [];
  for (let at = 0; at < text.length; at++) {
    const code = text.codePointAt(at)!;
    if (code >= 0xd800 && code < 0xe000) {
      bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    } else {
      const character = encoder.encode(String.fromCodePoint(code));
      for (let of = 0; of < character.length; of++) bytes.push(character[of]!);
      if (code > 0xffff) at++;
    }
  }
  return new Uint8Array(bytes);
}

// By code. Short text is quicker so than by `TextDecoder`, where JavaScript is interpreted.
const ASCII = Array.from({ length: 128 }, (_, code) => String.fromCharCode(code));
export const SHORT = 32;

/** The text of these bytes. */
export function decoded(bytes: Uint8Array, start = 0, end = bytes.length): string {
  if (end - start <= SHORT) {
    let text = '';
    let at = start;
    for (; at < end && bytes[at]! < 128; at++) text += ASCII[bytes[at]!];
    if (at === end) return text;
  }
  return decodedWhole(bytes.subarray(start, end));
}

function decodedWhole(bytes: Uint8Array): string {
  try {
    return decoder.decode(bytes);
  } catch {
    // Lone surrogates: all between them is as usual.
    let text = '';
    let start = 0;
    for (let at = 0; at + 2 < bytes.length; at++) {
      if (bytes[at] === 0xed && bytes[at + 1]! >= 0xa0) {
        const [second, third] = [bytes[at + 1]!, bytes[at + 2]!];
        if (second > 0xbf || third < 0x80 || third > 0xbf) break;
        text += decoder.decode(bytes.subarray(start, at)) + String.fromCharCode(0xd000 | ((second & 63) << 6) | (third & 63));
        at += 2;
        start = at + 1;
      }
    }
    return text + decoder.decode(bytes.subarray(start));
  }
}
