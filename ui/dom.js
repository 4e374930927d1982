// Builds elements. A text becomes a text node and never markup.
import { cut, TEXT_MAX } from "./format.js";

const NS = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// An element with attributes, listeners (`onclick`) and children. The strings among the children are texts.
export const el = (name, props = {}, ...children) => fill(document.createElement(name), props, children);

export const svg = (name, props = {}, ...children) => fill(document.createElementNS(NS, name), props, children);

// A text of a request or of a file: isolated, with its special characters visible, and cut.
export const value = (text, max = TEXT_MAX) => el("span", { class: "value" }, cut(text, max));

// Replaces the text of an element, if it differs. Selections and screen readers keep what does not change.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// Sets `data-state` of a section when it has drawn.
export function setState(section, state) {
  section.dataset.state = state;
}

// Shows a message of a view, or hides it. An error has its reason.
export function setMessage(section, text = "", kind = "") {
  const line = section.querySelector(".message");
  const shown = text && cut(text, 1000);
  if (line.hidden === !text && line.textContent === shown) return;
  line.className = `message ${kind}`;
  line.hidden = !text;
  setText(line, shown);
}

// Shows an error of the service in a view. A view without access says how to get it.
export function setError(section, error) {
  const needsToken = error.status === 403;
  const text = needsToken ? `${error.message}. Enter the token above.` : error.message;
  setMessage(section, text, needsToken ? "warning" : "error");
  setState(section, needsToken ? "token" : "error");
}

// A list of terms with their descriptions, which are texts or nodes.
export function facts(rows) {
  const list = el("dl", { class: "facts" });
  for (const [term, description] of rows) list.append(el("dt", {}, term), el("dd", {}, description));
  return list;
}

// A table with a caption, headings, and rows of cells. The first cell of a row is its heading.
export function table(caption, heads, rows) {
  const head = el("tr", {}, ...heads.map((text) => el("th", { scope: "col" }, text)));
  const body = rows.map(({ cells: [first, ...others], ...props }) =>
    el("tr", props, el("th", { scope: "row" }, first),
      // A phone shows the cells below each other, each with its heading.
      ...others.map((cell, at) => el("td", { "data-label": heads[at + 1] }, cell))));
  return el("table", {}, el("caption", {}, caption), el("thead", {}, head), el("tbody", {}, ...body));
}

// A field that shows a text which it may not be able to hold, such as one with line breaks. As long as the
// field is not edited, the text stays exact.
export function exactField(field) {
  let exact = "";
  let shown = field.value;
  return {
    set(text) {
      exact = text;
      field.value = text;
      shown = field.value;
    },
    get: () => (field.value === shown && exact !== "" ? exact : field.value),
  };
}

// Asks before something is changed. Resolves to whether the answer is yes.
export function confirmed(title, text, action) {
  const dialog = $("confirm");
  const [yes, no] = ["confirm", "cancel"].map((name) => dialog.querySelector(`button[value=${name}]`));
  $("confirm-title").textContent = title;
  $("confirm-text").replaceChildren(...text);
  yes.textContent = action;
  return new Promise((resolve) => {
    const end = (answer) => () => {
      dialog.close();
      resolve(answer);
    };
    yes.onclick = end(true);
    no.onclick = end(false);
    dialog.oncancel = () => resolve(false);
    dialog.showModal();
    no.focus();
  });
}
