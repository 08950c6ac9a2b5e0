// The page of the studio. It holds what is chosen and nothing else; plans, figures and steps are the server's.

import {draw} from "/drawing.js";

const $ = id => document.getElementById(id);
const WORDS = {useful: "good", coarse: "note", "noise only": "bad"};
const MOST_SHOWN = 8;
const EDGES = "edges", LEARN = "learn", LIST = "list", OPAQUE = "opaque", RANGE = "range";
const now = {
  state: null, outlook: null, steps: {}, ledger: null, step: "schema", table: null, picks: [], drafts: new Map(), paired: "",
  epsilon: history.state?.epsilon ?? 1, delta: history.state?.delta ?? 1e-6, scale: 1, seed: 0, workers: 1, form: "sqlite", asked: 0, busy: false,
};

if (location.search) history.replaceState(null, "", "/");

// -- small pieces -----------------------------------------------------------------------------------------------------

function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "value" || key === "checked" || key === "selected") made[key] = value;
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter(c => c !== null && c !== undefined && c !== false));
  return made;
}

const number = x => Number(x).toLocaleString("en", {maximumFractionDigits: 0});
const figure = x => Number(x).toLocaleString("en", {maximumSignificantDigits: 3});
const percent = x => x > .9995 ? "100 %" : `${(100 * x).toFixed(x >= .1 ? 0 : 1)} %`;
const plural = (n, one, many = `${one}s`) => `${number(n)} ${n === 1 ? one : many}`;
const list = names => names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;

// A name may be broken after a dot or an underscore, and nowhere else while there is room.
const broken = name => name.split(/(?<=[._])/).flatMap((part, i) => i ? [el("wbr"), part] : [part]);

function span(seconds) {
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

async function ask(name, body = {}) {
  let answer;
  try {
    answer = await fetch(`/api/${name}`, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body)});
  } catch {
    throw new Error("The studio does not answer. Is it still running in its terminal?");
  }
  const found = await answer.json();
  if (found.error !== undefined) throw new Error(found.error);
  return found;
}

function complain(text) {
  $("error").hidden = !text;
  if (!text) return;
  $("error").replaceChildren(el("strong", {}, "Not done. "), text);
  $("error").scrollIntoView({block: "nearest"});
}

const say = text => { $("said").textContent = text; };

// Keep the keyboard where it was when a part of the page is drawn again.
function redraw(box, ...children) {
  const active = document.activeElement;
  const kept = box.contains(active) ? active.dataset.at ?? active.id : null;
  const range = kept && active.tagName === "INPUT" && active.type === "text" ? active.selectionStart : null;
  const open = new Set([...box.querySelectorAll("details[open]")].map(d => d.dataset.at));
  box.replaceChildren(...children.flat().filter(Boolean));
  for (const d of box.querySelectorAll("details")) if (open.has(d.dataset.at)) d.open = true;
  if (!kept) return;
  const again = [...box.querySelectorAll("[data-at],[id]")].find(e => (e.dataset.at ?? e.id) === kept);
  if (again) { again.focus({preventScroll: true}); if (range !== null) again.setSelectionRange(range, range); }
}

function dialog(title, body, buttons) {
  const box = $("dialog");
  $("dialog-h").textContent = title;
  $("dialog-body").replaceChildren(...[body].flat());
  return new Promise(done => {
    const close = value => { box.close(); done(value); };
    $("dialog-buttons").replaceChildren(...buttons.map(([text, value, kind]) =>
      el("button", {type: "button", class: kind, onclick: () => close(value)}, text)));
    box.oncancel = () => done(null);
    box.showModal();
  });
}

function diffOf(lines) {
  if (!lines.length) return el("p", {}, "Nothing differs from the file.");
  return el("pre", {tabindex: "0", role: "region", "aria-label": "Changes, line by line"}, lines.map(line => {
    const kind = line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : "";
    return el("span", {class: kind}, `${line}\n`);
  }));
}

// -- the plan and its file --------------------------------------------------------------------------------------------

let turn = Promise.resolve();

// Changes are made one after the other, in the order in which they were asked for.
function change(name, body = {}) {
  turn = turn.then(() => changed(name, body));
  return turn;
}

async function changed(name, body) {
  try {
    take(await ask(name, body));
    complain("");
    return true;
  } catch (error) {
    try { take(await ask("state")); } catch { show(); }  // what was refused may say that something else has changed
    complain(error.message);
    return false;
  }
}

const edit = (path, value) => change("edit", {edits: [{path, value}]});

function take(state) {
  const before = now.state?.text;
  now.state = state;
  if (before !== state.text) now.paired = "";
  const names = state.plan.tables.map(t => t.name);
  if (!names.includes(now.table)) now.table = state.plan.protect[0] ?? names[0];
  now.picks = now.picks.filter(p => table(p.table)?.columns.some(c => c.name === p.column));
  show();
  if (before === state.text) return;
  predict();
  if (now.step === "budget") check();
}

const table = name => now.state.plan.tables.find(t => t.name === name);

function show() {
  const s = now.state;
  $("source").textContent = `${s.source}`;
  $("plan-name").textContent = s.path;
  const badge = $("saved");
  badge.textContent = s.saved ? "saved" : s.exists ? "changed, not saved" : "a draft, not saved";
  badge.className = `badge ${s.saved ? "good" : "note"}`;
  $("undo").disabled = !s.undo;
  $("redo").disabled = !s.redo;
  $("changes").disabled = !s.difference.length;
  $("save").disabled = s.saved;
  if (s.news) $("news").textContent = s.news;
  $("conflict").hidden = !s.conflict;
  if (s.conflict) {
    redraw($("conflict"), el("strong", {}, `Somebody changed ${s.path} on disk while you changed it here. `),
      el("div", {class: "buttons"},
        el("button", {type: "button", onclick: () => $("changes").click()}, "Show the difference"),
        el("button", {type: "button", onclick: () => change("take_disk")}, "Take the one on disk (undo brings yours back)"),
        el("button", {type: "button", onclick: save}, "Write mine over it")));
  }
  for (const button of document.querySelectorAll("#steps button")) {
    if (button.dataset.step === now.step) button.setAttribute("aria-current", "step");
    else button.removeAttribute("aria-current");
  }
  for (const name of ["schema", "columns", "budget", "run"]) $(name).hidden = name !== now.step;
  ({schema: showSchema, columns: showColumns, budget: showBudget, run: showRun})[now.step]();
  showSummary();
}

async function save() {
  const s = now.state;
  if (s.exists || s.conflict) {
    const title = s.conflict ? `Write over what somebody else wrote in ${s.path}?` : `Write these changes to ${s.path}?`;
    if (!await dialog(title, diffOf(s.difference), [["Cancel", false], ["Write", true, "main"]])) return;
  }
  if (await change("save", {disk: s.disk})) say("The plan is saved.");
}

$("save").addEventListener("click", save);
$("undo").addEventListener("click", () => change("undo"));
$("redo").addEventListener("click", () => change("redo"));
$("changes").addEventListener("click", () => dialog("What saving would change", diffOf(now.state.difference), [["Close", null]]));

function go(step) {
  now.step = step;
  now.paired = "";
  complain("");
  show();
  if (step === "run") refreshRun();
  if (step === "budget") { help(); check(); }
  $("main").focus({preventScroll: true});
  window.scrollTo(0, 0);
}
for (const button of document.querySelectorAll("#steps button")) button.addEventListener("click", () => go(button.dataset.step));
for (const button of document.querySelectorAll("[data-next]")) button.addEventListener("click", () => go(button.dataset.next));

function showSummary() {
  const o = now.outlook;
  if (!o) { redraw($("summary"), "Working out what a copy would be worth…"); return; }
  const words = Object.entries(o.counts).filter(([, n]) => n)
    .map(([word, n], i) => [i ? ", " : "", el("strong", {class: WORDS[word]}, `${n} ${word}`)]);
  redraw($("summary"), `At epsilon ${figure(o.epsilon)}, predicted for ${o.judged.length} tables and relations: `, words.flat(),
    o.guessed.length ? ", if tables are as large as guessed." : ".");
  $("summary").classList.toggle("waiting", now.busy);
}

// -- schema -----------------------------------------------------------------------------------------------------------

function unitOf(t) {
  const units = now.state.plan.units;
  if (units[t.name]) return {table: t.name, rows: units[t.name]};
  const found = Object.entries(units).find(([, rows]) => rows[t.name]);
  return t.role !== "public" && found ? {table: found[0], rows: found[1]} : {table: null, rows: {}};
}

function choose(name) {
  now.table = name;
  show();
}

function showSchema() {
  const plan = now.state.plan, t = table(now.table), unit = unitOf(t);
  draw($("drawing"), plan, now.table, unit, choose);
  $("schema-command").textContent = now.state.commands.schema;
  const open = plan.could_be_public;
  redraw($("hints"), open.length ? el("div", {}, el("p", {class: "note"}, el("strong", {}, "Look at "), list(open),
    ": protected so far, and perhaps reference data. Make it public if anybody may see it; each protected table needs budget."),
    el("div", {class: "buttons"}, open.slice(0, 3).map(name => el("button", {type: "button", class: "small", "data-at": `open ${name}`, onclick: async () => {
      if (await change("role", {table: name, role: "public"})) { choose(name); $("role-public").focus({preventScroll: true}); say(`${name} is public now.`); }
    }}, `Anybody may see ${name}: make it public`)))) : null);
  redraw($("table-panel"), el("h3", {}, t.name), roles(t), said(t, unit), keys(t));
}

const ROLES = {
  protected: ["Protected", "One row, with all that goes with it, stays hidden. Take the table whose rows stand for people."],
  owned: ["Owned", "Its rows belong to a row of a protected table, and are hidden with it."],
  public: ["Public", "Anybody may see it. It is copied as it is, and nothing is promised of it."],
};

function roles(t) {
  return el("div", {role: "group", "aria-label": `What is a row of ${t.name}?`}, el("h4", {}, `What is a row of ${t.name}?`),
    Object.entries(ROLES).map(([role, [name, words]]) => {
      const id = `role-${role}`;
      return el("div", {class: "choice"},
        el("button", {type: "button", id, "data-at": id, class: `role ${role}`, "aria-pressed": String(t.role === role), "aria-describedby": `${id}-said`, onclick: async () => {
          if (t.role !== role && await change("role", {table: t.name, role})) say(`${t.name} is ${role} now.`);
        }}, t.role === role ? `✓ ${name}` : name),
        el("span", {class: "soft", id: `${id}-said`}, words));
    }));
}

function said(t, unit) {
  if (!unit.table) return el("p", {}, `${t.name} is public: nobody is hidden in it.`);
  const others = Object.entries(unit.rows).filter(([name]) => name !== unit.table).sort(([a], [b]) => (b === t.name) - (a === t.name));
  const items = some => el("ul", {}, some.map(([name, rows]) => el("li", {}, `${plural(rows, "row")} of ${name}`)));
  return el("div", {class: "card"},
    el("strong", {}, `One row of ${unit.table} is one unit.`), " ",
    others.length ? "With it goes, at most:" : "Nothing else goes with it.",
    others.length ? items(others.slice(0, MOST_SHOWN)) : null,
    others.length > MOST_SHOWN ? el("details", {"data-at": "unit"}, el("summary", {}, `and rows of ${others.length - MOST_SHOWN} more tables`), items(others.slice(MOST_SHOWN))) : null,
    el("p", {class: "soft"}, now.state.plan.neighbours === "entity"
      ? "A copy hardly tells whether this unit is in the database at all. How little it tells is set by epsilon."
      : "A copy hardly tells what this row says; that it is there is not hidden. How little it tells is set by epsilon."));
}

const KEY_ROLES = {
  owning: "owning: its rows belong there", shared: "shared: hidden with both", linking: "linking: a link between units",
  attribute: "attribute: leads to public rows",
};

function keys(t) {
  if (!t.keys.length) return el("p", {class: "soft"}, "No foreign key leads from here.");
  return el("div", {}, el("h4", {}, "Foreign keys"), el("ul", {class: "plain"}, t.keys.map(k => {
    const at = `${t.name}.${k.name}`;
    const select = k.roles.length < 2 ? el("span", {}, KEY_ROLES[k.role] ?? "between public tables") :
      el("select", {"aria-label": `Role of ${at}`, "data-at": `role of ${at}`, onchange: e => change("key", {table: t.name, key: k.name, role: e.target.value})},
        k.roles.map(r => el("option", {value: r, selected: r === k.role}, KEY_ROLES[r])));
    return el("li", {}, el("strong", {}, k.columns.join(", ")), " → ", k.target,
      el("div", {class: "line"}, select, bound(t, k), order(t, k)),
      k.said.length ? el("details", {"data-at": `said ${at}`}, el("summary", {class: "soft"}, "What this hides, and what it costs"),
        k.said.map(words => el("p", {class: "soft"}, words))) : null);
  })));
}

function bound(t, k) {
  if (k.max_degree === null || k.role === "public" || k.role === "attribute") return null;
  const at = `${t.name}.${k.name}`;
  return el("label", {}, `at most, per row of ${k.target}`, el("input", {
    type: "number", min: "1", step: "1", value: k.max_degree, "data-at": `bound of ${at}`,
    onchange: e => edit(["tables", t.name, "keys", k.name, "max_degree"], whole(e.target.value)),
  }));
}

// By which column rows of one owner come one after the other.
function order(t, k) {
  if (!k.orders.length) return null;
  const at = `${t.name}.${k.name}`;
  return el("label", {}, `rows of one row of ${k.target} come`, el("select", {"data-at": `order of ${at}`,
    onchange: e => edit(["tables", t.name, "keys", k.name, "order_by"], e.target.value || null)},
    el("option", {value: "", selected: !k.order_by}, "in no order"),
    k.orders.map(c => el("option", {value: c, selected: c === k.order_by}, `in the order of ${c}`))));
}

const whole = text => text === "" ? null : Number(text);

// -- columns and bounds -----------------------------------------------------------------------------------------------

function showColumns() {
  const t = table(now.table), plan = now.state.plan;
  $("columns-command").textContent = now.state.commands.columns;
  const pick = el("div", {class: "line card"},
    el("label", {}, "Table", el("select", {"data-at": "table", onchange: e => choose(e.target.value)},
      plan.tables.map(o => el("option", {value: o.name, selected: o.name === t.name}, `${o.name} (${[o.role, toLearn(o)].filter(Boolean).join(", ")})`)))),
    t.role === "public" ? null : size(t));
  const body = t.role === "public"
    ? el("p", {}, `${t.name} is public and copied as it is. Nothing has to be declared.`)
    : el("ul", {class: "plain card", "aria-label": `Columns of ${t.name}`}, t.columns.map(c => columnOf(t, c)));
  const untyped = now.state.untyped.includes(t.name) && t.role !== "public"
    ? el("p", {class: "note"}, `The file of ${t.name} says no types: a column is text until you say what you know of it; a number or a date can have a range.`) : null;
  redraw($("columns-body"), pick, picked(), untyped, body, links(t), rules(plan));
}

function toLearn(t) {
  const left = t.role === "public" ? 0 : t.columns.filter(c => c.domain.form === LEARN).length;
  return left ? `${left} to learn` : "";
}

function size(t) {
  return [
    el("label", {}, "About how many rows (if no secret)", el("input", {type: "number", min: "0", step: "1", value: t.rows ?? "", "data-at": "rows",
      onchange: e => change("edit", {edits: [{path: ["tables", t.name, "rows"], value: whole(e.target.value)},
        ...(e.target.value === "" && t.rows_public ? [{path: ["tables", t.name, "rows_public"], value: null}] : [])]})})),
    el("label", {}, el("input", {type: "checkbox", checked: t.rows_public, disabled: t.rows === null, "data-at": "rows_public",
      onchange: e => edit(["tables", t.name, "rows_public"], e.target.checked || null)}), "exact, and public"),
  ];
}

function links(t) {
  const able = t.keys.filter(k => k.max_degree !== null && !["public", "attribute"].includes(k.role));
  if (!able.length) return null;
  return el("div", {class: "card"}, el("h3", {}, "Bounds"), el("p", {class: "soft"},
    "How many rows are counted with one row. Rows beyond a bound are left out; a higher bound leaves out fewer rows and needs more noise in some places."),
    able.map(k => el("div", {class: "line"}, el("strong", {}, `${t.name} by ${k.name}: `), bound(t, k))));
}

const FORMS = {[LEARN]: "learn it (costs budget)", [LIST]: "one of a list", [RANGE]: "a range", [EDGES]: "a range, own edges", [OPAQUE]: "made up (not modelled)"};

function formsOf(c) {
  const ranged = c.ordered ? [RANGE, EDGES] : [];
  return [LEARN, LIST, ...ranged, OPAQUE].filter(f => !(c.kind === "boolean" && f === EDGES));
}

const TYPES = ["text", "int64", "float64", "decimal(12,2)", "boolean", "date", "timestamp", "time"];

// What a column of a file without types is. Its values are said anew then.
function typeOf(t, c) {
  if (!now.state.untyped.includes(t.name) || c.in_key) return el("div", {class: "soft"}, c.type);
  const place = ["tables", t.name, "columns", c.name];
  const chosen = e => { now.drafts.delete(`${t.name}.${c.name}`); change("edit", {edits: [{path: [...place, "type"], value: e.target.value}, {path: [...place, "domain"], value: LEARN},
    ...(c.placeholder ? [{path: [...place, "placeholder"], value: null}] : [])]}); };
  return el("div", {}, el("select", {"aria-label": `Type of ${c.name}`, "data-at": `type ${t.name}.${c.name}`, onchange: chosen},
    [...new Set([c.type, ...TYPES])].map(name => el("option", {value: name, selected: name === c.type}, name))));
}

function columnOf(t, c) {
  const at = `${t.name}.${c.name}`, form = now.drafts.get(at) ?? c.domain.form;
  const place = ["tables", t.name, "columns", c.name];
  const head = el("div", {}, el("strong", {}, c.name), typeOf(t, c),
    c.in_key && !c.leads ? null : el("label", {class: "soft"}, el("input", {type: "checkbox", checked: c.nullable, "data-at": `null ${at}`, "aria-label": `${c.name} may be null`,
      onchange: e => edit([...place, "nullable"], e.target.checked ? null : false)}), " may be null"));
  if (form === "key") return el("li", {class: "column"}, head, el("div", {class: "soft"}, "Part of a key: made anew, or led by the foreign key."));
  const select = el("select", {"aria-label": `Values of ${c.name}`, "data-at": `form ${at}`, onchange: e => formChosen(t, c, e.target.value)},
    formsOf(c).map(f => el("option", {value: f, selected: f === form}, FORMS[f])));
  const chosen = now.picks.some(p => p.table === t.name && p.column === c.name);
  const pick = el("button", {type: "button", class: "small", "aria-pressed": String(chosen), "data-at": `pick ${at}`, "aria-label": `${chosen ? "Picked" : "Pick"} ${at} for a workload or a rule`,
    onclick: () => togglePick(t.name, c.name)}, chosen ? "picked" : "pick");
  return el("li", {class: "column"}, head, el("div", {class: "line"}, select, fields(t, c, form, [...place, "domain"])), pick);
}

function formChosen(t, c, form) {
  const place = ["tables", t.name, "columns", c.name, "domain"];
  const at = `${t.name}.${c.name}`;
  now.drafts.delete(at);
  if (form === LEARN || form === OPAQUE) { edit(place, form); return; }
  if (form !== c.domain.form) now.drafts.set(at, form);
  show();
}

function fields(t, c, form, place) {
  const d = c.domain.form === form ? c.domain : {}, at = `${t.name}.${c.name}`;
  const type = ["date", "time"].includes(c.kind) ? c.kind : c.kind === "timestamp" ? "datetime-local" : "number";
  const numeric = ["integer", "float"].includes(c.kind);
  const settle = (to, value) => { now.drafts.delete(at); return edit(to, value); };
  const missing = what => c.domain.form !== form ? el("span", {class: "note"}, `${what}; until then the plan says: ${FORMS[c.domain.form]}`) : null;
  const read = text => text === "" ? null : numeric ? Number(text) : c.kind === "boolean" ? text === "true" : text;
  const input = (name, value, kind = type, more = {}) => el("input", {type: kind, step: kind === "number" || kind === "time" || kind === "datetime-local" ? "any" : null,
    value: value ?? "", "aria-label": `${c.name}: ${name}`, "data-at": `${name} ${at}`, ...more});
  if (form === LEARN) {
    const price = now.outlook?.learned.find(l => l.column === at);
    const words = !price ? "" : price.kind === "categories" ? `a value needs about ${number(price.threshold)} ${price.by_unit ? "owners" : "rows"} to be found`
      : `needs about ${number(price.threshold ?? price.sigma)} rows to be good`;
    if (!c.ordered) return el("span", {class: "soft"}, words);
    const low = input("lowest", d.low), high = input("highest", d.high), bins = input("bins", d.bins ?? 16, "number", {min: "1", max: "1000"});
    const apply = () => {
      const value = {learn: true, bins: Number(bins.value || 16)};
      if (low.value !== "") value.low = read(low.value);
      if (high.value !== "") value.high = read(high.value);
      settle(place, value.low === undefined && value.high === undefined && value.bins === 16 ? LEARN : value);
    };
    for (const i of [low, high, bins]) i.addEventListener("change", apply);
    return [el("label", {}, "from", low), el("label", {}, "to", high), el("label", {}, "bins", bins),
      el("span", {class: "soft"}, [words, d.low || d.high ? "" : "both ends may stay empty"].filter(Boolean).join("; "))];
  }
  if (form === LIST) {
    const area = el("textarea", {"aria-label": `${c.name}: values, one per line`, "data-at": `values ${at}`, rows: Math.min(8, Math.max(2, (d.values ?? []).length)), class: "grow"});
    area.value = (d.values ?? []).join("\n");
    const other = el("input", {type: "checkbox", checked: d.other ?? false, "data-at": `other ${at}`});
    const apply = () => {
      const values = area.value.split("\n").map(v => v.trim()).filter(v => v !== "").map(read);
      if (values.length) settle(place, other.checked ? {values, other: true} : values);
    };
    area.addEventListener("change", apply);
    other.addEventListener("change", apply);
    return [el("span", {class: "grow"}, el("span", {class: "soft"}, "one value per line"), area), el("label", {}, other, "and others"),
      missing("give one value at least")];
  }
  if (form === RANGE) {
    const low = input("lowest", d.low), high = input("highest", d.high), bins = input("bins", d.bins ?? 10, "number", {min: "1"});
    const apply = () => {
      if (low.value === "" || high.value === "") return;
      const value = {low: read(low.value), high: read(high.value), bins: Number(bins.value || 10)};
      if (d.step) value.step = d.step;
      settle(place, value);
    };
    for (const i of [low, high, bins]) i.addEventListener("change", apply);
    return [el("label", {}, "from", low), el("label", {}, "to", high), el("label", {}, "in bins", bins),
      missing("give both ends")];
  }
  if (form === EDGES) {
    const text = input("edges, with commas", (d.edges ?? c.domain.edges ?? []).join(", "), "text", {class: "grow"});
    text.addEventListener("change", () => {
      const edges = text.value.split(",").map(v => v.trim()).filter(v => v !== "").map(read);
      if (edges.length > 1) settle(place, {edges});
    });
    return [el("label", {class: "grow"}, "edges", text, el("span", {class: "soft"}, "each bin goes from one edge to below the next")),
      missing("give two edges at least")];
  }
  if (form === OPAQUE) return el("span", {class: "soft"}, c.placeholder ? `made-up values: ${c.placeholder}` : "filled with made-up values, never from a row");
  return null;
}

function togglePick(t, column) {
  const had = now.picks.findIndex(p => p.table === t && p.column === column);
  if (had >= 0) now.picks.splice(had, 1);
  else now.picks = [...now.picks, {table: t, column}].slice(-2);
  now.paired = "";
  show();
}

function picked() {
  if (!now.picks.length && now.paired) return el("p", {class: "good", role: "status"}, el("strong", {}, "Noted. "), `${now.paired} stands in the lists below.`);
  if (!now.picks.length) return el("p", {class: "soft"}, "Pick two columns, of one table or of two, to say that how they go together matters, or to set a rule.");
  const names = now.picks.map(p => `${p.table}.${p.column}`);
  const [a, b] = now.picks, same = b && a.table === b.table;
  const [one, other] = now.picks.map(p => table(p.table).columns.find(c => c.name === p.column));
  const orders = same && one.ordered && other.ordered && one.kind === other.kind;
  const add = async (path, value) => { now.picks = []; if (await change("edit", {edits: [{path, value}]})) { now.paired = names.join(" × "); show(); } };
  return el("div", {class: "picked", role: "status"}, el("strong", {}, names.join(" × ")), b ? null : " · pick a second column",
    b ? el("div", {class: "buttons"},
      el("button", {type: "button", onclick: () => add(["workloads", "new"], {columns: names})}, "They matter together"),
      orders ? el("button", {type: "button", onclick: () => add(["constraints", "new"], {table: a.table, lower: a.column, upper: b.column})}, `Rule: ${a.column} ≤ ${b.column}`) : null,
      same ? el("button", {type: "button", onclick: () => add(["constraints", "new"], {table: a.table, columns: [a.column], dependent: b.column})}, `Rule: ${a.column} decides ${b.column}`) : null,
      el("button", {type: "button", onclick: () => { now.picks = []; show(); }}, "Let go")) : null);
}

function rules(plan) {
  const item = (words, path) => el("li", {class: "line"}, el("span", {class: "grow"}, words),
    el("button", {type: "button", class: "small", "aria-label": `Remove ${words}`, onclick: () => edit(path, null)}, "remove"));
  return el("div", {class: "columns even"},
    el("div", {class: "card"}, el("h3", {}, "What matters most together"),
      plan.workloads.length ? el("ul", {class: "plain"}, plan.workloads.map((w, i) => item(w.columns.join(" × "), ["workloads", i])))
        : el("p", {class: "soft"}, "Nothing is named. The budget then serves everything alike.")),
    el("div", {class: "card"}, el("h3", {}, "Rules that every copy keeps"),
      plan.constraints.length ? el("ul", {class: "plain"}, plan.constraints.map((c, i) => item(c.said, ["constraints", i])))
        : el("p", {class: "soft"}, "None. Other kinds of rules can be written in the plan file; the studio reads it again."),
    ));
}

// -- budget -----------------------------------------------------------------------------------------------------------

let later = null, helping = null, keeping = null;

// What is chosen here is spent later: it must not fall back to the usual when the page is loaded again.
function keep() {
  clearTimeout(keeping);
  keeping = setTimeout(() => history.replaceState({epsilon: now.epsilon, delta: now.delta}, ""), 200);
}

async function predict() {
  const asked = ++now.asked;
  now.busy = true;
  showSummary();
  try {
    now.promise = await ask("promise", {epsilon: now.epsilon});
    if (asked !== now.asked) return;
    if (now.step === "budget") showPromise();
    const found = await ask("outlook", {epsilon: now.epsilon, delta: now.delta});
    if (asked !== now.asked || found.stale) return;
    now.outlook = found;
    now.offers = null;
  } catch (error) {
    if (asked === now.asked) complain(error.message);
    return;
  } finally {
    if (asked === now.asked) now.busy = false;
  }
  // Not `later`: a newer epsilon may be waiting there, and would never be asked about.
  if (now.step === "budget") { showBudget(); clearTimeout(helping); helping = setTimeout(help, 400); }
  if (now.step === "run") showRun();
  if (now.step === "columns") showColumns();
  showSummary();
}

async function help() {
  const asked = now.asked;
  if (!now.outlook) return;
  try {
    const found = await ask("helpful", {epsilon: now.epsilon, delta: now.delta});
    if (asked !== now.asked || found.stale) return;
    now.offers = found.offers;
    if (now.step === "budget") showHelp();
  } catch { /* what would help is not worth an alarm */ }
}

async function check() {
  const text = now.state.text;
  try {
    const {findings} = await ask("check");
    if (text !== now.state.text) return;
    now.findings = findings;
    if (now.step === "budget") showWarnings();
  } catch (error) { complain(error.message); }
}

function showBudget() {
  if (document.activeElement !== $("epsilon")) $("epsilon").value = Number(now.epsilon.toPrecision(3));
  if (document.activeElement !== $("delta")) $("delta").value = now.delta;
  $("epsilon-slider").value = Math.log10(now.epsilon);
  $("epsilon-slider").setAttribute("aria-valuetext", `epsilon ${figure(now.epsilon)}`);
  $("delta-slider").value = Math.log10(now.delta);
  $("delta-slider").setAttribute("aria-valuetext", `delta ${now.delta}`);
  $("delta-said").textContent = `The promise may fail with a chance of one in ${number(1 / now.delta)}. Take well below one in the number of units.`;
  showPromise();
  const o = now.outlook;
  $("verdict").classList.toggle("waiting", now.busy);
  if (!o) return;
  $("budget-command").textContent = o.command;
  redraw($("verdict"), verdictTable(o.judged, "Predicted"), o.guessed.length
    ? guessWords(o) : null);
  showHelp();
  showWarnings();
}

function showPromise() {
  const o = now.promise;
  if (!o) return;
  const unit = now.state.plan.protect.length === 1 ? `one row of ${now.state.plan.protect[0]}` : "a protected row";
  redraw($("promise"), el("h3", {}, "The promise"), el("p", {}, o.statement),
    o.guesses.map(g => el("p", {}, `Somebody who is ${percent(g.before)} sure of a guess about ${unit} can become at most `,
      el("strong", {}, percent(g.after)), " sure of it by the copy, whatever else they know.")),
    o.adds_up > 1 ? el("p", {class: "note"}, `For a person with a row in several of ${list(now.state.plan.protect)}, epsilon counts up to ${o.adds_up} times.`) : null);
}

function guessWords(o) {
  const some = o.guessed.length > 4 ? [...o.guessed.slice(0, 4), `${o.guessed.length - 4} more`] : o.guessed;
  return el("p", {class: "note"}, el("strong", {}, "These are guesses. "),
    `How many rows there are is not said of ${list(some)}. With fewer rows than the guess, the copy will be worse than predicted.`);
}

function verdictTable(judged, caption, before = null) {
  const old = new Map((before ?? []).map(j => [j.name, j]));
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption}, el("table", {}, el("caption", {}, `${caption}. Error: part of the rows that noise puts in the wrong place. Up to ${now.state.limits.useful} is useful, up to ${now.state.limits.coarse} coarse.`),
    el("thead", {}, el("tr", {}, el("th", {scope: "col"}, "Table or relation"), el("th", {scope: "col"}, "Worth"), el("th", {scope: "col", class: "n"}, "Error"),
      before ? el("th", {scope: "col"}, "Predicted") : null, el("th", {scope: "col", class: "n"}, "Rows"))),
    el("tbody", {}, judged.map(j => el("tr", {},
      el("th", {scope: "row"}, broken(j.name), j.unlearned.length ? el("div", {class: "soft"}, `not learned: ${j.unlearned.join(", ")}`) : null),
      el("td", {}, el("span", {class: `badge ${WORDS[j.word]}`}, j.word)), el("td", {class: "n"}, j.error.toFixed(2)),
      before ? el("td", {}, old.get(j.name)?.word ?? "–") : null,
      el("td", {class: "n"}, j.rows === null ? "" : `${figure(Math.round(j.rows))}${j.band ? ` ± ${number(Math.max(j.band, 1))}` : ""}`))))));
}

function showHelp() {
  const offers = now.offers;
  const toDeclare = (now.outlook?.judged ?? []).flatMap(j => j.unlearned.map(c => [j.name, c])).slice(0, 4);
  const guessed = (now.outlook?.guessed ?? []).slice(0, 3).map(t => el("li", {}, el("button", {type: "button", onclick: () => {
    now.table = t; go("columns"); document.querySelector('[data-at="rows"]')?.focus();
  }}, `Say about how many rows ${t} has …`)));
  const jump = [...guessed, ...toDeclare.map(([t, c]) => el("li", {}, el("button", {type: "button", onclick: () => {
    now.table = t; go("columns"); document.querySelector(`[data-at="form ${CSS.escape(`${t}.${c}`)}"]`)?.focus();
  }}, `Declare the values of ${t}.${c} …`)))];
  const open = now.state.plan.could_be_public.slice(0, 3).map(t => el("li", {}, el("button", {type: "button", onclick: () => {
    now.table = t; go("schema"); $("role-public").focus();
  }}, `May anybody see ${t}? Then make it public …`)));
  jump.unshift(...open);
  if (!offers) { redraw($("help"), el("p", {class: "soft"}, "Trying changes…"), el("ul", {class: "plain"}, jump)); return; }
  redraw($("help"), jump.length || offers.length ? null : el("p", {}, now.outlook.counts.useful === now.outlook.judged.length
    ? "Everything is useful already. Nothing has to be changed." : "No small change would help much."),
    el("ul", {class: "plain"}, jump, offers.map((o, i) => el("li", {}, el("p", {}, o.text),
      el("div", {class: "line"}, el("button", {type: "button", "data-at": `offer ${i}`, "aria-label": `Apply: ${o.text}`, onclick: () => apply(o)}, "Apply"),
        el("span", {class: "soft"}, `mean error ${o.before.toFixed(2)} → ${o.after.toFixed(2)}, ${plural(o.useful, "useful one", "useful ones")}`))))));
}

async function apply(offer) {
  if (offer.epsilon) { now.epsilon = offer.epsilon; keep(); predict(); say(`Epsilon is ${figure(offer.epsilon)} now.`); return; }
  if (await change("edit", {edits: offer.edits})) say("Applied. Undo takes it back.");
}

function showWarnings() {
  const found = now.findings ?? [], warnings = now.outlook?.warnings ?? [];
  redraw($("warnings"), el("ul", {},
    found.filter(f => f.severity !== "note").map(f => el("li", {}, el("strong", {class: f.severity === "wrong" ? "bad" : "note"}, `${f.severity}: `), `${f.where}: ${f.text}`)),
    warnings.map(w => el("li", {}, w)),
    found.filter(f => f.severity === "note").map(f => el("li", {class: "soft"}, `${f.where}: ${f.text}`))));
}

function asked(name, value) {
  if (!(value > 0) || (name === "delta" && value >= 1)) return;
  now[name] = Number(value.toPrecision(3));
  keep();
  clearTimeout(later);
  showBudget();
  later = setTimeout(predict, 20);
}
$("epsilon-slider").addEventListener("input", e => asked("epsilon", 10 ** Number(e.target.value)));
$("delta-slider").addEventListener("input", e => asked("delta", 10 ** Number(e.target.value)));
$("epsilon").addEventListener("change", e => asked("epsilon", Number(e.target.value)));
$("delta").addEventListener("change", e => asked("delta", Number(e.target.value)));

// -- run --------------------------------------------------------------------------------------------------------------

async function refreshRun() {
  try {
    const [ledger, steps, planned] = await Promise.all([ask("ledger", {delta: now.delta}), ask("steps"), ask("planned_fit", {epsilon: now.epsilon, delta: now.delta})]);
    Object.assign(now, {ledger, steps: steps.steps, planned: planned.command});
  } catch (error) { complain(error.message); }
  if (now.step === "run") showRun();
}

let watching = null;

async function watch() {
  clearTimeout(watching);
  const ran = Object.values(now.steps).find(s => s.state === "running")?.name, before = standing();
  try { now.steps = (await ask("steps")).steps; } catch (error) { complain(error.message); return; }
  if (Object.values(now.steps).some(s => s.state === "running")) watching = setTimeout(watch, 500);
  else {
    if (ran) say(`${ran}: ${now.steps[ran]?.state}.`);
    await refreshRun();
    take(await ask("state"));
  }
  if (now.step === "run" && !(standing() === before && advanced(now.steps[ran]))) showRun();
}

const standing = () => Object.values(now.steps).map(s => `${s.name} ${s.state}`).join();

// Only what has moved on is drawn again: a button that is drawn again between press and release is not clicked.
function advanced(s) {
  const bar = s?.state === "running" ? $(`bar-${s.name}`) : null;
  if (!bar) return false;
  bar.value = s.share;
  $(`doing-${s.name}`).textContent = doing(s);
  $(`lasts-${s.name}`).textContent = lasts(s);
  return true;
}

async function begin(name, body) {
  try { now.steps = (await ask(name, body)).steps; complain(""); } catch (error) { complain(error.message); }
  showRun();
  watch();
}

async function fit(resume) {
  const ledger = now.ledger;
  const body = el("div", {}, el("p", {}, `This spends epsilon ${figure(now.epsilon)} and delta ${now.delta} of ${list(now.state.plan.protect)}, once. It cannot be taken back.`),
    el("p", {}, ledger?.runs ? `Before, ${plural(ledger.runs, "run")} ${ledger.runs === 1 ? "was" : "were"} charged to this database. What is spent adds up.` : "Nothing was spent on this database before, by this ledger."),
    now.outlook?.guessed.length ? guessWords(now.outlook) : null,
    el("p", {}, el("code", {}, now.planned + (resume ? " --resume" : ""))));
  if (await dialog(`Spend epsilon ${figure(now.epsilon)}?`, body, [["Cancel", false], [`Spend epsilon ${figure(now.epsilon)}`, true, "main"]])) {
    now.predicted = now.outlook?.judged;
    begin("fit", {epsilon: now.epsilon, delta: now.delta, confirmed: true, resume});
  }
}

const doing = s => `${s.doing}${s.left === null ? "" : ` · about ${span(s.left)} left for this part`}`;
const lasts = s => `${span(s.seconds)} so far${s.name === "fit" && now.outlook?.seconds > s.seconds ? ` of about ${span(now.outlook.seconds)} in all, predicted` : ""}.`;

function progress(s) {
  return el("div", {}, el("label", {id: `doing-${s.name}`, for: `bar-${s.name}`}, doing(s)),
    el("progress", {id: `bar-${s.name}`, max: "1", value: s.share}),
    el("p", {id: `lasts-${s.name}`, class: "soft"}, lasts(s)),
    el("button", {type: "button", "data-at": "cancel", onclick: () => begin("cancel", {})}, "Cancel"));
}

function ended(s) {
  if (!s || s.state === "running" || s.state === "done") return null;
  return el("div", {class: `warning ${s.state === "failed" ? "bad-box" : ""}`, role: "alert"}, el("strong", {}, s.state === "cancelled" ? "Cancelled. " : "It failed. "), s.error);
}

const command = text => el("p", {class: "same"}, "The same in a terminal: ", el("code", {}, text));

function showRun() {
  const {fit: f, sample: s, report: r} = now.steps, ledger = now.ledger, state = now.state, o = now.outlook;
  const running = Object.values(now.steps).some(x => x.state === "running");
  if (running && !watching) watch();
  if (!running) watching = null;
  const spent = ledger?.spent.map(x => `epsilon ${figure(x.epsilon)} of ${x.table}`) ?? [];
  const left = !ledger ? "…" : ledger.left === null ? el("span", {}, "no limit is set. ", el("span", {class: "soft"}, "Set one with "), el("code", {}, ledger.cap_command)) : `up to epsilon ${figure(ledger.left)} (limit ${figure(ledger.cap.epsilon)})`;
  const fact = (name, value) => el("tr", {}, el("th", {scope: "row"}, name), el("td", {}, value));
  const table = el("table", {class: "facts"}, el("tbody", {},
    fact("This fit costs", `epsilon ${figure(now.epsilon)}, delta ${now.delta}, of ${list(state.plan.protect)}`),
    fact("Spent before", spent.length ? spent.join(", ") : "nothing"),
    fact("Left by the ledger", left),
    o?.guessed.length ? fact("Mind", guessWords(o)) : null,
    fact("Time and memory", o ? `about ${span(o.seconds)} of one core, ${figure(o.memory / 1e6)} MB` : "…")));
  const first = el("div", {class: "card"}, el("h3", {}, "1. Fit: spend the budget once"), table,
    state.saved ? null : el("p", {class: "note"}, "The plan is not saved. A fit reads it from the file, so save it first."),
    el("div", {class: "buttons"},
      state.saved ? null : el("button", {type: "button", class: "main", "data-at": "save here", onclick: save}, "Save plan"),
      el("button", {type: "button", class: f && f.state !== "running" ? null : "main", "data-at": "fit", disabled: !state.saved || running, onclick: () => fit(false)},
        f?.state === "done" ? `Fit again, and spend epsilon ${figure(now.epsilon)} once more …` : `Fit, and spend epsilon ${figure(now.epsilon)} …`),
      f?.state === "cancelled" || f?.state === "failed" ? el("button", {type: "button", class: "main", "data-at": "resume", disabled: !state.saved || running, onclick: () => fit(true)}, "Go on where it was cut off …") : null),
    f?.state === "running" ? progress(f) : null, ended(f),
    f?.state === "done" ? [el("p", {class: "good"}, el("strong", {}, "Done. "), `The model is in ${f.files.model}. It holds noisy counts, never a row.`),
      verdictTable(f.result.verdict.judged, "What copies are worth, as found", now.predicted),
      f.result.verdict.advice.length ? el("ul", {}, f.result.verdict.advice.map(a => el("li", {}, a))) : null,
      el("p", {}, el("a", {href: "/files/model", download: true}, "Download the model"), " · ", el("a", {href: "/files/certificate", download: true}, "Download the certificate"))] : null,
    command(f && f.state !== "cancelled" ? f.command : now.planned ?? ""));
  const forms = {sqlite: "SQLite file", duckdb: "DuckDB file", csv: "folder of CSV files", parquet: "folder of Parquet files"};
  const set = name => e => { now[name] = name === "form" ? e.target.value : Number(e.target.value); };
  const second = el("div", {class: "card"}, el("h3", {}, "2. Sample: draw a copy, free"),
    f?.state !== "done" ? el("p", {class: "soft"}, "Comes after the fit.") : [
      el("div", {class: "line"},
        el("label", {}, "as", el("select", {"data-at": "form", onchange: set("form")}, Object.entries(forms).map(([k, v]) => el("option", {value: k, selected: k === now.form}, v)))),
        el("label", {}, "size, 1 is as the original", el("input", {type: "number", min: "0.001", step: "any", value: now.scale, "data-at": "scale", onchange: set("scale")})),
        el("label", {}, "seed", el("input", {type: "number", min: "0", step: "1", value: now.seed, "data-at": "seed", onchange: set("seed")})),
        el("label", {}, "processes, for large copies", el("input", {type: "number", min: "1", step: "1", value: now.workers, "data-at": "workers", onchange: set("workers")})),
        el("button", {type: "button", class: "main", "data-at": "sample", disabled: running, onclick: () => begin("sample", {form: now.form, scale: now.scale, seed: now.seed, workers: now.workers})}, "Draw a copy"))],
    s?.state === "running" ? progress(s) : null, ended(s),
    s?.state === "done" ? [el("p", {class: "good"}, el("strong", {}, "Done. "), `${number(s.result.synthetic_rows)} synthetic rows, ${number(s.result.copied_rows)} copied from public tables, in ${s.files.copy}.`),
      /\.(sqlite|duckdb)$/.test(s.files.copy) ? el("p", {}, el("a", {href: "/files/copy", download: true}, "Download the copy")) : el("p", {class: "soft"}, "The folder lies beside the plan.")] : null,
    s ? command(s.command) : null);
  const third = el("div", {class: "card"}, el("h3", {}, "3. Report: what the copy is good for"),
    s?.state !== "done" ? el("p", {class: "soft"}, "Comes after the copy.") :
      el("button", {type: "button", class: "main", "data-at": "report", disabled: running, onclick: () => begin("report", {})}, "Write the report"),
    r?.state === "running" ? progress(r) : null, ended(r),
    r?.state === "done" ? el("p", {}, el("a", {href: "/files/report", target: "_blank", rel: "noopener"}, `Open ${r.files.report}`), " (safe to share with the copy)") : null,
    r ? command(r.command) : null);
  redraw($("run-body"), first, second, third);
}

// -- begin ------------------------------------------------------------------------------------------------------------

let width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth !== width && now.state && now.step === "schema") { width = window.innerWidth; showSchema(); }
});
document.addEventListener("visibilitychange", async () => {
  if (!document.hidden && now.state) try { take(await ask("state")); } catch (error) { complain(error.message); }
});
window.addEventListener("beforeunload", e => { if (now.state && !now.state.saved && now.state.undo) e.preventDefault(); });

try {
  const [state, steps] = await Promise.all([ask("state"), ask("steps")]);
  now.steps = steps.steps;
  take(state);
} catch (error) { complain(error.message); }
