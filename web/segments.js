// The text as it is spoken: its segments, and the light on the one that is heard.

import { element } from "./dom.js";

export class Segments {
  #place;
  #segments = []; // {mark, start, end}

  constructor(place) {
    this.#place = place;
  }

  get known() {
    return this.#segments.length > 0;
  }

  show(texts) {
    this.#segments = [];
    this.#place.replaceChildren();
    texts.forEach((text, index) => this.#put(index, text));
  }

  /** Times of segments, `[{index, text, start, end}]`: what was not known before is added. */
  time(times) {
    for (const { index, text, start, end } of times) {
      const segment = this.#segments[index] ?? this.#put(index, text);
      Object.assign(segment, { start, end });
    }
  }

  #put(index, text) {
    const mark = element("span", { textContent: text });
    this.#place.append(mark, " ");
    this.#segments[index] = { mark, start: Infinity, end: Infinity };
    return this.#segments[index];
  }

  /** Light what is heard at `seconds`. */
  light(seconds) {
    for (const { mark, start, end } of this.#segments) {
      const now = start <= seconds && seconds < end;
      if (now && !mark.classList.contains("speaking")) mark.scrollIntoView({ block: "nearest" });
      mark.classList.toggle("speaking", now);
      mark.classList.toggle("spoken", end <= seconds);
    }
  }
}
