// A voice of the visitor's own: recorded or chosen, spoken with at once, and kept if the server keeps voices.

import { byId } from "./dom.js";
import { canRecord, LONGEST, record } from "./recorder.js";
import { ask, Problem } from "./server.js";

const SHORTEST = 1; // seconds
const LARGEST = 10 * 2 ** 20; // bytes

export class Reference {
  #sample = null; // a Blob with a name
  #url = "";
  #recording = null; // the AbortController that ends it
  #changed;
  #tell;
  #untell;

  /**
   * `changed()` after every change; `tell(problem)` what went wrong, `untell()` once there is a new sample;
   * `kept(voice)` once the server has a new voice.
   */
  constructor({ changed, tell, untell, kept }) {
    this.#changed = changed;
    this.#tell = tell;
    this.#untell = untell;
    byId("record").hidden = !canRecord();
    byId("record").addEventListener("click", () => this.#toggle());
    byId("file").addEventListener("change", () => this.#choose());
    byId("ref-text").addEventListener("input", changed);
    byId("listen").addEventListener("error", () => this.#unplayable());
    for (const id of ["keep-name", "consent"]) byId(id).addEventListener("input", () => this.#ready());
    byId("keep-button").addEventListener("click", () => this.#keep(kept));
  }

  /** The fields of a request, or null while there is no sample. */
  get fields() {
    if (!this.#sample) return null;
    const transcript = byId("ref-text").value.trim();
    return { voice: "inline", ref_audio: this.#url, ...(transcript && { ref_text: transcript }) };
  }

  /** End a recording that is going on. */
  stop() {
    this.#recording?.abort();
  }

  async #toggle() {
    if (this.#recording) return this.stop();
    this.#recording = new AbortController();
    this.#show(true);
    try {
      const blob = await record(this.#recording.signal, (seconds, level) => {
        byId("recording").textContent = `Recording: ${seconds.toFixed(0)} of ${LONGEST} seconds`;
        byId("level").value = Math.min(1, 4 * level);
      });
      await this.#take(blob, "recording.wav");
    } catch (error) {
      byId("recording").textContent = "Nothing was recorded.";
      this.#tell(unrecorded(error));
    } finally {
      this.#recording = null;
      this.#show(false);
    }
  }

  #show(recording) {
    byId("record").textContent = recording ? "Finish" : "Record";
    byId("record").classList.toggle("recording", recording);
    byId("level").hidden = !recording;
    if (recording) byId("listen").pause();
  }

  async #choose() {
    const [file] = byId("file").files;
    byId("file").value = ""; // the same file can be chosen again
    if (!file) return;
    try {
      await this.#take(file, file.name);
    } catch (error) {
      this.#tell(error);
    }
  }

  async #take(blob, name) {
    if (blob.size > LARGEST) {
      throw new Problem(0, "ref_audio_too_large", "The file is over 10 MB: a sample is 1 to 30 seconds long.");
    }
    this.#url = await dataUrl(blob, name);
    this.#sample = { blob, name };
    const player = byId("listen");
    URL.revokeObjectURL(player.src);
    player.src = URL.createObjectURL(blob);
    player.hidden = false;
    byId("keep").hidden = false;
    byId("recording").textContent = name === "recording.wav" ? "Recorded." : name;
    this.#untell();
    this.#changed();
  }

  /** The server reads some formats that a browser does not: told, and still sent. */
  #unplayable() {
    byId("listen").hidden = true;
    const message = `The browser cannot play ${this.#sample.name}: it may be no audio file.`;
    this.#tell(new Problem(0, "sample_unplayable", message));
  }

  #ready() {
    byId("keep-button").disabled = !(byId("consent").checked && byId("keep-name").value.trim());
  }

  async #keep(kept) {
    const form = new FormData();
    form.set("audio_sample", this.#sample.blob, this.#sample.name);
    form.set("name", byId("keep-name").value.trim());
    form.set("consent", byId("consent-statement").textContent);
    const transcript = byId("ref-text").value.trim();
    if (transcript) form.set("ref_text", transcript);
    byId("keep-button").disabled = true;
    try {
      const response = await ask("v1/audio/voices", { method: "POST", form });
      byId("keep-name").value = "";
      byId("consent").checked = false;
      byId("keep").open = false;
      await kept(await response.json());
    } catch (problem) {
      byId("keep").hidden = [404, 405, 501].includes(problem.status); // this server keeps no voices
      this.#tell(problem);
    }
    this.#ready();
  }
}

function unrecorded(error) {
  if (error.name === "NotAllowedError") {
    return new Problem(0, "microphone_denied", "The browser does not let this page use the microphone.");
  }
  if (error.name === "NotFoundError") return new Problem(0, "no_microphone", "There is no microphone.");
  if (error.name === "EncodingError") {
    return new Problem(0, "ref_audio_too_short", `Record at least ${SHORTEST} second.`);
  }
  return error;
}

/** Base64 with an audio type: for recordings in a video's container, and for files whose type the system does not know. */
function dataUrl(blob, name) {
  const type = blob.type.startsWith("audio/") ? blob.type : `audio/${name.split(".").pop().toLowerCase()}`;
  const reader = new FileReader();
  return new Promise((resolve, reject) => {
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Problem(0, "file_unreadable", "The file cannot be read."));
    reader.readAsDataURL(blob.slice(0, blob.size, type));
  });
}
