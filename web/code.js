// A request as a command or a program that makes the same one.

import { address, key } from "./server.js";

const SAMPLE = "sample.wav"; // stands for the reference, which is too long to be shown

/** For a POSIX shell. */
export function curl(wish) {
  const { ref_audio: reference, ...rest } = wish;
  const fields = reference ? { ...rest, ref_audio: "REFERENCE" } : rest;
  let body = JSON.stringify(fields, null, 2);
  if (reference) {
    // The shell puts the file in, so that what it would read as its own in the rest is escaped.
    body = body.replace(/[\\$`]/g, "\\$&");
    body = body.replace('"REFERENCE"', `"data:audio/wav;base64,$(base64 < ${SAMPLE} | tr -d '\\n')"`);
  }
  return [
    `curl -sSf ${address("v1/audio/speech")} \\`,
    "  -H 'Content-Type: application/json' \\",
    ...(key() ? ['  -H "Authorization: Bearer $COSYSERVE_KEY" \\'] : []),
    `  -o speech.${wish.response_format} -d @- <<${reference ? "JSON" : "'JSON'"}`,
    body,
    "JSON",
  ].join("\n");
}

/** For the openai package. */
export function python(wish, model) {
  const { input, voice, response_format: format, speed, instructions, ref_audio: reference, ...rest } = wish;
  const given = ([, value]) => value !== undefined;
  const extra = Object.entries(rest).map(([name, value]) => `"${name}": ${literal(value)}`);
  if (reference) extra.unshift('"ref_audio": f"data:audio/wav;base64,{reference}"');
  const fields = Object.entries({ model, voice, input, response_format: format, speed, instructions })
    .filter(given)
    .map(([name, value]) => `    ${name}=${literal(value)},`);
  return [
    ...(reference ? ["import base64"] : []),
    ...(key() ? ["import os", ""] : reference ? [""] : []),
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${address("v1")}", api_key=${key() ? 'os.environ["COSYSERVE_KEY"]' : '"none"'})`,
    ...(reference ? [`reference = base64.b64encode(open("${SAMPLE}", "rb").read()).decode()`] : []),
    "speech = client.audio.speech.create(",
    ...fields,
    ...(extra.length ? ["    extra_body={", ...extra.map((line) => `        ${line},`), "    },"] : []),
    ")",
    `speech.write_to_file("speech.${format}")`,
  ].join("\n");
}

/** JSON's strings and numbers are Python's too; its `true` and `false` are not. */
const literal = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : JSON.stringify(value));
