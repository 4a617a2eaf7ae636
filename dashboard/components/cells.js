// The cells of a map of the model, one row a layer: put in front of grid.js and switches.js, which say what
// a press does. press(at, held, acts): acts is false where the arrow keys only walk.

const TALL = 34; // px, a cell of up to ROWS layers
const ROWS = 12; // more layers share the height of this many
const GUTTER = 2;

const MOVES = {
  ArrowLeft: ([layer, head]) => [layer, head - 1],
  ArrowRight: ([layer, head]) => [layer, head + 1],
  ArrowUp: ([layer, head]) => [layer - 1, head],
  ArrowDown: ([layer, head]) => [layer + 1, head],
  Home: ([layer], layers, heads, all) => [all ? 0 : layer, 0],
  End: ([layer], layers, heads, all) => [all ? layers - 1 : layer, heads - 1],
  PageUp: ([, head]) => [0, head],
  PageDown: ([, head], layers) => [layers - 1, head],
  Enter: (at) => at,
  " ": (at) => at, // the space bar
};

function makeCells(parent, press) {
  const root = element(parent, "div", { class: "grid", role: "grid" });
  let cells = []; // [layer][head], elements
  let tops = []; // column labels
  let sides = []; // row labels
  let marked = []; // the chosen cell and its two labels
  let stop = null; // the one cell in the tab order
  const cellAt = (at) => at && cells[at[0]]?.[at[1]];

  function build(layers, heads) {
    const focused = root.getRootNode().activeElement?.at;
    root.replaceChildren();
    root.style.setProperty("--heads", heads);
    const high = Math.floor((ROWS * (TALL + GUTTER)) / layers) - GUTTER;
    root.style.setProperty("--high", `${Math.max(12, Math.min(TALL, high))}px`);
    const head = element(root, "div", { class: "row top", role: "row" });
    element(head, "span", { role: "presentation" });
    tops = Array.from({ length: heads }, (_, column) => label(head, "columnheader", `${column}`));
    sides = [];
    cells = Array.from({ length: layers }, (_, layer) => buildRow(layer, heads));
    marked = [];
    stop = null;
    if (!focused) return;
    const kept = cells[Math.min(focused[0], layers - 1)][Math.min(focused[1], heads - 1)];
    kept.focus({ preventScroll: true });
  }

  function buildRow(layer, heads) {
    const row = element(root, "div", { class: "row", role: "row" });
    sides.push(label(row, "rowheader", `L${layer}`));
    return Array.from({ length: heads }, (_, column) => {
      const cell = element(row, "div", { class: "cell", role: "gridcell", tabindex: "-1" });
      cell.setAttribute("aria-selected", "false");
      cell.at = [layer, column];
      return cell;
    });
  }

  function label(row, role, text) {
    const made = element(row, "span", { class: "label", role });
    made.textContent = text;
    return made;
  }

  function fill(cell, [background, ink, text, title, mark]) {
    const now = JSON.stringify([background, ink, text, title, mark]);
    if (cell.now === now) return;
    cell.now = now;
    cell.style.setProperty("--fill", background);
    cell.style.setProperty("--ink", ink);
    cell.dataset.mark = mark;
    cell.textContent = text;
    cell.title = title;
    cell.setAttribute("aria-label", title);
  }

  function mark(at) {
    const cell = cellAt(at);
    for (const old of marked) old.classList.remove("chosen");
    marked[0]?.setAttribute("aria-selected", "false");
    marked = cell ? [cell, sides[at[0]], tops[at[1]]] : [];
    for (const now of marked) now.classList.add("chosen");
    cell?.setAttribute("aria-selected", "true");
    const active = root.getRootNode().activeElement;
    tabStop(active?.at ? active : cell || stop || cells[0][0]);
  }

  function tabStop(cell) {
    stop?.setAttribute("tabindex", "-1");
    stop = cell;
    stop.setAttribute("tabindex", "0");
  }

  function go(at, held, acts) {
    const cell = cellAt(at);
    if (!cell) return;
    cell.focus();
    press(at, held, acts);
  }

  root.addEventListener("click", (event) => go(event.target.at, false, true));
  root.addEventListener("keydown", (event) => {
    const move = MOVES[event.key];
    if (!move || !event.target.at || event.altKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const from = event.target.at;
    const to = move(from, cells.length, cells[0].length, event.ctrlKey);
    const moved = to[0] !== from[0] || to[1] !== from[1];
    if (moved || (to === from && !event.repeat)) go(to, event.repeat, !moved); // to === from: Enter or space
  });

  return {
    cellAt,
    mark,
    receive(data) {
      const [layers, heads] = [data.cells.length, data.cells[0].length];
      root.setAttribute("aria-label", data.label);
      if (cells.length !== layers || cells[0].length !== heads) build(layers, heads);
      data.cells.forEach((row, layer) => row.forEach((cell, head) => fill(cells[layer][head], cell)));
    },
  };
}
