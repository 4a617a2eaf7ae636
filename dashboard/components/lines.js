// Lines from queries to keys: several queries can be chosen, and their weights are summed at the keys.

const ONE = 50000; // stands for a weight of 1
const [TALL, LOW, ROOM] = [22, 14, 532]; // px: the rows share the room, between low and tall
const WIDE = 300; // units across the picture, which is stretched to its place
const [MANY, FAINT] = [300, 0.01]; // of more lines than this the faint ones are left out
const [THICK, BAND] = [4.5, 0.7]; // px of the strongest line; share of a row for the lines of all heads
const NEAR = 8; // px from the pointer to a line
const MOVES = { ArrowUp: -1, ArrowDown: 1, Home: -Infinity, End: Infinity };

const figure = (weight) => weight.toFixed(2);

function drawn(parent, tag, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return parent.appendChild(made);
}

function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return Array.from(new Uint16Array(bytes.buffer), (weight) => weight / ONE);
}

function makeLines(parent) {
  const root = element(parent, "div", { class: "lines" });
  const legend = element(root, "ul", { class: "legend" });
  const scroll = element(root, "div", { class: "scroll" });
  const head = element(scroll, "div", { class: "head" });
  const every = element(head, "button", { class: "every", type: "button" });
  element(every, "span", { class: "tick", "aria-hidden": "true" });
  const everyText = element(every, "span", {});
  const readout = element(head, "span", { class: "readout", dir: "auto", "aria-hidden": "true" });
  const received = element(head, "span", { class: "received" });
  const body = element(scroll, "div", { class: "body" });
  const left = element(body, "div", { class: "queries", role: "listbox", "aria-multiselectable": "true" });
  const svg = drawn(body, "svg", { preserveAspectRatio: "none", "aria-hidden": "true" });
  const right = element(body, "div", { class: "keys", role: "list" });
  const hint = element(root, "p", { class: "hint", id: "hint" });
  const base = drawn(svg, "g", { class: "base" });
  const top = drawn(svg, "g", { class: "top" });

  let shape = ""; // how many queries, keys and strands
  let content = ""; // all that is written in the lines
  let [queries, keys, strands] = [[], [], []]; // elements; elements; { name, colour, weights, shift }
  let row = TALL;
  let bundles = new Map(); // the lines of a query, strong or faint, made when they are first seen
  let lines = []; // that stand in the picture
  let shownBefore = null; // the choice as it was drawn last
  let stale = true; // what is written has changed since
  let stop = null; // the one query in the tab order
  let spot = null; // what the pointer or the focus is on: a line, or all lines of a query, key or strand
  const choice = makeChoice(draw, (places) => ({ places }));

  const places = () => choice.shown().filter((at) => at < queries.length);
  const active = () => root.getRootNode().activeElement;
  const isDrawn = (at) => !places().length || places().includes(at);

  function build(data) {
    const focused = active()?.at;
    row = Math.max(LOW, Math.min(TALL, Math.floor(ROOM / Math.max(data.queries.length, data.keys.length))));
    root.style.setProperty("--row", `${row}px`);
    left.replaceChildren();
    right.replaceChildren();
    queries = data.queries.map((_, at) => {
      const query = element(left, "div", { class: "query", role: "option", tabindex: "-1" });
      element(query, "span", { class: "tick", "aria-hidden": "true" });
      element(query, "span", { class: "text", dir: "auto" });
      query.at = at;
      return query;
    });
    keys = data.keys.map((_, at) => {
      const key = element(right, "div", { class: "key", role: "listitem" });
      element(key, "span", { class: "text", dir: "auto" });
      const bars = element(key, "span", { class: "bars", "aria-hidden": "true" });
      data.strands.forEach(() => element(bars, "span", { class: "bar" }));
      element(key, "span", { class: "number" });
      key.place = at;
      return key;
    });
    legend.replaceChildren();
    data.strands.forEach((_, at) => {
      const entry = element(legend, "li", { class: "strand" });
      element(entry, "span", { class: "swatch", "aria-hidden": "true" });
      element(entry, "span", { class: "name" });
      entry.strand = at;
    });
    [stop, shownBefore, spot] = [null, null, null];
    if (focused !== undefined) queries[Math.min(focused, queries.length - 1)].focus({ preventScroll: true });
  }

  function fill(made, [text, quiet, title]) {
    made.words = text;
    made.about = title;
    made.querySelector(".text").textContent = text;
    made.title = title;
    made.classList.toggle("quiet", quiet);
  }

  function fillAll(data) {
    data.queries.forEach((end, at) => fill(queries[at], end));
    data.keys.forEach((end, at) => fill(keys[at], end));
    const apart = Math.min(THICK, (row * BAND) / data.strands.length); // so that equal lines lie side by side
    strands = data.strands.map(([name, colour, weights], at) => {
      const shift = (at - (data.strands.length - 1) / 2) * apart;
      const entry = legend.children[at];
      entry.querySelector(".name").textContent = name;
      entry.style.setProperty("--strand", colour);
      for (const key of keys) key.querySelectorAll(".bar")[at].style.setProperty("--strand", colour);
      return { name, colour, weights: unpacked(weights), shift };
    });
    svg.style.setProperty("--thick", `${apart}px`);
    const high = row * Math.max(queries.length, keys.length);
    svg.setAttribute("viewBox", `0 0 ${WIDE} ${high}`);
    svg.style.height = `${high}px`;
    bundles = new Map();
    stale = true;
  }

  const weightOf = (strand, query, key) => strands[strand].weights[query * keys.length + key];
  const says = ({ strand, query, key, weight }) =>
    `${strands[strand].name}: ${queries[query].words} → ${keys[key].words} ${figure(weight)}`;

  // With control points at one and two thirds, x runs evenly along the curve: see `nearest`.
  function makeLine(group, strand, query, key, weight) {
    const [from, to] = [query, key].map((at) => (at + 0.5) * row + strands[strand].shift);
    const curve = `M0 ${from}C${WIDE / 3} ${from} ${(WIDE * 2) / 3} ${to} ${WIDE} ${to}`;
    const path = drawn(group, "path", { d: curve });
    path.style.setProperty("--strength", Math.sqrt(weight).toFixed(4));
    path.style.stroke = strands[strand].colour;
    const line = { strand, query, key, weight, from, to, path };
    drawn(path, "title", {}).textContent = says(line);
    return line;
  }

  function bundle(query, faint) {
    const name = `${query} ${faint}`;
    if (bundles.has(name)) return bundles.get(name);
    const group = drawn(base, "g", { "data-query": query });
    const made = [];
    strands.forEach((_, strand) =>
      keys.forEach((_, key) => {
        const weight = weightOf(strand, query, key);
        if (weight && weight < FAINT === faint) made.push(makeLine(group, strand, query, key, weight));
      }),
    );
    group.remove();
    bundles.set(name, { group, lines: made });
    return bundles.get(name);
  }

  function bundlesOf(which) {
    const kinds = which.length * keys.length * strands.length > MANY ? [false] : [true, false];
    return which.flatMap((query) => kinds.map((faint) => bundle(query, faint)));
  }

  function draw() {
    const now = `${places()}`;
    const focused = active()?.at;
    if (now !== shownBefore || stale) drawChoice();
    if (now !== shownBefore && focused === undefined && places().length) {
      reveal(queries[places()[0]], scroll.clientHeight / 2 - row); // in the middle: lines go up and down
    }
    [shownBefore, stale] = [now, false];
    stop?.setAttribute("tabindex", "-1");
    stop = queries[focused ?? places()[0] ?? stop?.at ?? 0];
    stop.setAttribute("tabindex", "0");
    raise();
  }

  function drawChoice() {
    const which = queries.map((_, at) => at).filter(isDrawn);
    const all = !places().length;
    every.setAttribute("aria-pressed", all);
    left.classList.toggle("all", all);
    queries.forEach((query, at) => query.setAttribute("aria-selected", isDrawn(at)));
    const parts = bundlesOf(which);
    base.replaceChildren(...parts.map((part) => part.group));
    lines = parts.flatMap((part) => part.lines);
    const sums = keys.map((_, key) =>
      strands.map((_, strand) => which.reduce((sum, query) => sum + weightOf(strand, query, key), 0)),
    );
    const full = Math.max(1, ...sums.flat()); // several queries may give more than 1
    keys.forEach((key, at) => {
      const bars = key.querySelectorAll(".bar");
      sums[at].forEach((sum, strand) => bars[strand].style.setProperty("width", `${(sum / full) * 100}%`));
      key.querySelector(".number").textContent = figure(sums[at].reduce((sum, one) => sum + one, 0));
      const each = sums[at].map((sum, strand) => `${strands[strand].name} ${figure(sum)}`);
      key.title = [key.about, ...each].filter(Boolean).join(" · ");
    });
  }

  // The lines of the spot lie on top and the others step back; a query that is not chosen shows a preview.
  function raise() {
    const focused = active()?.at;
    const at = spot ?? (focused === undefined || isDrawn(focused) ? null : { query: focused });
    const preview = at?.query !== undefined && !isDrawn(at.query);
    const pool = preview ? bundlesOf([at.query]).flatMap((part) => part.lines) : lines;
    const belongs = (line) => Object.entries(at).every(([name, value]) => line[name] === value);
    const raised = at ? pool.filter(belongs) : [];
    top.replaceChildren(...raised.map((line) => line.path.cloneNode(true)));
    svg.classList.toggle("raising", raised.length > 0 && !preview);
    svg.classList.toggle("preview", preview);
    const single = at !== null && Object.keys(at).length > 1;
    svg.classList.toggle("single", single);
    readout.textContent = single && raised.length ? says(raised[0]) : "";
    queries.forEach((query, place) => query.classList.toggle("lit", at?.query === place));
    keys.forEach((key, place) => key.classList.toggle("lit", at?.key === place));
  }

  // The line nearest to the pointer; of lines close together the stronger one.
  function nearest(event) {
    const place = svg.getBoundingClientRect();
    const t = (event.clientX - place.left) / place.width;
    const y = event.clientY - place.top;
    let [best, least] = [null, Infinity];
    for (const line of lines) {
      const rise = line.to - line.from;
      const slope = (rise * 6 * t * (1 - t)) / place.width;
      const away = Math.abs(line.from + rise * t * t * (3 - 2 * t) - y) / Math.hypot(1, slope);
      const rank = away - (NEAR / 2) * Math.sqrt(line.weight);
      if (away < NEAR && rank < least) [best, least] = [line, rank];
    }
    return best && { strand: best.strand, query: best.query, key: best.key };
  }

  function spotOf(event) {
    if (event.target.closest("svg")) return nearest(event);
    const made = event.target.closest(".query, .key, .strand");
    if (!made) return null;
    if (made.at !== undefined) return { query: made.at };
    return made.place === undefined ? { strand: made.strand } : { key: made.place };
  }

  function look(next) {
    if (JSON.stringify(next) === JSON.stringify(spot)) return;
    spot = next;
    raise();
  }

  // Scrolls the box, never the page.
  function reveal(query, margin) {
    const above = query.offsetTop - head.offsetHeight - margin;
    const below = query.offsetTop + query.offsetHeight + margin;
    if (above < scroll.scrollTop) scroll.scrollTop = above;
    else if (below > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = below - scroll.clientHeight;
  }

  function focus(at) {
    queries[at].focus({ preventScroll: true });
    reveal(queries[at], 0);
  }

  function go(at, chosen, held) {
    if (at !== undefined) focus(at);
    choice.choose([...new Set(chosen)].sort((one, other) => one - other), held);
  }

  // Taking the last one away leaves none, which is all.
  function toggled(at) {
    const which = queries.map((_, place) => place).filter(isDrawn);
    return isDrawn(at) ? which.filter((place) => place !== at) : [...which, at];
  }

  // An arrow key chooses, with Shift it adds, with Ctrl it only moves the focus.
  function move(from, step, event) {
    const to = Math.max(0, Math.min(queries.length - 1, from + step));
    if (to === from) return;
    if (event.ctrlKey || event.metaKey) focus(to);
    else go(to, event.shiftKey ? [...(places().length ? places() : [from]), to] : [to], event.repeat);
  }

  root.addEventListener("pointermove", (event) => look(spotOf(event)));
  root.addEventListener("pointerdown", (event) => look(spotOf(event)));
  root.addEventListener("pointerleave", () => look(null));
  left.addEventListener("focusin", () => draw());
  left.addEventListener("focusout", () => raise());
  every.addEventListener("click", () => go(undefined, [], false));
  left.addEventListener("click", (event) => {
    const at = event.target.closest(".query")?.at;
    if (at === undefined) return;
    const several = event.ctrlKey || event.metaKey || event.shiftKey || event.target.matches(".tick");
    go(at, several ? toggled(at) : [at], false);
  });
  left.addEventListener("keydown", (event) => {
    const from = event.target.at;
    const command = event.ctrlKey || event.metaKey;
    if (from === undefined || event.altKey) return;
    const all = event.key === "Escape" ? places().length : command && event.key.toLowerCase() === "a";
    const presses = event.key === " " || (event.key === "Enter" && !command);
    if (!all && !presses && !(event.key in MOVES)) return;
    event.preventDefault();
    if (all) go(from, [], false);
    else if (presses && !event.repeat) go(from, event.key === " " ? toggled(from) : [from], false);
    else if (!presses) move(from, MOVES[event.key], event);
  });

  return (data, trigger) => {
    const counts = [data.queries, data.keys, data.strands].map((part) => part.length).join();
    if (counts !== shape) build(data);
    const written = JSON.stringify([data.queries, data.keys, data.strands]);
    if (counts !== shape || written !== content) fillAll(data);
    [shape, content] = [counts, written];
    left.setAttribute("aria-label", data.label);
    right.setAttribute("aria-label", data.received);
    for (const [made, text] of [[everyText, data.every], [received, data.received], [hint, data.hint]])
      if (made.textContent !== text) made.textContent = text;
    hint.hidden = !data.hint;
    if (data.hint) left.setAttribute("aria-describedby", "hint");
    choice.receive(data, trigger);
    draw();
  };
}

export default mounted(makeLines);
