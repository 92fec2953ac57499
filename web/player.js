// Plays samples while they are still arriving: each chunk begins on the very sample on which the last one ends.

const LEAD = 0.06; // seconds between a decision to play and its first sample
const contexts = new Map(); // by sample rate: browsers allow a handful for each page

function contextAt(rate) {
  if (!contexts.has(rate)) contexts.set(rate, new AudioContext({ sampleRate: rate, latencyHint: "interactive" }));
  return contexts.get(rate);
}

/** One speech. Times are seconds from its beginning. */
export class Player {
  #context;
  #chunks = []; // {buffer, from}: from is the first sample's index
  #sources = new Set();
  #runs = []; // {at, from, to}: samples [from, to) are heard without a gap from the context's time `at` on
  #start = 0; // where playing last began, in samples
  length = 0; // in samples
  complete = false;
  gaps = 0;

  constructor(rate) {
    this.rate = rate;
    this.#context = contextAt(rate);
    this.#context.resume();
  }

  get duration() {
    return this.length / this.rate;
  }

  get position() {
    const now = this.#context.currentTime - (this.#context.outputLatency || 0);
    let sample = this.#start;
    for (const { at, from, to } of this.#runs) {
      if (now >= at) sample = Math.min(from + (now - at) * this.rate, to);
    }
    return sample / this.rate;
  }

  get ended() {
    return this.complete && this.position >= this.duration;
  }

  get playing() {
    return this.#context.state === "running" && !this.ended;
  }

  push(samples) {
    const buffer = this.#context.createBuffer(1, samples.length, this.rate);
    buffer.copyToChannel(samples, 0);
    const chunk = { buffer, from: this.length };
    this.#chunks.push(chunk);
    this.length += samples.length;
    this.#schedule(chunk, 0);
  }

  #schedule({ buffer, from }, skipped) {
    const now = this.#context.currentTime;
    let run = this.#runs.at(-1);
    if (!run || this.#endOf(run) < now) {
      if (run) this.gaps += 1;
      const at = Math.ceil((now + LEAD) * this.rate) / this.rate; // on a sample: between two, the browser would interpolate
      run = { at, from: from + skipped, to: from + skipped };
      this.#runs.push(run);
    }
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#context.destination);
    source.onended = () => this.#sources.delete(source);
    source.start(this.#endOf(run), skipped / this.rate);
    this.#sources.add(source);
    run.to = from + buffer.length;
  }

  #endOf({ at, from, to }) {
    return at + (to - from) / this.rate;
  }

  play() {
    if (this.ended) this.seek(0);
    this.#context.resume();
  }

  pause() {
    this.#context.suspend();
  }

  seek(seconds) {
    this.stop();
    this.#start = Math.round(Math.min(Math.max(seconds, 0), this.duration) * this.rate);
    for (const chunk of this.#chunks) {
      const skipped = Math.max(this.#start - chunk.from, 0);
      if (skipped < chunk.buffer.length) this.#schedule(chunk, skipped);
    }
  }

  /** Silence, at once; the position stays. */
  stop() {
    this.#start = Math.round(this.position * this.rate);
    for (const source of this.#sources) {
      source.onended = null;
      source.stop();
      source.disconnect();
    }
    this.#sources.clear();
    this.#runs = [];
  }

  /** All samples so far. */
  samples() {
    const all = new Float32Array(this.length);
    for (const { buffer, from } of this.#chunks) all.set(buffer.getChannelData(0), from);
    return all;
  }
}
