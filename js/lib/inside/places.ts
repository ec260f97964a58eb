// Places in a bundle as those in the sources, by the source map that esbuild makes. Both sides of a sandbox have it.

/** Behind this is, at the end of a program, its map, by `encodeURI`. */
export const MAP = '\n//# sourceMappingURL=data:application/json,';

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** From this column of the bundle on, a place in a source. All begin with 0. */
interface Segment {
  from: number;
  source: number;
  row: number;
  column: number;
}

/** The segments of each row. */
function decoded(mappings: string): Segment[][] {
  // Each row begins with column 0, and all else goes on from what was before.
  let [source, row, column] = [0, 0, 0];
  return mappings.split(';').map((text) => {
    let from = 0;
    const segments: Segment[] = [];
    for (const segment of text ? text.split(',') : []) {
      const deltas = numbers(segment);
      from += deltas[0]!;
      if (deltas.length < 4) continue;
      source += deltas[1]!;
      row += deltas[2]!;
      column += deltas[3]!;
      segments.push({ from, source, row, column });
    }
    return segments;
  });
}

/** Numbers as base 64 VLQ: five bits a digit, the lowest first, the sixth bit says that more follow, the sign is the lowest bit. */
function numbers(text: string): number[] {
  const all: number[] = [];
  let [value, shift] = [0, 0];
  for (const letter of text) {
    const digit = DIGITS.indexOf(letter);
    value |= (digit & 31) << shift;
    shift += 5;
    if (digit & 32) continue;
    all.push(value & 1 ? -(value >> 1) : value >> 1);
    value = shift = 0;
  }
  return all;
}

/** What gives a line of a stack its place in the sources, by a program's map. */
export function placing(map: string): (line: string) => string {
  const { sources, mappings } = JSON.parse(map) as { sources: string[]; mappings: string };
  const rows = decoded(mappings);
  return (line) => {
    const [, name, row, column] = /^([^@]*)@.*\.bundle:(\d+):(\d+)$/.exec(line) ?? [];
    // Those of stacks begin with 1, and the first row of a program is ours.
    const segments = row === undefined ? undefined : rows[Number(row) - 2];
    const found = segments?.filter((it) => it.from < Number(column)).pop() ?? segments?.[0];
    if (found === undefined) return line;
    return `${name || '<anonymous>'}@${sources[found.source]}:${found.row + 1}:${found.column + 1}`;
  };
}
