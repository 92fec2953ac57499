// What was heard, as a file.

import { element } from "./dom.js";
import { ask } from "./server.js";
import { pcm, wav } from "./wav.js";

/**
 * `take`: `{wish, player}`. wav and pcm are the samples heard. Other formats the server speaks once more, by the same
 * seed and as a whole file: a stream would not know its length.
 */
export async function download(take, format) {
  save(await file(take, format), `speech-${take.wish.seed}.${format}`);
}

async function file({ wish, player }, format) {
  if (format === "wav") return wav(player.samples(), player.rate);
  if (format === "pcm") return new Blob([pcm(player.samples())]);
  const json = { ...wish, response_format: format, stream: false };
  const response = await ask("v1/audio/speech", { method: "POST", json });
  return response.blob();
}

function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser may still be reading it
}
