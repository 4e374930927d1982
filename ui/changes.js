// Temporary changes: the form that makes one, and the list that ends them.
import { api, tokenCount } from "./api.js";
import { confirmed, el, setText, value } from "./dom.js";
import { clock, cut, number, parseLimit } from "./format.js";

const KINDS = [["limit", "another limit"], ["block", "deny all requests"], ["bypass", "let all requests pass"]];

let forms = 0;
// The `tokenCount` with which the list was refused.
let refused = -1;

// The active changes. After a refusal they are not asked for again before a token is saved: null.
export async function allChanges(signal) {
  if (refused === tokenCount()) return null;
  const asked = tokenCount();
  try {
    return (await api("changes", { signal })).changes;
  } catch (error) {
    if (error.status === 403) refused = asked;
    return null;
  }
}

function field(label, input) {
  input.id = `change-${++forms}`;
  return el("p", {}, el("label", { for: input.id }, label), input);
}

// A form for a change of `target`, which has the domain, and the rule or the descriptor. `onMade` is called
// after a change.
export function changeForm(target, onMade) {
  const input = (props) => el("input", { autocomplete: "off", spellcheck: "false", dir: "ltr", ...props });
  const kind = el("select", { name: "kind" }, ...KINDS.map(([name, text]) => el("option", { value: name }, text)));
  const requests = input({ name: "requests", "data-number": "" });
  const length = input({ name: "for", value: "1h", required: true });
  const reason = input({ name: "reason", maxlength: 500 });
  const user = input({ name: "user", maxlength: 100 });
  const numbers = field("Limit (10, bucket 10:20, windows 5,100)", requests);
  const result = el("p", { class: "result", role: "status" });
  kind.addEventListener("change", () => {
    numbers.hidden = kind.value !== "limit";
  });

  async function make(event) {
    event.preventDefault();
    setText(result, "");
    try {
      if (!/^[\x20-\x7e]*$/.test(user.value)) throw new Error("write your name with ASCII characters");
      const action = kind.value === "limit" ? { limit: written(parseLimit(requests.value)) } : { [kind.value]: true };
      const body = { ...target, ...action, for: length.value.trim(), reason: reason.value };
      const question = [KINDS.find(([name]) => name === kind.value)[1], " for ", value(length.value, 40), ": ",
        value(target.rule ?? target.descriptor, 300), " in the domain ", value(target.domain)];
      const isSure = kind.value === "limit" || (await confirmed("Make this change?", question, "Make the change"));
      if (!isSure) return;
      const made = await api("changes", { method: "PATCH", body, user: user.value.trim() });
      const where = made.scope === "all_instances" ? "in all instances" : "in this process only";
      setText(result, `The change is active ${where}, until ${clock(made.change.until)}.`);
      await onMade();
    } catch (error) {
      setText(result, cut(error.message, 1000));
    }
  }

  return el("form", { "data-change": "", class: "form", onsubmit: make },
    field("Change", kind), numbers, field("For (such as 30m, 2h)", length), field("Reason", reason),
    field("Your name, for the log", user),
    el("p", {}, el("button", { type: "submit" }, "Make the change")), result);
}

// The numbers as the port reads them: a number alone has no object.
function written(limit) {
  const one = (tier) => (tier.burst === undefined ? tier.requests : tier);
  return Array.isArray(limit) ? limit.map(one) : one(limit);
}

function effect({ action, limit }) {
  const tier = ({ requests, burst }) => number(requests) + (burst === undefined ? "" : ` (burst ${number(burst)})`);
  if (action === "limit") return `limit ${(limit ?? []).map(tier).join(", ")}`;
  return action === "block" ? "denies all requests" : "lets all requests pass";
}

// A list of changes, each with a button that ends it. `onEnded` is called after that. Drawn only when the
// changes differ, so that the focus stays.
export function changeList(title, onEnded) {
  const heading = el("h3", { tabindex: "-1" }, title);
  const items = el("ul", { class: "changes" });
  const result = el("p", { class: "result", role: "status" });
  const node = el("div", { hidden: true }, heading, items, result);
  let drawn = "";

  async function end(id) {
    try {
      await api(`changes/${encodeURIComponent(id)}`, { method: "DELETE" });
      setText(result, "The change is ended.");
      heading.focus();
      await onEnded();
    } catch (error) {
      setText(result, cut(error.message, 1000));
    }
  }

  return {
    node,
    set(changes, describe = () => []) {
      const shape = JSON.stringify(changes);
      if (shape === drawn) return;
      drawn = shape;
      node.hidden = changes.length === 0 && result.textContent === "";
      items.replaceChildren(...changes.map((change) => el("li", {},
        ...describe(change), effect(change), ` until ${clock(change.until)}`,
        ...(change.by ? [", by ", value(change.by, 60)] : []),
        ...(change.reason ? [": ", value(change.reason, 200)] : []),
        ...(change.problem ? [" (without effect: ", value(change.problem, 300), ")"] : []), " ",
        el("button", { type: "button", "data-end": change.id, onclick: () => end(change.id) }, "End"))));
    },
  };
}
