"""A task set up on a model and its data: what runs, what is kept of it, which predictions and scores that gives.

Everything that switches heads off works on a `Problem`, whatever the task (`analysis.tasks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from analysis.ablation import Inputs, Reader
from analysis.capture import encode
from analysis.datasets import Data
from analysis.maps import Floats
from analysis.messages import Message, TextError, message
from analysis.models import Model
from analysis.scores import Metric

Task = Literal["similarity", "classification", "masked", "fidelity"]
TASKS: tuple[Task, ...] = ("similarity", "classification", "masked", "fidelity")
Rows = Sequence[tuple[int, ...]]  # of each example, where what is kept of its inputs stands
Predictions = dict[str, np.ndarray]  # by the metric's name, [variant, example]


@dataclass(frozen=True, eq=False)
class Problem:
    """A task set up on a model and its data.

    model: with the network that runs, which may be the base of the one that was opened
    inputs: equal ones only once; examples: of each example the places of its inputs
    read: what is kept of the outputs for each input, [batch, width]
    predict: the predictions of each metric, [variant, example], from what was kept, [variant, row, width]
    metrics: the main one first; gold: what they are compared with, [example]
    loss: [example], from what was kept, [row, width]; None where a task has none

    `predict` and `loss` are given what was kept, the rows of each example in it, and which examples they are.
    """

    task: Task
    model: Model
    data: Data
    inputs: list[Inputs]
    examples: Rows
    read: Reader
    metrics: tuple[Metric, ...]
    predict: Callable[[Floats, Rows, Sequence[int]], Predictions]
    gold: np.ndarray | None
    loss: Callable[[Tensor, Rows, Sequence[int]], Tensor] | None
    notes: tuple[Message, ...] = field(default=())

    def rows_of(self, which: Sequence[int]) -> tuple[list[int], Rows]:
        """Return the places of the inputs of some examples, each once, and where in them each example's stand."""
        places = sorted({place for example in which for place in self.examples[example]})
        at = {place: row for row, place in enumerate(places)}
        return places, [tuple(at[place] for place in self.examples[example]) for example in which]


def embed(outputs: Any, batch: dict[str, Tensor], _: Sequence[int]) -> Float[Tensor, "batch model"]:
    """Return the normalised mean of the last states of a base network over the real tokens of each text."""
    mask = batch["attention_mask"][..., None].to(outputs.last_hidden_state.dtype)
    return functional.normalize((outputs.last_hidden_state * mask).sum(1) / mask.sum(1), dim=-1)


def base_of(model: Model) -> Model:
    """Return the model without its task head: its outputs are the last states."""
    return replace(model, network=model.network.base_model)


class EncodedTexts(NamedTuple):
    """Texts as a model reads them: the inputs, equal ones once; of each text the place of its input; what to know."""

    inputs: list[Inputs]
    places: list[int]
    notes: tuple[Message, ...]


def encoded(model: Model, texts: Sequence[Any]) -> EncodedTexts:
    """Return texts as ``model`` reads them. Raises TextError, with its number, for one with nothing to read."""
    places: dict[Any, int] = {}
    inputs: list[Inputs] = []
    cut = 0
    for number, text in enumerate(texts, start=1):
        if text in places:
            continue
        places[text] = len(inputs)
        try:
            found = encode(model, text)
        except TextError as error:
            raise TextError(
                "Text {number} of {count}: {why}", number=number, count=len(texts), why=str(error)
            ) from error
        inputs.append(found.inputs)
        cut += found.cut > 0
    notes = cut_note(model, cut, len(inputs))
    return EncodedTexts(inputs, [places[text] for text in texts], notes)


def cut_note(model: Model, cut: int, count: int) -> tuple[Message, ...]:
    """Return a note on how many of ``count`` different texts did not fit into the model, if any."""
    if not cut:
        return ()
    said = message(
        "{cut} of {count} texts are cut to the {limit} tokens that this model can read.",
        cut=cut,
        count=count,
        limit=model.geometry.max_tokens,
    )
    return (said,)
