"""Text in, attention maps out: for a pretrained model and for the toy alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from analysis.maps import AttentionMaps
from analysis.messages import Message, TextError, message
from analysis.models import BUNDLED, Model, open_model
from analysis.probe import Probe, run
from analysis.tokens import NO_SEGMENT, Tokens, clip, read_tokens, words_of
from analysis.toy import TOY, Toy, embed, make_toy

Text = str | tuple[str, str]
MOST_BYTES = 2**30  # of one text's maps; 24 x 16 heads at 512 tokens take 403 MB


@dataclass(frozen=True)
class Encoded:
    """A text as the model reads it: the tokens, the tokenizer's own inputs, and what to know about it.

    cut: how many tokens did not fit
    """

    tokens: Tokens
    inputs: dict[str, list[int]]
    notes: tuple[Message, ...]
    cut: int = 0


@dataclass(frozen=True, eq=False)
class Captured:
    """What one pass over a batch of texts gave: their maps, the padded batch, and the network's outputs."""

    maps: list[AttentionMaps]
    inputs: dict[str, Tensor]
    outputs: Any


def open_source(source: str = BUNDLED, *, revision: str | None = None, device: str = "cpu") -> Model | Toy:
    """Open the toy by its name, everything else as `analysis.models.open_model` does."""
    return make_toy() if source == TOY else open_model(source, revision=revision, device=device)


def capture(source: Model | Toy, text: str, pair: str | None = None) -> AttentionMaps:
    """Return what every head does with ``text``, or with the two sentences ``text`` and ``pair``.

    Raises TextError for a text with nothing to read.
    """
    texts = (text,) if pair is None else (text, pair)
    if isinstance(source, Toy):
        tokens = read_toy(source, texts)
        return attend(source, tokens, tokens)
    return capture_batch(source, [text if pair is None else (text, pair)])[0]


def capture_batch(model: Model, texts: Sequence[Text]) -> list[AttentionMaps]:
    """Return the maps of several texts that run as one padded batch; padding is cut off again.

    Weights equal those of a text alone but for rounding (1e-6).
    """
    return capture_outputs(model, texts).maps


def capture_outputs(
    model: Model, texts: Sequence[Text], off: Bool[np.ndarray, "layer head"] | None = None
) -> Captured:
    """Return the maps of several texts, and what the network says of them, with the heads ``off`` switched off."""
    examples = [encode(model, text) for text in texts]
    inputs = pad(model, [example.inputs for example in examples])
    lengths = [len(example.tokens) for example in examples]
    for n in lengths:
        check_size(model.geometry.layers, model.geometry.heads, n)
    layers: list[list[np.ndarray]] = [[] for _ in examples]  # of each example, a layer at a time
    masks: list[list[np.ndarray | None]] = [[] for _ in examples]

    def keep(layer: int, weights: Tensor, mask: Tensor | None) -> None:
        for i, n in enumerate(lengths):
            layers[i].append(weights[i, :, :n, :n].float().cpu().numpy().copy())
            masks[i].append(None if mask is None else mask[i, 0, :n, :n].cpu().numpy().copy())

    gates = None if off is None else torch.from_numpy(~off[None]).float().to(model.network.device)
    with torch.no_grad():
        outputs = run(model.network, inputs, Probe(gates=gates, on_weights=keep))
    maps = [
        AttentionMaps(
            queries=example.tokens,
            keys=example.tokens,
            weights=np.stack(layers[i]),
            source=model.name,
            attendable=_attendable(masks[i], lengths[i]),
            notes=example.notes,
        )
        for i, example in enumerate(examples)
    ]
    return Captured(maps, inputs, outputs)


def encode(model: Model, text: Text) -> Encoded:
    """Tokenise one text or pair, cut at the model's true limit (a pair from its longer side).

    Raises TextError for a text with nothing to read.
    """
    texts = tuple(_clean(part) for part in ((text,) if isinstance(text, str) else text))
    _check_words(texts)
    limit = model.geometry.max_tokens
    with model.tokenizing:
        whole = len(model.tokenizer(*texts, verbose=False)["input_ids"])
        encoding = model.tokenizer(
            *texts,
            truncation="longest_first",
            max_length=limit,
            return_offsets_mapping=True,
            verbose=False,
        )
    segment = [NO_SEGMENT if side is None else side for side in encoding.sequence_ids()]
    ids = encoding["input_ids"]
    tokens = read_tokens(
        ids=ids,
        pieces=encoding.tokens(),
        spans=encoding["offset_mapping"],
        special=_are_special(model, ids),
        segment=segment,
        texts=texts,
    )
    if not (tokens.segment != NO_SEGMENT).any():
        raise TextError(
            "The tokenizer of {name} finds nothing to read in this text. Type a word.", name=model.name
        )
    inputs = {name: encoding[name] for name in input_names(model) if name in encoding}
    cut = whole - len(ids)
    return Encoded(tokens, inputs, _notes(model, tokens, cut), cut)


def input_names(model: Model) -> list[str]:
    """Return what of a tokenizer's output the network reads; one type of token needs no token types."""
    names = list(model.tokenizer.model_input_names)
    if getattr(model.network.config, "type_vocab_size", 0) < 2 and "token_type_ids" in names:
        names.remove("token_type_ids")
    return names


def pad(model: Model, examples: Sequence[Mapping[str, list[int]]]) -> dict[str, Tensor]:
    """Return the inputs of several texts as one batch [batch, token], padded on the right."""
    longest = max(len(example["input_ids"]) for example in examples)
    fill = {"input_ids": model.tokenizer.pad_token_id or 0}
    inputs = {
        name: [row[name] + [fill.get(name, 0)] * (longest - len(row[name])) for row in examples]
        for name in examples[0]
    }
    return {name: torch.tensor(rows, device=model.network.device) for name, rows in inputs.items()}


def attend(toy: Toy, queries: Tokens, keys: Tokens, *, causal: bool = False) -> AttentionMaps:
    """Return the toy's maps from one sequence of words to another, or to itself: [1, head, query, key]."""
    states, looked_at = embed(toy, list(queries.labels)), embed(toy, list(keys.labels))
    _, weights = toy.module(states, looked_at, causal=causal)
    n, m = len(queries), len(keys)
    return AttentionMaps(
        queries=queries,
        keys=keys,
        weights=weights[0].numpy()[None],
        source=toy.name,
        attendable=np.tri(n, m, dtype=bool)[None] if causal else None,
        notes=(
            message(
                "The toy is untrained: its weights and its word vectors are random, from seed {seed}. It has no "
                "positions, so equal words look the same way.",
                seed=toy.seed,
            ),
        ),
    )


def toy_tokens(*texts: str) -> Tokens:
    """Return the words of one or two sentences as tokens; the toy has no special ones."""
    spans = [words_of(text) for text in texts]
    flat = [span for part in spans for span in part]
    segment = [side for side, part in enumerate(spans) for _ in part]
    labels = [texts[side][start:end] for side, (start, end) in zip(segment, flat, strict=True)]
    return Tokens(
        ids=np.full(len(flat), -1),
        labels=tuple(labels),
        spans=np.array(flat, dtype=np.int64).reshape(-1, 2),
        special=np.zeros(len(flat), dtype=bool),
        segment=np.array(segment, dtype=np.int64),
        word=np.arange(len(flat)),
        texts=texts,
    )


def read_toy(toy: Toy, texts: Sequence[str]) -> Tokens:
    """Return the tokens of one text or of a pair as the toy reads them.

    Raises TextError for a text with nothing to read, or too long for its maps to fit into memory.
    """
    texts = [_clean(text) for text in texts]
    _check_words(texts)
    tokens = toy_tokens(*texts)
    check_size(1, toy.num_heads, len(tokens))
    return tokens


def _clean(text: str) -> str:
    """Replace what no encoding can hold (half of a surrogate pair), character for character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _check_words(texts: Sequence[str]) -> None:
    for which, text in zip(("first", "second"), texts, strict=False):
        if not text.strip():
            if len(texts) == 1:
                raise TextError("There is no text to read. Type a sentence.")
            if which == "first":
                raise TextError(
                    "The first sentence of the pair is empty. Type it, or take one sentence only."
                )
            raise TextError("The second sentence of the pair is empty. Type it, or take one sentence only.")


def check_size(layers: int, heads: int, n: int) -> None:
    """Raise TextError for maps that would not fit into memory, as of models that read thousands of tokens."""
    needed = layers * heads * n * n * 4
    if needed > MOST_BYTES:
        raise TextError(
            "The maps of {n} tokens in {layers} x {heads} heads would take {size:.1f} GB, more than the {most:.1f} GB "
            "allowed. Shorten the text to {fits} tokens.",
            n=n,
            layers=layers,
            heads=heads,
            size=needed / 1e9,
            most=MOST_BYTES / 1e9,
            fits=int((MOST_BYTES / (layers * heads * 4)) ** 0.5),
        )


def special_ids(model: Model) -> set[int]:
    """Return the vocabulary numbers of the special tokens; the one for unknown words is not among them."""
    return set(model.tokenizer.all_special_ids) - {model.tokenizer.unk_token_id}


def _are_special(model: Model, ids: Sequence[int]) -> list[bool]:
    special = special_ids(model)
    return [i in special for i in ids]


def _notes(model: Model, tokens: Tokens, cut: int) -> tuple[Message, ...]:
    notes = []
    if cut > 0:
        notes.append(
            message(
                "Cut to the {limit} tokens that this model can read: {cut} tokens are left out.",
                limit=model.geometry.max_tokens,
                cut=cut,
            )
        )
    typed = np.flatnonzero(tokens.special & (tokens.segment != NO_SEGMENT))
    if len(typed):
        names = sorted({tokens.labels[i] for i in typed})
        notes.append(
            message(
                "The text spells out {tokens}: the tokenizer reads that as its special token.",
                tokens=", ".join(names),
            )
        )
    spelled = [label == model.tokenizer.unk_token for label in tokens.labels]
    unknown = np.flatnonzero((tokens.ids == _unknown_id(model)) & ~np.array(spelled))
    if len(unknown):
        names = sorted({clip(tokens.labels[i]) for i in unknown})[:5]
        notes.append(
            message(
                "Not in this model's vocabulary, read as {unknown}: {tokens}.",
                unknown=model.tokenizer.unk_token,
                tokens=", ".join(names),
            )
        )
    return tuple(notes)


def _unknown_id(model: Model) -> int:
    unknown = model.tokenizer.unk_token_id
    return -1 if unknown is None else int(unknown)


def _attendable(masks: Sequence[np.ndarray | None], n: int) -> np.ndarray | None:
    if all(mask is None or bool(mask.all()) for mask in masks):
        return None
    return np.stack([np.ones((n, n), dtype=bool) if mask is None else mask for mask in masks])
