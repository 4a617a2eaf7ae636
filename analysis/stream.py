"""Many texts through a model or the toy as padded batches whose weights are handed on as they arrive.

Nothing grows with the number of texts. A batch knows where its texts stand in the collection, and how often
each replicate of a Poisson bootstrap counts each of them: by its place alone, so that two models, or two
measures, over the same texts are compared text by text (Hanley and MacGibbon 2006; Chamandy et al. 2012).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from analysis.capture import Text, input_names, pad, special_ids, toy_tokens
from analysis.measures import KINDS, Rows
from analysis.models import Model
from analysis.probe import Probe, WeightsReader, run
from analysis.tokens import NO_SEGMENT, is_punctuation
from analysis.toy import Toy, embed

CHUNK = 1024  # texts that are tokenised and sorted by length together
TOKENS = 2048  # tokens of a batch, its padding included


@dataclass(frozen=True, eq=False)
class Batch:
    """Some texts of a collection, ready to run.

    places: where each text stands in the collection, counted from 0
    rows: what is known of their tokens
    forward: runs them once and hands the weights of each layer to its reader, see `analysis.probe.Probe`
    """

    places: list[int]
    rows: Rows
    forward: Callable[[WeightsReader], None]


@dataclass(frozen=True, eq=False)
class Encoded:
    """A text as little as is needed: its place, the network's inputs, and the sentence of each token."""

    place: int
    inputs: dict[str, list[int]]
    segment: list[int]


class Draws:
    """How often each replicate of a Poisson bootstrap counts each text; row 0 counts each once."""

    def __init__(self, replicates: int, seed: int) -> None:
        self.replicates = replicates
        self._seed = seed
        self._chunk = -1
        self._drawn = np.empty((0, 0))

    def of(self, places: Sequence[int]) -> Float[Tensor, "replicate text"]:
        """Return the counts of the texts at ``places``, which lie in one chunk; they depend on the seed alone."""
        chunk = places[0] // CHUNK
        if chunk != self._chunk:
            random = np.random.default_rng([self._seed, chunk])
            self._drawn = random.poisson(1.0, size=(self.replicates + 1, CHUNK)).astype(np.float64)
            self._drawn[0] = 1
            self._chunk = chunk
        return torch.from_numpy(self._drawn[:, np.asarray(places) % CHUNK])


def shape_of(source: Model | Toy) -> tuple[int, int]:
    """Return how many layers a source has, and how many heads a layer."""
    if isinstance(source, Toy):
        return 1, source.num_heads
    return source.geometry.layers, source.geometry.heads


def batches(source: Model | Toy, texts: Iterable[Text]) -> Iterator[Batch]:
    """Yield ``texts`` as batches of similar length; those with nothing to read are left out.

    All texts of a batch stand in the same chunk of the collection.
    """
    remaining = enumerate(texts)
    while chunk := list(islice(remaining, CHUNK)):
        if isinstance(source, Toy):
            yield from (_toy_batch(source, place, text) for place, text in chunk if _has_text(text))
        else:
            yield from (model_batch(source, batch) for batch in _by_length(_encode(source, chunk)))


def model_batch(model: Model, batch: Sequence[Encoded]) -> Batch:
    """Return encoded texts as one padded batch."""
    inputs = [example.inputs for example in batch]

    def forward(reader: WeightsReader) -> None:
        with torch.no_grad():
            run(model.network, pad(model, inputs), Probe(on_weights=reader))

    rows = rows_of(model, inputs, [example.segment for example in batch])
    return Batch([example.place for example in batch], rows, forward)


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
    return _rows(real, is_special, kinds, ids, model.network.device)


def _rows(
    real: np.ndarray,
    special: np.ndarray,
    kinds: Sequence[np.ndarray],
    ids: np.ndarray,
    device: torch.device | str,
) -> Rows:
    assert len(kinds) == len(KINDS)
    return Rows(
        real=torch.from_numpy(real).to(device),
        special=torch.from_numpy(special).to(device),
        kinds=torch.from_numpy(np.stack(kinds, axis=-1).astype(np.float32)).to(device),
        ids=torch.from_numpy(ids).to(device),
    )


def _toy_batch(toy: Toy, place: int, text: Text) -> Batch:
    """Return one text for the toy, whose tokens are whole words and none of them special."""
    tokens = toy_tokens(*((text,) if isinstance(text, str) else text))
    none = np.zeros((1, len(tokens)), dtype=bool)
    marks = np.array([[all(map(is_punctuation, label)) for label in tokens.labels]])
    kinds = (none, none, none, marks, tokens.segment[None] == 0, tokens.segment[None] == 1)
    ids = np.array([[zlib.crc32(label.lower().encode("utf-8")) for label in tokens.labels]], dtype=np.int64)

    def forward(reader: WeightsReader) -> None:
        with torch.no_grad():
            reader(0, toy.module(embed(toy, list(tokens.labels)))[1], None)

    return Batch([place], _rows(~none, none, kinds, ids, "cpu"), forward)


def _has_text(text: Text) -> bool:
    return all(part.strip() for part in ((text,) if isinstance(text, str) else text))


def _encode(model: Model, chunk: Sequence[tuple[int, Text]]) -> list[Encoded]:
    """Tokenise many texts at once, cut at the model's true limit; those with nothing to read are left out."""
    names = input_names(model)
    found = []
    for single in (True, False):
        group = [
            (place, text) for place, text in chunk if isinstance(text, str) == single and _has_text(text)
        ]
        if not group:
            continue
        texts = [text for _place, text in group]
        sides = [texts] if single else [list(side) for side in zip(*texts, strict=True)]
        with model.tokenizing:
            encoding = model.tokenizer(
                *sides, truncation="longest_first", max_length=model.geometry.max_tokens, verbose=False
            )
        for i, (place, _text) in enumerate(group):
            segment = [NO_SEGMENT if side is None else side for side in encoding.sequence_ids(i)]
            if any(side != NO_SEGMENT for side in segment):
                inputs = {name: encoding[name][i] for name in names if name in encoding}
                found.append(Encoded(place, inputs, segment))
    return found


def _by_length(examples: list[Encoded]) -> Iterator[list[Encoded]]:
    """Yield groups of similar length, so that little is padded, within the budget of tokens."""
    group: list[Encoded] = []
    for example in sorted(examples, key=lambda example: len(example.segment)):
        if group and (len(group) + 1) * len(example.segment) > TOKENS:
            yield group
            group = []
        group.append(example)
    if group:
        yield group


def _punctuation_ids(model: Model, ids: np.ndarray) -> list[int]:
    """Return those of ``ids`` whose token is nothing but punctuation."""
    pieces = model.tokenizer.convert_ids_to_tokens(ids.tolist())
    marks = (piece.removeprefix("##").lstrip("▁Ġ") for piece in pieces)
    return [int(i) for i, mark in zip(ids, marks, strict=True) if mark and all(map(is_punctuation, mark))]


def _id_of(*candidates: int | None) -> int:
    return next((i for i in candidates if i is not None), -1)
