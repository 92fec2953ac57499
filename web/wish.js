// What the visitor wants spoken and how, as the fields of a request.

import { byId } from "./dom.js";
import { Problem } from "./server.js";

/** The fields but for the format. `voice`: `{voice}` or a reference's fields, null if missing. Throws Problem. */
export function wished(voice) {
  if (!voice) throw new Problem(0, "voice_required", "Record a sample or choose a file first, or pick another voice.");
  const wish = { input: byId("text").value, ...voice };
  const speed = Number(byId("speed").value);
  if (speed !== 1) wish.speed = speed;
  const seed = byId("seed").value.trim();
  if (seed) wish.seed = wholeNumber(seed);
  const instructions = byId("instructions").value.trim();
  if (instructions && !byId("instructions-field").hidden) {
    wish.instructions = instructions;
    delete wish.ref_text; // instructions stand in the place of the transcript
  }
  return wish;
}

function wholeNumber(text) {
  if (/^\d+$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  throw new Problem(0, "invalid_value", `The seed is a whole number from 0 to ${Number.MAX_SAFE_INTEGER}.`);
}
