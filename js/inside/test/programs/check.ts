/** Ends the program if these are not shown alike. */
export function same(found: unknown, expected: unknown, what = ''): void {
  const shown = (it: unknown) => JSON.stringify(it, (_, of) => (typeof of === 'bigint' ? `${of}n` : of === undefined ? 'undefined' : of));
  if (shown(found) !== shown(expected)) throw new Error(`${what}: found ${shown(found)}, expected ${shown(expected)}`);
}

/** What is thrown: its name and what it says. */
export async function thrown(run: () => unknown): Promise<[string, string, any]> {
  try {
    await run();
  } catch (error: any) {
    return [error?.name, String(error?.message ?? error), error];
  }
  throw new Error(`nothing is thrown by ${run}`);
}
