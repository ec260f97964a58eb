/** What does not fit its WIT type, and where it is. */

export class Misfit extends Error {
  /** The way to the part that does not fit. */
  path = '';
}

export function misfit(expected: string, found: unknown): Misfit {
  return new Misfit(`expected ${expected}, got ${shown(found)}`);
}

/** The same error, of a part of what is being read. Code of the value may have thrown it. */
export function inside(error: unknown, part: string): Misfit {
  const known = error instanceof Misfit ? error : new Misfit('it cannot be read', { cause: error });
  known.path = part + known.path;
  return known;
}

/** A misfit as people see it, of a value by this name. */
export function typeError(error: unknown, name: string): unknown {
  if (!(error instanceof Misfit)) return error;
  const options = error.cause === undefined ? undefined : { cause: error.cause };
  return new TypeError(`${name}${error.path}: ${error.message}`, options);
}

/** A value in a few words. */
export function shown(value: unknown): string {
  switch (typeof value) {
    case 'number':
      return Object.is(value, -0) ? '-0' : String(value);
    case 'bigint': {
      const text = String(value);
      return text.length > 40 ? `${text.slice(0, 40)}…n` : `${text}n`;
    }
    case 'string':
      return `string '${value.length > 40 ? `${value.slice(0, 40)}…` : value}'`;
    case 'object': {
      if (value === null) return 'null';
      if (Array.isArray(value)) return `an array of ${value.length}`;
      return Object.prototype.toString.call(value).slice(8, -1);
    }
    default:
      return typeof value;
  }
}
