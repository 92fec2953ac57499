// One speech at a time: asked for, heard and seen as it arrives, stopped, played again.

import { byId } from "./dom.js";
import { tell, untell } from "./notice.js";
import { Player } from "./player.js";
import { Segments } from "./segments.js";
import { segmentsOf, speech } from "./speech.js";
import { Waveform } from "./waveform.js";

const PICTURE_MS = 33; // between two pictures: bars and tenths of seconds move no faster

const segments = new Segments(byId("segments"));
const waveform = new Waveform(byId("waveform"), (seconds) => {
  take?.player.seek(seconds);
  animate();
});
let take = null; // {wish, player, began, firstAudio, lastAudio}
let speaking = null; // the AbortController of the request that is under way
let next = 0; // the timer of the next picture

/** What was spoken last: `{wish, player}`, or null. */
export const lastTake = () => take;

/** Speak `wish`; `rate` is the model's, in Hz. */
export async function speak(wish, rate) {
  stop();
  untell();
  // The page draws the seed: downloads in other formats are the same speech again.
  wish.seed ??= crypto.getRandomValues(new Uint32Array(1))[0];
  const mine = (speaking = new AbortController());
  begin(wish, rate);
  try {
    await Promise.all([listen(wish, mine.signal), foresee(wish, mine.signal)]);
    progress(`Spoken: ${take.player.duration.toFixed(1)} seconds.`);
  } catch (error) {
    if (mine.signal.aborted) return;
    mine.abort();
    progress("");
    if (!take.player.length) write();
    tell(error);
  } finally {
    if (speaking === mine) finish();
  }
}

function begin(wish, rate) {
  take = { wish, player: new Player(rate), began: performance.now() };
  waveform.reset(rate);
  segments.show([]);
  byId("speak").textContent = "Speaking";
  byId("play").disabled = byId("download").disabled = true;
  progress("Speaking.");
  measure();
  animate();
}

async function listen(wish, signal) {
  for await (const { rate, samples, segments: times } of speech(wish, signal)) {
    signal.throwIfAborted();
    if (rate && rate !== take.player.rate) {
      take.player = new Player(rate);
      waveform.reset(rate);
    }
    if (times) {
      segments.time(times);
      read();
    }
    if (samples?.length) hear(samples);
  }
}

function hear(samples) {
  take.lastAudio = performance.now();
  take.firstAudio ??= take.lastAudio;
  take.player.push(samples);
  waveform.push(samples);
  byId("play").disabled = byId("download").disabled = false;
  measure();
}

/** Show the segments before they are heard, where the server tells them. */
async function foresee(wish, signal) {
  const texts = await segmentsOf(wish.input, signal);
  if (signal.aborted || segments.known || !texts.length) return;
  segments.show(texts);
  read();
}

function finish() {
  speaking = null;
  take.player.complete = true; // all that there will be, if it was stopped
  byId("speak").textContent = "Speak";
  measure();
  animate();
}

/** Cancel the request and be silent, at once. */
export function stop() {
  if (speaking) {
    speaking.abort();
    progress("Stopped.");
    finish();
  }
  take?.player.stop();
  take?.player.pause();
  write();
}

/** Pause, go on, or begin again. */
export function togglePlaying() {
  if (take.player.playing) take.player.pause();
  else take.player.play();
  setTimeout(animate, 100); // the browser needs a moment to start its clock and to stop it
}

/** Show the text to be read along. */
function read() {
  const text = byId("text");
  const writing = document.activeElement === text;
  if (text.offsetHeight) byId("segments").style.minHeight = `${text.offsetHeight}px`;
  byId("segments").hidden = byId("edit").hidden = false;
  text.hidden = true;
  if (writing) byId("stop").focus();
}

/** Show the text to be written. The keyboard goes there from what goes away. */
export function write() {
  const lost = ["segments", "edit", "stop"].includes(document.activeElement.id);
  byId("segments").hidden = byId("edit").hidden = true;
  byId("text").hidden = false;
  if (lost) byId("text").focus();
}

/** Follow the sound until nothing moves any more. */
function animate() {
  clearTimeout(next);
  if (!take) return;
  const { player } = take;
  const position = Math.min(player.position, player.duration);
  waveform.draw(position);
  segments.light(position);
  byId("clock").textContent = `${clock(position)} / ${clock(player.duration)}`;
  byId("play").classList.toggle("playing", player.playing);
  byId("play").ariaLabel = player.playing ? "Pause" : "Play";
  const still = !speaking && !player.playing;
  if (still && document.activeElement === byId("stop")) byId(byId("edit").hidden ? "text" : "edit").focus();
  byId("stop").disabled = still;
  if (speaking || player.playing || !waveform.settled) next = setTimeout(animate, PICTURE_MS);
  else if (player.ended) player.pause();
}

function clock(seconds) {
  return `${Math.floor(seconds / 60)}:${(seconds % 60).toFixed(1).padStart(4, "0")}`;
}

function measure() {
  const { player, began, firstAudio, lastAudio, wish } = take;
  const heard = player.length > 0;
  const none = speaking ? "…" : "–";
  byId("ttfa").textContent = heard ? `${Math.round(firstAudio - began)} ms` : none;
  byId("rtf").textContent = heard ? ((lastAudio - began) / 1000 / player.duration).toFixed(2) : none;
  byId("length").textContent = heard ? `${player.duration.toFixed(1)} s` : none;
  byId("gaps").textContent = heard ? player.gaps : none;
  byId("used-seed").textContent = wish.seed;
}

function progress(text) {
  byId("progress").textContent = text;
}
