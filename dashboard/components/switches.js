// The map of the model as switches: a click, Enter or the space bar switches a head off or on again, the arrow keys
// only walk. Each message says all that is off, so that of several quick ones the last is enough.

function makeSwitches(parent) {
  const cells = makeCells(parent, press);
  const choice = makeChoice(draw, ({ at, off }) => ({ layer: at[0], head: at[1], off }));

  function press(at, held, acts) {
    const now = choice.shown().off;
    const name = at.join(".");
    const toggled = now.includes(name) ? now.filter((one) => one !== name) : [...now, name];
    choice.choose({ at, off: acts ? toggled : now }, held);
  }

  function paint(cell, isOff) {
    cell.dataset.mark = isOff ? "off" : "";
    cell.now = ""; // the next answer fills it anew
  }

  function draw() {
    const { at, off } = choice.shown();
    for (let layer = 0; cells.cellAt([layer, 0]); layer++) {
      for (let head = 0, cell; (cell = cells.cellAt([layer, head])); head++) {
        const isOff = off.includes(`${layer}.${head}`);
        if (isOff !== (cell.dataset.mark === "off")) paint(cell, isOff);
      }
    }
    cells.mark(at);
  }

  return (data, trigger) => {
    cells.receive(data);
    choice.receive({ ...data, chosen: { at: data.chosen, off: data.off } }, trigger);
    draw();
  };
}

export default mounted(makeSwitches);
