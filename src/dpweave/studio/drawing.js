// The schema as buttons over lines: targets above the tables that lead to them.

const WIDE = 148, TALL = 50, GAP = 22, RISE = 46, EDGE = 10;
const SVG = "http://www.w3.org/2000/svg";

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function layout(tables, across, room) {
  const rows = [];
  for (const table of tables) (rows[table.level] ??= []).push(table);
  const place = new Map();
  let line = 0;
  const middle = table => {
    const above = table.keys.map(k => place.get(k.target)).filter(Boolean);
    return above.length ? above.reduce((sum, p) => sum + p.x, 0) / above.length : 0;
  };
  const width = Math.max(across * (WIDE + GAP) - GAP + 2 * EDGE, room);
  for (const level of rows.filter(Boolean)) {
    const sorted = level.map(t => [middle(t), t]).sort((a, b) => a[0] - b[0]).map(([, t]) => t);
    for (let i = 0; i < sorted.length; i += across) {
      const part = sorted.slice(i, i + across);
      const used = part.length * (WIDE + GAP) - GAP;
      part.forEach((t, j) => place.set(t.name, {x: (width - used) / 2 + j * (WIDE + GAP), y: EDGE + line * (TALL + RISE)}));
      line += 1;
    }
  }
  return {place, width, height: 2 * EDGE + line * (TALL + RISE) - RISE + 8};
}

function edge(from, to, key, port) {
  const kind = key.role;
  const start = from.x + WIDE * port;
  if (from === to) {
    const x = from.x + WIDE, y = from.y + TALL / 2;
    return [`M${x} ${y - 8} c20 -10 20 26 6 16`, `M${x} ${y + 8} l8 -4 v8 z`, kind];
  }
  if (to.y < from.y) {
    const end = to.x + WIDE / 2 + (port - .5) * WIDE * .5, foot = to.y + TALL;
    const bend = Math.max((from.y - foot) / 2, 18);
    return [`M${start} ${from.y} C${start} ${from.y - bend} ${end} ${foot + bend} ${end} ${foot + 8}`, `M${end} ${foot} l-5 10 h10 z`, kind];
  }
  const end = to.x + WIDE / 2 - 20, low = Math.max(from.y, to.y) + TALL;
  return [`M${from.x + WIDE / 2 + 20} ${from.y + TALL} C${from.x + WIDE / 2 + 20} ${low + 30} ${end} ${low + 30} ${end} ${to.y + TALL + 8}`,
    `M${end} ${to.y + TALL} l-5 10 h10 z`, kind];
}

export function draw(box, plan, chosen, unit, choose) {
  const across = Math.max(1, Math.floor((box.clientWidth + GAP - 2 * EDGE) / (WIDE + GAP)));
  const {place, width, height} = layout(plan.tables, across, box.clientWidth);
  const lines = svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true"});
  for (const table of plan.tables) {
    table.keys.forEach((key, i) => {
      const from = place.get(table.name), to = place.get(key.target);
      if (!from || !to) return;
      const [line, tip, kind] = edge(from, to, key, (i + 1) / (table.keys.length + 1));
      lines.append(svg("path", {class: `edge ${kind}`, d: line}), svg("path", {class: `tip ${kind}`, d: tip}));
    });
  }
  const had = box.contains(document.activeElement) ? document.activeElement.dataset.table : null;
  box.replaceChildren(lines);
  box.style.height = `${height}px`;
  for (const table of plan.tables) {
    const {x, y} = place.get(table.name);
    const rows = unit.rows[table.name];
    const button = document.createElement("button");
    button.type = "button";
    button.className = table.role + (rows ? " in-unit" : "") + (table.name === chosen ? " chosen" : "");
    button.dataset.table = table.name;
    button.style.left = `${x}px`;
    button.style.top = `${y}px`;
    button.setAttribute("aria-pressed", String(table.name === chosen));
    const name = document.createElement("b"), part = document.createElement("small");
    name.textContent = table.name;
    part.textContent = rows ? (table.name === unit.table ? `${table.role} · 1 row` : `≤ ${rows.toLocaleString("en", {notation: rows < 1e5 ? "standard" : "compact"})} rows per unit`) : table.role;
    button.append(name, part);
    button.title = table.name;
    button.addEventListener("click", () => choose(table.name));
    box.append(button);
    if (table.name === had) button.focus();
  }
}
