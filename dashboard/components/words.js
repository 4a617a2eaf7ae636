// The words of a sentence: one choice, the query.

const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: "up", ArrowDown: "down" };
const RIGHT_TO_LEFT = /^[^\p{L}]*[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff]/u;

function makeWords(parent) {
  const box = element(parent, "div", { class: "words", role: "listbox" });
  let shape = ""; // which words start a line
  let words = []; // elements
  let chosen = null; // the element that shows the choice
  let stop = null; // the one element in the tab order
  const choice = makeChoice(draw, (index) => ({ index }));

  function build(starts) {
    const focused = box.getRootNode().activeElement?.at;
    box.replaceChildren();
    words = starts.map((start, at) => {
      if (start && at) element(box, "span", { class: "break", role: "presentation" });
      const word = element(box, "span", { class: "word", role: "option", tabindex: "-1", dir: "auto" });
      word.setAttribute("aria-selected", "false");
      word.at = at;
      return word;
    });
    [chosen, stop] = [null, null];
    if (focused !== undefined) words[Math.min(focused, words.length - 1)].focus({ preventScroll: true });
  }

  function fill(word, [text, shade, quiet, title]) {
    const now = JSON.stringify([text, shade, quiet, title]);
    if (word.now === now) return;
    word.now = now;
    word.textContent = text;
    word.title = title;
    word.style.setProperty("--shade", shade);
    word.classList.toggle("quiet", quiet);
  }

  function draw() {
    const word = words[choice.shown()] ?? null;
    if (word !== chosen) {
      chosen?.setAttribute("aria-selected", "false");
      word?.setAttribute("aria-selected", "true");
      chosen = word;
      if (word) reveal(word);
    }
    const active = box.getRootNode().activeElement;
    stop?.setAttribute("tabindex", "-1");
    stop = active?.at === undefined ? word ?? stop ?? words[0] : active;
    stop.setAttribute("tabindex", "0");
  }

  // Scrolls the box, never the page.
  function reveal(word) {
    const margin = 6;
    const top = word.offsetTop - margin;
    const bottom = word.offsetTop + word.offsetHeight + margin;
    if (top < box.scrollTop) box.scrollTop = top;
    else if (bottom > box.scrollTop + box.clientHeight) box.scrollTop = bottom - box.clientHeight;
  }

  // The word nearest to `from` in the next row upwards or downwards, or `from` itself.
  function nearest(from, down) {
    const middle = (word) => word.offsetLeft + word.offsetWidth / 2;
    const edge = from.offsetTop;
    const beyond = words.filter((word) => (down ? word.offsetTop > edge : word.offsetTop < edge));
    if (!beyond.length) return from.at;
    const row = beyond.at(down ? 0 : -1).offsetTop;
    const inRow = beyond.filter((word) => word.offsetTop === row);
    const distance = (word) => Math.abs(middle(word) - middle(from));
    return inRow.reduce((best, word) => (distance(word) < distance(best) ? word : best)).at;
  }

  function target(key, from) {
    if (key === "Home") return 0;
    if (key === "End") return words.length - 1;
    if (key === "ArrowUp" || key === "ArrowDown") return nearest(from, key === "ArrowDown");
    const step = STEPS[key] * (box.dir === "rtl" ? -1 : 1);
    return Math.max(0, Math.min(words.length - 1, from.at + step));
  }

  function go(at, held) {
    words[at].focus({ preventScroll: true });
    choice.choose(at, held);
  }

  box.addEventListener("click", (event) => {
    if (event.target.at !== undefined) go(event.target.at, false);
  });
  box.addEventListener("keydown", (event) => {
    const word = event.target;
    if (word.at === undefined || event.altKey || event.metaKey || event.ctrlKey || event.shiftKey) return;
    const presses = event.key === "Enter" || event.key === " ";
    if (!presses && !(event.key in STEPS) && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    const at = presses ? word.at : target(event.key, word);
    if (presses ? !event.repeat : at !== word.at) go(at, event.repeat);
  });

  return (data, trigger) => {
    const starts = data.words.map((word) => word[4]);
    box.setAttribute("aria-label", data.label);
    if (`${starts}` !== shape) build(starts);
    shape = `${starts}`;
    data.words.forEach((word, at) => fill(words[at], word));
    const backwards = data.words.filter((word) => RIGHT_TO_LEFT.test(word[0])).length;
    box.dir = 2 * backwards > data.words.length ? "rtl" : "ltr";
    choice.receive(data, trigger);
    draw();
  };
}

export default mounted(makeWords);
