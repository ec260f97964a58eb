// What a program prints: it goes where the output of tasks goes, and to the caller.
//
// Owns how values are shown, for which the engine prints less.

import { placed } from './places';

/** How much of what is printed comes back, in characters. */
const MOST_TOLD = 64 << 10;
const MOST_NESTED = 4;
const MOST_SHOWN = 100;

const native = { log: console.log.bind(console), error: console.error.bind(console) };
let printed: string[] = [];
let left = MOST_TOLD;

/** What was printed since the last time. */
export function taken(): string {
  if (!printed.length) return '';
  const all = printed.join('');
  printed = [];
  left = MOST_TOLD;
  return all;
}

/** Shows what another task has printed. */
export function show(text: string): void {
  if (text) print(native.log, text.replace(/\n$/, ''));
}

function print(to: (text: string) => void, text: string): void {
  if (left > 0) {
    printed.push(`${text}\n`.slice(0, left));
    left -= text.length + 1;
  }
  to(text);
}

function shown(value: unknown, depth: number, seen: object[]): string {
  if (typeof value === 'string') return depth ? JSON.stringify(value) : value;
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return `[${value.name ? `Function: ${value.name}` : 'Function'}]`;
  if (typeof value !== 'object' || value === null) return Object.is(value, -0) ? '-0' : String(value);
  if (value instanceof Error) return `${value}${value.stack ? `\n${placed(value.stack.trimEnd()).replace(/^/gm, '    at ')}` : ''}`;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'Invalid Date' : value.toISOString();
  if (value instanceof RegExp) return String(value);
  const name = Object.getPrototypeOf(value)?.constructor?.name;
  if (seen.includes(value)) return '[Circular]';
  if (depth > MOST_NESTED) return `[${name ?? 'Object'}]`;
  const within = [...seen, value];
  const all = (items: unknown[], of: (item: any) => string) => {
    const first = items.slice(0, MOST_SHOWN).map(of);
    if (items.length > MOST_SHOWN) first.push(`… ${items.length - MOST_SHOWN} more`);
    return first.join(', ');
  };
  const inner = (item: unknown) => shown(item, depth + 1, within);
  if (Array.isArray(value)) return value.length ? `[ ${all(value, inner)} ]` : '[]';
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) return `${name}(${(value as any).length}) [ ${all(Array.from((value as any).subarray(0, MOST_SHOWN + 1)), inner)} ]`;
  if (value instanceof Map) return `Map(${value.size}) { ${all([...value], ([key, of]) => `${inner(key)} => ${inner(of)}`)} }`;
  if (value instanceof Set) return `Set(${value.size}) { ${all([...value], inner)} }`;
  const prefix = name === undefined || name === 'Object' ? '' : `${name} `;
  const fields = all(Object.entries(value), ([key, of]) => `${key}: ${inner(of)}`);
  return fields ? `${prefix}{ ${fields} }` : `${prefix}{}`;
}

/** A line, as of `console.log`. */
export function line(values: unknown[]): string {
  return values
    .map((value) => {
      try {
        return shown(value, 0, []);
      } catch {
        return '[what cannot be shown]';
      }
    })
    .join(' ');
}

function printing(to: (text: string) => void) {
  return (...values: unknown[]): void => print(to, line(values));
}

Object.assign(console, {
  log: printing(native.log),
  info: printing(native.log),
  debug: printing(native.log),
  warn: printing(native.error),
  error: printing(native.error),
  trace: printing(native.error),
});
