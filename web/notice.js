// What went wrong, in words with its code.

import { byId, element } from "./dom.js";
import { key } from "./server.js";

export function tell(problem) {
  untell();
  if (problem.status === 401) {
    askForKey(problem);
    return;
  }
  const code = problem.code ? [element("code", { textContent: problem.code })] : [];
  byId("notice").replaceChildren(problem.message, ...code);
  byId("notice").hidden = false;
}

export function untell() {
  byId("notice").hidden = true;
}

/** Instead of the notice: a server that was given no key has said nothing that the form does not say. */
function askForKey(problem) {
  byId("key-problem").textContent = key() ? problem.message : "";
  byId("key-problem").hidden = !key();
  byId("key-form").hidden = false;
  byId("key").focus();
}
