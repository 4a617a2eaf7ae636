"""The measures of every head over a collection of texts, with their uncertainty, in memory of fixed size.

Weights are reduced layer by layer as they arrive. The intervals come from a Poisson bootstrap over the texts:
each replicate counts each text a Poisson(1) number of times, so that sums are all it needs (Hanley and
MacGibbon 2006; Chamandy et al. 2012). Nothing grows with the collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from analysis.capture import Text, input_names, pad, special_ids
from analysis.maps import Floats, Specials
from analysis.measures import KINDS, MEASURES, Rows, measure, plan
from analysis.messages import TextError
from analysis.models import Model
from analysis.probe import Probe, run
from analysis.tokens import NO_SEGMENT, is_punctuation

REPLICATES = 500
CHUNK = 1024  # texts that are tokenised and sorted by length together
TOKENS = 2048  # tokens of a batch, its padding included
INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class HeadStatistics:
    """Every measure of every head over a collection; see `analysis.measures.MEASURES`.

    mean, low, high: [measure, layer, head], the ends of a 95% interval; NaN where no query has the measure
    weighting: "queries", where each query counts the same, or "texts", where each text does
    """

    names: tuple[str, ...]
    mean: Floats
    low: Floats
    high: Floats
    texts: int
    queries: int
    specials: Specials
    weighting: str

    def table(self, name: str) -> Floats:
        """Return the mean of one measure, [layer, head]."""
        return self.mean[self.names.index(name)]

    def frame(self) -> pd.DataFrame:
        """Return a row a head: layer, head, and each measure with its ``_low`` and ``_high``."""
        layers, heads = self.mean.shape[1:]
        layer, head = np.indices((layers, heads))
        columns = {"layer": layer.ravel(), "head": head.ravel()}
        for i, name in enumerate(self.names):
            for suffix, table in (("", self.mean), ("_low", self.low), ("_high", self.high)):
                columns[name + suffix] = table[i].ravel()
        return pd.DataFrame(columns)


@dataclass(frozen=True, eq=False)
class _Lean:
    """A text as little as is needed: the network's inputs, and the sentence of each token."""

    inputs: dict[str, list[int]]
    segment: list[int]


class _Sums:
    """Sums of a measure over a collection: as it is (row 0), and in each bootstrap replicate."""

    def __init__(self, model: Model, replicates: int, seed: int) -> None:
        shape = (replicates + 1, model.geometry.layers, len(MEASURES))
        self.sums = torch.zeros(*shape, model.geometry.heads, dtype=torch.float64)
        self.counts = torch.zeros(replicates + 1, len(MEASURES), dtype=torch.float64)
        self._random = np.random.default_rng(seed)

    def draw(self, texts: int) -> Tensor:
        """Return [replicate, text] how often each replicate counts each text of a batch."""
        drawn = self._random.poisson(1.0, size=(len(self.counts), texts))
        drawn[0] = 1
        return torch.from_numpy(drawn).to(torch.float64)

    def add(self, layer: int, times: Tensor, sums: Tensor) -> None:
        """Add the sums [text, measure, head] of one layer of a batch."""
        flat = times @ sums.to(torch.float64).cpu().flatten(1)
        self.sums[:, layer] += flat.view(len(times), *sums.shape[1:])

    def means(self) -> np.ndarray:
        """Return [replicate, measure, layer, head]; NaN where a replicate counts no query."""
        means = self.sums.transpose(1, 2) / self.counts[:, :, None, None]
        return means.numpy()


def summarise(
    model: Model,
    texts: Iterable[Text],
    *,
    specials: Specials = "keep",
    weighting: str = "queries",
    replicates: int = REPLICATES,
    seed: int = 0,
    on_progress: Callable[[int], None] | None = None,
) -> HeadStatistics:
    """Measure every head over ``texts``, single sentences or pairs, with 95% intervals over the texts.

    weighting: "queries" weighs each query the same, "texts" each text
    on_progress: called after each batch with how many texts are done; what it raises ends the run

    Raises TextError if there is nothing to read in any of the texts.
    """
    sums = _Sums(model, replicates, seed)
    done, queries = 0, 0
    remaining = iter(texts)
    while chunk := list(islice(remaining, CHUNK)):
        for batch in _batches(_encode(model, chunk)):
            queries += _add_batch(model, batch, sums, specials, weighting)
            done += len(batch)
            if on_progress is not None:
                on_progress(done)
    if not done:
        raise TextError("There is nothing to read in these texts. Give one sentence a line at least.")
    means = sums.means()
    low, high = _interval(means[1:])
    return HeadStatistics(tuple(MEASURES), means[0], low, high, done, queries, specials, weighting)


def rows_of(model: Model, batch: Sequence[dict[str, list[int]]], segments: Sequence[list[int]]) -> Rows:
    """Return what is known of the tokens of a padded batch."""
    tokenizer = model.tokenizer
    special = special_ids(model)
    longest = max(len(inputs["input_ids"]) for inputs in batch)
    ids = np.zeros((len(batch), longest), dtype=np.int64)
    real = np.zeros_like(ids, dtype=bool)
    segment = np.full_like(ids, NO_SEGMENT - 1)
    for i, (inputs, sides) in enumerate(zip(batch, segments, strict=True)):
        n = len(sides)
        ids[i, :n], real[i, :n], segment[i, :n] = inputs["input_ids"], True, sides
    is_special = real & (np.isin(ids, list(special)) | (segment == NO_SEGMENT))
    is_cls = is_special & (ids == _id_of(tokenizer.cls_token_id, tokenizer.bos_token_id))
    is_sep = is_special & (ids == _id_of(tokenizer.sep_token_id, tokenizer.eos_token_id)) & ~is_cls
    words = real & ~is_special
    kinds = (
        is_cls,
        is_sep,
        is_special & ~is_cls & ~is_sep,
        words & np.isin(ids, _punctuation_ids(model, np.unique(ids))),
        words & (segment == 0),
        words & (segment == 1),
    )
    assert len(kinds) == len(KINDS)
    device = model.network.device
    return Rows(
        real=torch.from_numpy(real).to(device),
        special=torch.from_numpy(is_special).to(device),
        kinds=torch.from_numpy(np.stack(kinds, axis=-1).astype(np.float32)).to(device),
        ids=torch.from_numpy(ids).to(device),
    )


def _add_batch(model: Model, batch: list[_Lean], sums: _Sums, specials: Specials, weighting: str) -> int:
    """Run one batch and add what it measures; return how many queries it had."""
    inputs = [example.inputs for example in batch]
    prepared = plan(rows_of(model, inputs, [example.segment for example in batch]), specials)
    times = sums.draw(len(batch))
    counts = prepared.counts

    def reduce(layer: int, weights: Tensor, mask: Tensor | None) -> None:
        found = measure(weights, mask, prepared)
        if weighting == "texts":
            found = found / counts.clamp_min(1)[..., None]
        sums.add(layer, times, found)

    with torch.no_grad():
        run(model.network, pad(model, inputs), Probe(on_weights=reduce))
    counted = counts.to(torch.float64).cpu()
    sums.counts += times @ (counted if weighting == "queries" else (counted > 0).to(torch.float64))
    return int(counted[:, 0].sum())


def _encode(model: Model, texts: Sequence[Text]) -> list[_Lean]:
    """Tokenise many texts at once, cut at the model's true limit; those with nothing to read are left out."""
    names = input_names(model)
    found = []
    for group in (
        [text for text in texts if isinstance(text, str) and text.strip()],
        [text for text in texts if not isinstance(text, str) and all(part.strip() for part in text)],
    ):
        if not group:
            continue
        sides = [group] if isinstance(group[0], str) else [list(side) for side in zip(*group, strict=True)]
        with model.tokenizing:
            encoding = model.tokenizer(
                *sides, truncation="longest_first", max_length=model.geometry.max_tokens, verbose=False
            )
        for i in range(len(group)):
            segment = [NO_SEGMENT if side is None else side for side in encoding.sequence_ids(i)]
            if any(side != NO_SEGMENT for side in segment):
                inputs = {name: encoding[name][i] for name in names if name in encoding}
                found.append(_Lean(inputs, segment))
    return found


def _batches(examples: list[_Lean]) -> Iterator[list[_Lean]]:
    """Yield batches of similar length, so that little is padded, within the budget of tokens."""
    batch: list[_Lean] = []
    for example in sorted(examples, key=lambda example: len(example.segment)):
        if batch and (len(batch) + 1) * len(example.segment) > TOKENS:
            yield batch
            batch = []
        batch.append(example)
    if batch:
        yield batch


def _interval(replicates: np.ndarray) -> tuple[Floats, Floats]:
    """Return the ends of the 95% interval over replicates, without those that counted no query."""
    with np.errstate(invalid="ignore"):
        empty = np.isnan(replicates).all(axis=0)
        filled = np.where(empty, 0.0, replicates)
        low, high = np.nanpercentile(filled, INTERVAL, axis=0)
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def _punctuation_ids(model: Model, ids: np.ndarray) -> list[int]:
    """Return those of ``ids`` whose token is nothing but punctuation."""
    pieces = model.tokenizer.convert_ids_to_tokens(ids.tolist())
    marks = (piece.removeprefix("##").lstrip("▁Ġ") for piece in pieces)
    return [int(i) for i, mark in zip(ids, marks, strict=True) if mark and all(map(is_punctuation, mark))]


def _id_of(*candidates: int | None) -> int:
    return next((i for i in candidates if i is not None), -1)
