// Draws the samples as they arrive, what has been heard in another colour, and lets the visitor go to a place in them.

const BAR = 3; // CSS pixels
const SPACE = 2;
const BINS_PER_SECOND = 100;
const SHORTEST = 3; // seconds that fill the width: a first word does not look like a whole speech
const AUDIBLE = 0.01; // of full scale
const STEP = 1; // seconds for an arrow key

const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

export class Waveform {
  #canvas;
  #peaks = [];
  #rate = 1;
  #samples = 0;
  #audible = 0;
  #shown = SHORTEST; // seconds across the width, on its way to what there is
  #position = 0;
  #picture = ""; // what is drawn

  /** `seek` is called with seconds. */
  constructor(canvas, seek) {
    this.#canvas = canvas;
    new ResizeObserver(() => this.draw()).observe(canvas);
    dark.addEventListener("change", () => this.draw());
    const clicked = (event) => {
      const { left, width } = canvas.getBoundingClientRect();
      seek(((event.clientX - left) / width) * this.#shown);
    };
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      clicked(event);
    });
    canvas.addEventListener("pointermove", (event) => canvas.hasPointerCapture(event.pointerId) && clicked(event));
    canvas.addEventListener("keydown", (event) => {
      const targets = {
        ArrowLeft: this.#position - STEP,
        ArrowRight: this.#position + STEP,
        Home: 0,
        End: this.#duration,
      };
      if (!(event.key in targets)) return;
      event.preventDefault();
      seek(targets[event.key]);
    });
    this.reset(1);
  }

  get #duration() {
    return this.#samples / this.#rate;
  }

  reset(rate) {
    this.#peaks = [];
    this.#rate = rate;
    this.#samples = this.#audible = this.#position = 0;
    this.#shown = SHORTEST;
    this.#canvas.tabIndex = -1;
    this.#canvas.setAttribute("aria-disabled", "true");
    this.#tell();
    this.draw();
  }

  push(samples) {
    for (const sample of samples) {
      const bin = Math.floor((this.#samples * BINS_PER_SECOND) / this.#rate);
      const level = Math.abs(sample);
      this.#peaks[bin] = Math.max(this.#peaks[bin] ?? 0, level);
      if (level > AUDIBLE) this.#audible += 1;
      this.#samples += 1;
    }
    this.#canvas.tabIndex = 0;
    this.#canvas.setAttribute("aria-disabled", "false");
    this.#tell();
  }

  #tell() {
    this.#canvas.dataset.samples = this.#samples;
    this.#canvas.dataset.audible = this.#audible;
    this.#canvas.setAttribute("aria-valuemax", this.#duration.toFixed(1));
  }

  /** Whether another `draw` would show something else. */
  get settled() {
    return Math.abs(this.#target - this.#shown) < 0.01;
  }

  get #target() {
    return Math.max(SHORTEST, this.#duration);
  }

  draw(position = this.#position) {
    this.#position = position;
    this.#canvas.setAttribute("aria-valuenow", position.toFixed(1));
    this.#canvas.setAttribute("aria-valuetext", `${position.toFixed(1)} of ${this.#duration.toFixed(1)} seconds`);
    this.#shown = calm.matches || this.settled ? this.#target : this.#shown + (this.#target - this.#shown) * 0.25;
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    const scale = devicePixelRatio || 1;
    const count = Math.max(1, Math.floor((width + SPACE) / (BAR + SPACE)));
    const heard = Math.round((position / this.#shown) * count);
    const picture = [width, height, scale, heard, this.#shown, this.#samples, dark.matches].join();
    if (picture === this.#picture) return;
    this.#picture = picture;
    this.#canvas.width = Math.round(width * scale);
    this.#canvas.height = Math.round(height * scale);
    const context = this.#canvas.getContext("2d");
    context.scale(scale, scale);
    this.#bars(context, height, count, heard);
  }

  #bars(context, height, count, heard) {
    const style = getComputedStyle(this.#canvas);
    const [warm, ahead] = [style.getPropertyValue("--accent"), style.getPropertyValue("--wave")];
    const loudest = this.#peaks.reduce((a, b) => Math.max(a, b), 0.25);
    const bins = (this.#shown * BINS_PER_SECOND) / count; // for each bar
    for (let bar = 0; bar < count; bar += 1) {
      let peak = 0;
      const last = Math.min(Math.ceil((bar + 1) * bins), this.#peaks.length);
      for (let bin = Math.floor(bar * bins); bin < last; bin += 1) peak = Math.max(peak, this.#peaks[bin] ?? 0);
      const tall = Math.max(BAR, (peak / loudest) ** 0.8 * height);
      const there = bar * bins < this.#peaks.length;
      context.globalAlpha = there ? 1 : 0.45;
      context.fillStyle = there && bar < heard ? warm : ahead;
      context.beginPath();
      context.roundRect(bar * (BAR + SPACE), (height - tall) / 2, BAR, tall, BAR / 2);
      context.fill();
    }
  }
}
