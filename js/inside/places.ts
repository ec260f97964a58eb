// Where things are in the sources of the program that runs, if it has brought its map, as those of `wasmrun submit` do. Else the
// driver has it.

import { MAP, placing } from '../lib/inside/places';

let program = '';
let place: ((line: string) => string) | undefined;

/** The program that runs. Its map is read when it is asked for. */
export function placesOf(text: string): void {
  program = text;
  place = undefined;
}

/** A stack with the places in the sources. */
export function placed(stack: string): string {
  const at = program.lastIndexOf(MAP);
  if (at < 0) return stack;
  try {
    place ??= placing(decodeURI(program.slice(at + MAP.length)));
    return stack.split('\n').map(place).join('\n');
  } catch {
    // It is not a source map that the bundler wrote.
    return stack;
  }
}
