// One request for speech, as the samples and times that arrive.

import { ask, events, Problem } from "./server.js";

/**
 * Yields `{rate}` once, then `{samples}` (Float32Array) and `{segments}` (`[{index, text, start, end}]`, seconds)
 * as they come. Throws Problem; AbortError where `signal` fired.
 */
export async function* speech(wish, signal) {
  const json = { ...wish, response_format: "pcm", stream_format: "sse", timestamp_granularities: ["segment"] };
  const response = await ask("v1/audio/speech", { method: "POST", json, signal });
  yield { rate: Number(response.headers.get("X-Sample-Rate")) };
  let complete = false;
  try {
    for await (const event of events(response)) {
      if (event.type === "speech.audio.error") throw new Problem(0, event.error.code, event.error.message);
      if (event.type === "speech.audio.delta") yield { samples: decoded(event.audio) };
      const segments = timesIn(event);
      if (segments.length) yield { segments };
      complete ||= event.type === "speech.audio.done";
    }
  } catch (error) {
    if (error instanceof TypeError) throw broken(); // what fetch calls a connection that was lost
    throw error;
  }
  if (!complete) throw broken();
}

const broken = () => new Problem(0, "stream_broken", "The connection was lost before the speech was complete.");

/** 16 bit little-endian samples in base64, as Float32Array in [-1, 1). */
function decoded(base64) {
  const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return Float32Array.from(new Int16Array(bytes.buffer), (sample) => sample / 32768);
}

function timesIn(event) {
  return (event.segments ?? []).map(({ index, text, start_s, end_s }) => ({ index, text, start: start_s, end: end_s }));
}

/** The segments that `text` will be spoken in, or none of a text that cannot be. */
export async function segmentsOf(text, signal) {
  try {
    const response = await ask("v1/text/normalize", { method: "POST", json: { input: text }, signal });
    const { segments = [] } = await response.json();
    return segments.map((segment) => segment.text);
  } catch (problem) {
    if (problem instanceof Problem) return []; // the request for speech tells what is wrong with a text
    throw problem;
  }
}
