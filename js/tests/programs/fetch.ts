// What `fetch.test.mjs` runs as a program: requests of it, and of a task that it starts.

import { put, remote } from 'wasmrun/guest';

export async function status(url: string): Promise<number> {
  return (await fetch(url)).status;
}

export const soon = (): number => 1;

/** More objects than there may be handles of WASI's, and requests beside them. */
export async function hoard(url: string, count: number): Promise<number> {
  const all = Array.from({ length: count }, () => put(0));
  return all.length + (await status(url));
}

export default async function (url: string): Promise<void> {
  const [here, there, one] = await Promise.all([status(url), remote(status)(url), remote(soon)()]);
  console.log(here, there, one);
}
