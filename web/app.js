// The playground put together: its fields, its buttons and keys, and the server it finds.

import { curl, python } from "./code.js";
import { byId } from "./dom.js";
import { download } from "./download.js";
import { tell, untell } from "./notice.js";
import { Reference } from "./reference.js";
import { ask, keepKey, Problem } from "./server.js";
import { lastTake, speak, stop, togglePlaying, write } from "./stage.js";
import { languagesOf, Voices } from "./voices.js";
import { wished } from "./wish.js";

const RETRY_MS = 2000; // while the model loads
const MOST_CHARACTERS = 20_000;

let model = null;
const voices = new Voices({ changed: refresh, tell });
const reference = new Reference({ changed: refresh, tell, untell, kept: (voice) => voices.load(voice.id) });

const wish = () => wished(voices.chosen ? { voice: voices.chosen.id } : reference.fields);

/** Show what follows from the choices: the counter, the fields that matter, the code. */
function refresh() {
  const text = byId("text").value;
  const count = [...text].length;
  byId("count").textContent = `${count.toLocaleString("en")} of ${MOST_CHARACTERS.toLocaleString("en")} characters`;
  byId("count").classList.toggle("over", count > MOST_CHARACTERS);
  byId("speak").disabled = model === null || count > MOST_CHARACTERS || text.trim() === "";
  byId("reference").hidden = voices.chosen !== null;
  if (voices.chosen) reference.stop();
  const modes = (voices.chosen ?? model)?.supported_modes ?? [];
  byId("instructions-field").hidden = !modes.includes("instruct");
  byId("speed-value").textContent = `${Number(byId("speed").value).toFixed(2)}×`;
  showCode();
}

function showCode() {
  const language = document.querySelector("[name=snippet]:checked").value;
  try {
    // What was spoken last had a seed: drawn by the page, unless the visitor gave one.
    const asked = wish();
    if (lastTake()) asked.seed ??= lastTake().wish.seed;
    const whole = { ...asked, response_format: byId("format").value, stream: false };
    byId("snippet").textContent = language === "curl" ? curl(whole) : python(whole, model?.id ?? "");
  } catch (problem) {
    byId("snippet").textContent = problem.message;
  }
}

async function copyCode() {
  getSelection().selectAllChildren(byId("snippet"));
  // Pages that came over plain http from another machine have no clipboard: the text is selected, for the keys.
  const copied = await navigator.clipboard?.writeText(byId("snippet").textContent).then(
    () => true,
    () => false,
  );
  byId("copy").textContent = copied ? "Copied" : "Press Ctrl C";
  setTimeout(() => (byId("copy").textContent = "Copy"), 2000);
}

function speakNow() {
  try {
    reference.stop();
    speak(wish(), model.sample_rate);
    showCode();
  } catch (problem) {
    tell(problem);
  }
}

async function save() {
  const focused = document.activeElement === byId("download");
  byId("download").disabled = true;
  await download(lastTake(), byId("format").value).catch(tell);
  byId("download").disabled = false;
  if (focused && document.activeElement === document.body) byId("download").focus();
}

/** Find the server's model and voices; wait while it loads. */
async function start() {
  try {
    const { data } = await (await ask("v1/models")).json();
    [model] = data;
    await voices.load();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    byId("model").textContent = problem.status === 401 ? "Waiting for a key" : problem.message;
    if (problem.status === 401) tell(problem);
    else setTimeout(start, RETRY_MS);
    return;
  }
  const parts = [model.id, languagesOf(model.languages), `${model.sample_rate / 1000} kHz`];
  byId("model").textContent = parts.filter(Boolean).join(" · ");
  byId("model").classList.add("ready");
}

for (const id of ["text", "speed", "seed", "instructions", "format"]) byId(id).addEventListener("input", refresh);
for (const tab of document.querySelectorAll("[name=snippet]")) tab.addEventListener("change", showCode);
byId("voices").addEventListener("change", untell);
byId("speak").addEventListener("click", speakNow);
byId("stop").addEventListener("click", stop);
byId("play").addEventListener("click", togglePlaying);
byId("download").addEventListener("click", save);
byId("copy").addEventListener("click", copyCode);
for (const id of ["edit", "segments"]) {
  byId(id).addEventListener("click", () => {
    write();
    byId("text").focus();
  });
}
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keepKey(byId("key").value);
  byId("key").value = "";
  byId("key-form").hidden = true;
  byId("text").focus();
  start();
});
document.addEventListener("keydown", (event) => {
  if (byId("voice-dialog").open) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !byId("speak").disabled) {
    event.preventDefault(); // the button that has the focus is not pressed
    speakNow();
  }
  if (event.key === "Escape") {
    reference.stop();
    stop();
  }
});

refresh();
start();
