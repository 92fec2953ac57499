// The voices of the server: chosen and heard; renamed and deleted, where they were made by somebody.

import { byId, element } from "./dom.js";
import { ask } from "./server.js";

const languageNames = new Intl.DisplayNames("en", { type: "language" });

/** "English, Chinese and 3 more". */
export function languagesOf(codes) {
  const names = codes.map((code) => languageNames.of(code));
  const shown = names.length > 3 ? [...names.slice(0, 2), `${names.length - 2} more`] : names;
  return new Intl.ListFormat("en").format(shown);
}

export class Voices {
  #voices = [];
  #chosen = null; // its id; "" is the visitor's own sample
  #changed;
  #tell;

  /** `changed()` after another choice, `tell(problem)` for what the server refuses. */
  constructor({ changed, tell }) {
    this.#changed = changed;
    this.#tell = tell;
    byId("voices").addEventListener("change", ({ target }) => this.#choose(target.value));
  }

  /** The voice that is chosen; null: the visitor's own sample. */
  get chosen() {
    return this.#voices.find(({ id }) => id === this.#chosen) ?? null;
  }

  /** Fetch the list. `choose`: the id to be chosen. Throws Problem. */
  async load(choose = this.#chosen) {
    const { voices } = await (await ask("v1/audio/voices")).json();
    this.#voices = voices;
    const known = choose === "" || voices.some(({ id }) => id === choose);
    const first = voices.find((voice) => voice.default) ?? voices[0];
    const focused = byId("voice-list").contains(document.activeElement);
    byId("voice-list").replaceChildren(...voices.map((voice) => this.#row(voice)));
    this.#choose(known ? choose : (first?.id ?? ""));
    if (focused) byId("voices").querySelector(":checked").focus();
  }

  #choose(id) {
    this.#chosen = id;
    for (const radio of byId("voices").querySelectorAll("[name=voice]")) {
      radio.checked = radio.value === id;
      const actions = radio.closest(".voice").nextElementSibling;
      if (actions) actions.hidden = !radio.checked;
    }
    this.#changed();
  }

  #row(voice) {
    const { id, name, type, languages = [] } = voice;
    const label = element(
      "label",
      { className: "voice" },
      element("input", { type: "radio", name: "voice", value: id }),
      element("span", { className: "name", textContent: name }),
      element("span", { className: "hint", textContent: languagesOf(languages) }),
    );
    const row = element("div", { className: "voice-row" }, label);
    const actions = element("div", { className: "actions" }, this.#button("Preview", voice, this.#preview));
    if (type !== "preset") {
      actions.append(this.#button("Rename", voice, this.#rename), this.#button("Delete", voice, this.#remove));
    }
    row.append(actions);
    return row;
  }

  #button(text, voice, act) {
    const button = element("button", { type: "button", textContent: text, ariaLabel: `${text} ${voice.name}` });
    button.addEventListener("click", () => act.call(this, voice).catch(this.#tell));
    return button;
  }

  async #preview({ id }) {
    const response = await ask(`v1/audio/voices/${encodeURIComponent(id)}/preview`, { method: "POST", json: {} });
    const url = URL.createObjectURL(await response.blob());
    const audio = new Audio(url);
    await audio.play();
    await new Promise((resolve) => audio.addEventListener("ended", resolve));
    URL.revokeObjectURL(url);
  }

  async #rename({ id, name }) {
    const answer = await confirmed({ title: `Rename ${name}`, text: "", yes: "Rename", name });
    if (!answer || answer === name) return;
    await ask(`v1/audio/voices/${encodeURIComponent(id)}`, { method: "PATCH", json: { name: answer } });
    await this.load();
  }

  async #remove({ id, name }) {
    const text = "The voice is gone for everybody who uses this server, and cannot be brought back.";
    if (!(await confirmed({ title: `Delete ${name}?`, text, yes: "Delete" }))) return;
    await ask(`v1/audio/voices/${encodeURIComponent(id)}`, { method: "DELETE" });
    await this.load();
  }
}

/** Ask the visitor. With a `name`: the new one; without: true. False where they cancelled. */
function confirmed({ title, text, yes, name }) {
  const dialog = byId("voice-dialog");
  const field = byId("voice-dialog-name");
  byId("voice-dialog-title").textContent = title;
  byId("voice-dialog-text").textContent = text;
  byId("voice-dialog-text").hidden = !text;
  byId("voice-dialog-yes").textContent = yes;
  field.hidden = name === undefined;
  field.required = name !== undefined;
  field.value = name ?? "";
  dialog.returnValue = "";
  byId("voice-dialog-no").onclick = () => dialog.close();
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => resolve(dialog.returnValue === "yes" && (field.hidden || field.value.trim()));
  });
}
