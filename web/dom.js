// Finding and making elements.

export const byId = (id) => document.getElementById(id);

/** A new element; `properties` are assigned, `children` appended. Text is text: never parsed as HTML. */
export function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}
