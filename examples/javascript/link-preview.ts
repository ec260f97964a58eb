// A service that says what is behind a link: `GET /?url=https://example.com/` is answered with the page's title and description.
// It is a module of its own, which componentize-js builds and `wasmrun serve` runs: docs/serving.md says how.

/** A request, as componentize-js brings it. */
interface FetchEvent extends Event {
  readonly request: Request;
  respondWith(response: Promise<Response>): void;
}

/** How much of a page is read at most, in characters: what is looked for stands at its beginning. */
const MOST = 256 * 1024;

addEventListener('fetch', (event) => {
  const { request } = event as FetchEvent;
  (event as FetchEvent).respondWith(answer(request));
});

async function answer(request: Request): Promise<Response> {
  if (request.method !== 'GET') return json(405, { error: 'this is asked with GET' });
  const url = new URL(request.url).searchParams.get('url') ?? '';
  if (!/^https?:\/\//.test(url)) return json(400, { error: 'name a page: /?url=https://example.com/' });
  let page: Response;
  try {
    page = await fetch(url);
  } catch (error) {
    // A server that was not granted with --http, too.
    return json(502, { error: `the page cannot be had: ${error instanceof Error ? error.message : error}` });
  }
  if (!page.ok) return json(502, { error: `the page's server answered with ${page.status}` });
  const head = await beginning(page);
  return json(200, {
    url: page.url || url,
    title: /<title[^>]*>([^<]*)/i.exec(head)?.[1]?.trim() ?? null,
    description: description(head),
  });
}

/** A page up to the end of its head. The rest is not waited for. */
async function beginning(page: Response): Promise<string> {
  const reader = page.body!.getReader();
  const decoder = new TextDecoder();
  let text = '';
  while (text.length < MOST && !/<\/head>/i.test(text)) {
    const { done, value } = await reader.read();
    if (done) break;
    text += decoder.decode(value, { stream: true });
  }
  return text;
}

function description(head: string): string | null {
  const metas = head.match(/<meta\s[^>]*>/gi) ?? [];
  const meta = metas.find((it) => /\sname=["']?description["'\s]/i.test(it));
  return meta?.match(/\scontent=(?:"([^"]*)"|'([^']*)')/i)?.slice(1).find((it) => it !== undefined) ?? null;
}

function json(status: number, body: object): Response {
  return new Response(JSON.stringify(body) + '\n', { status, headers: { 'content-type': 'application/json' } });
}

export {};
