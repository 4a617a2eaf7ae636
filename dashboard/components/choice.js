// Put in front of cells.js, words.js and lines.js, which use makeChoice, element and mounted.
// A choice is shown at once. Each carries a number, and the server repeats the last number it has
// heard: an answer to an older choice therefore never moves the outline back.

const GAP = 90; // ms at least between two messages
const POLL = 15; // ms between two looks whether the page is still busy
const SLOW = 1000; // ms a held key waits for a busy page
const PATIENCE = 10000; // ms until a choice without an answer is given up

// Streamlit tells its state on the page itself; without it the answer alone counts.
const running = () => document.querySelector(".stApp")?.dataset.testScriptState === "running";

// draw() shows what shown() returns; pack(value) is the message for a value.
function makeChoice(draw, pack) {
  let server = null; // what the server says is chosen
  let local = null; // what was chosen here and is not yet confirmed
  let number = 0; // of the newest choice here
  let seen = 0; // of the newest choice the server has heard
  let sent = 0; // of the newest choice sent
  let sentAt = -Infinity;
  let send = () => {};
  let queue, patience;

  const shown = () => (local === null ? server : local);

  function flush() {
    sent = number;
    sentAt = performance.now();
    send({ ...pack(local), number });
  }

  // A held key waits for the run it started, or no run would ever draw the page to its end.
  function schedule(held) {
    clearTimeout(queue);
    const age = performance.now() - sentAt;
    const busy = held && age < SLOW && (sent > seen || running());
    if (age >= GAP && !busy) flush();
    else queue = setTimeout(schedule, Math.max(GAP - age, POLL), held);
  }

  function giveUp() {
    local = null;
    draw();
  }

  return {
    shown,
    choose(value, held) {
      number = Math.max(number, seen) + 1;
      local = value;
      clearTimeout(patience);
      patience = setTimeout(giveUp, PATIENCE);
      draw();
      schedule(held);
    },
    receive(data, trigger) {
      send = trigger;
      server = data.chosen;
      seen = Math.max(seen, data.seen);
      if (seen >= number) {
        local = null;
        clearTimeout(patience);
      }
    },
  };
}

function element(parent, tag, attributes) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return parent.appendChild(made);
}

// One view for each place on the page; it lives on while Streamlit sends new data.
function mounted(makeView) {
  const views = new WeakMap();
  return ({ data, parentElement, setTriggerValue }) => {
    if (!data) return;
    if (!views.has(parentElement)) views.set(parentElement, makeView(parentElement));
    views.get(parentElement)(data, (value) => setTriggerValue("choose", value));
  };
}
