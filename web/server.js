// The server behind this page: how it is asked, how it refuses, and the key it may want.

const BASE = new URL("../", import.meta.url); // the page lies in a folder of the server's root, wherever a proxy puts that
const KEY = "cosyserve-key";

/** What the server refused, or why it could not be asked. `status` is 0 where there was no response. */
export class Problem extends Error {
  constructor(status, code, message, param = null) {
    super(message);
    Object.assign(this, { status, code, param });
  }
}

export const address = (path) => new URL(path, BASE).href;
export const key = () => sessionStorage.getItem(KEY) ?? "";
export const keepKey = (value) => sessionStorage.setItem(KEY, value);

/** The response to a request that succeeded. Throws Problem; AbortError where `signal` fired. */
export async function ask(path, { method = "GET", json, form, signal } = {}) {
  const headers = {};
  if (key()) headers.Authorization = `Bearer ${key()}`;
  if (json !== undefined) headers["Content-Type"] = "application/json";
  const body = json === undefined ? form : JSON.stringify(json);
  let response;
  try {
    response = await fetch(address(path), { method, headers, body, signal });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "The server does not answer. Is it running?");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const { error } = await response.json().catch(() => ({}));
  if (error?.message) return new Problem(response.status, error.code, error.message, error.param);
  return new Problem(response.status, `http_${response.status}`, response.statusText || "The server refused this.");
}

/** The JSON of each server-sent event in `response`. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) if (block.startsWith("data: ")) yield JSON.parse(block.slice(6));
    }
  } finally {
    await reader.cancel().catch(() => {}); // a stream that broke has nothing left to cancel
  }
}
