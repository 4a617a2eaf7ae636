// The map of the model, from which one head is chosen.

function makeGrid(parent) {
  const cells = makeCells(parent, (at, held) => choice.choose(at, held));
  const draw = () => cells.mark(choice.shown());
  const choice = makeChoice(draw, ([layer, head]) => ({ layer, head }));

  return (data, trigger) => {
    cells.receive(data);
    choice.receive(data, trigger);
    draw();
  };
}

export default mounted(makeGrid);
