// What went wrong, in words with its code.

import { byId, element } from "./dom.js";

export function tell(problem) {
  if (problem.status === 401) byId("key-form").hidden = false;
  const code = problem.code ? [element("code", { textContent: problem.code })] : [];
  byId("notice").replaceChildren(problem.message, ...code);
  byId("notice").hidden = false;
}

export function untell() {
  byId("key-form").hidden = byId("notice").hidden = true;
}
