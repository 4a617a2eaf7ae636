"""What a model says of one text of a person's own, with some heads switched off: the gates, live.

What is said depends on what the checkpoint can say: the probabilities of its classes, its score, its guesses for
masked words, how alike it finds two sentences (each read alone, as embedding models are used), or else only where
the text's embedding lies. Embeddings are as in `analysis.problems.embed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from analysis.ablation import evaluate, single_heads
from analysis.answers import Answer, Kind, distance
from analysis.capture import Captured, capture_outputs, encode
from analysis.maps import AttentionMaps, Floats
from analysis.models import Model
from analysis.problems import base_of, embed
from analysis.suffix import head_of


def kind_of(model: Model, text: str, pair: str | None) -> Kind:
    """Return what a model can say of a text."""
    kinds: dict[str, Kind] = {"classification": "classes", "regression": "score"}
    if model.readout.kind in kinds:
        return kinds[model.readout.kind]
    if model.readout.kind == "masked" and masked_places(model, text, pair):
        return "guesses"
    return "embedding" if pair is None else "similarity"


def masked_places(model: Model, text: str, pair: str | None = None) -> list[int]:
    """Return where in the model's input the text says its mask token."""
    ids = encode(model, text if pair is None else (text, pair)).inputs["input_ids"]
    return [place for place, piece in enumerate(ids) if piece == model.tokenizer.mask_token_id]


def answer(
    model: Model, text: str, pair: str | None = None, off: Bool[np.ndarray, "layer head"] | None = None
) -> Answer:
    """Return what a model says of a text, or of a pair, with the heads ``off`` switched off (set to zero).

    Raises TextError for a text with nothing to read, OptionError for a mask of another shape than the model's.
    """
    kind = kind_of(model, text, pair)
    texts = [text, pair] if kind == "similarity" and pair is not None else [_whole(text, pair)]
    runs = model if kind in ("classes", "score") else base_of(model)
    found = capture_outputs(runs, texts, off)
    maps = tuple(found.maps)
    with torch.no_grad():
        if kind in ("classes", "score"):
            return _from_logits(model, kind, found, maps)
        if kind == "guesses":
            chances = _guesses(model, found.outputs.last_hidden_state, masked_places(model, text, pair))
            return Answer(kind, maps, chances)
        vectors = _numbers(embed(found.outputs, found.inputs, range(len(texts))))
    said = vectors[:1] @ vectors[1] if kind == "similarity" else np.zeros(0)
    return Answer(kind, maps, said, embeddings=vectors)


def _whole(text: str, pair: str | None) -> str | tuple[str, str]:
    return text if pair is None else (text, pair)


def _from_logits(model: Model, kind: Kind, found: Captured, maps: tuple[AttentionMaps, ...]) -> Answer:
    logits = found.outputs.logits[0].float()
    if kind == "score":
        return Answer(kind, maps, _numbers(logits[:1]))
    return Answer(kind, maps, _numbers(torch.softmax(logits, dim=-1)), names=model.readout.labels)


def _guesses(model: Model, states: Tensor, places: Sequence[int]) -> Floats:
    """Return [mask, vocabulary] the probabilities of what stands at the masked places."""
    asked = states[0, list(places)][:, None]  # [mask, 1, model]
    there = torch.ones(asked.shape[:2], dtype=torch.long, device=states.device)
    logits = head_of(model.network)(inputs_embeds=asked, attention_mask=there).logits[:, 0]
    return _numbers(torch.softmax(logits.float(), dim=-1))


def _numbers(values: Tensor) -> Floats:
    return values.detach().double().cpu().numpy()


def effects(model: Model, text: str, pair: str | None, whole: Answer) -> Floats:
    """Return [layer, head] how the model's main number would change if that head alone were off; NaN for removed heads.

    The number: the probability of the class, or of the first guess, that the ``whole`` model finds most likely; its
    score; the similarity; or the distance from the whole model's embedding, which is never below 0.
    """
    geometry = model.geometry
    kind = whole.kind
    texts = [text, pair] if kind == "similarity" and pair is not None else [_whole(text, pair)]
    runs = model if kind in ("classes", "score") else base_of(model)
    inputs = [encode(model, one).inputs for one in texts]
    places = masked_places(model, text, pair) if kind == "guesses" else []

    def read(outputs: Any, batch: dict[str, Tensor], which: list[int]) -> Tensor:
        if kind in ("classes", "score"):
            return outputs.logits
        if kind == "guesses":
            return outputs.last_hidden_state[:, places[0]]
        return embed(outputs, batch, which)

    change = np.full((geometry.layers, geometry.heads), np.nan)
    there = ~model.gone
    if there.any():
        kept = evaluate(runs, inputs, read, single_heads(geometry.layers, geometry.heads)[there.ravel()])
        change[there] = _main_numbers(model, whole, kept) - _main_number(whole)
    return change


def _main_number(whole: Answer) -> float:
    if whole.kind == "embedding":
        return 0.0
    return float((whole.values[0] if whole.kind == "guesses" else whole.values).max())


def _main_numbers(model: Model, whole: Answer, kept: Floats) -> Floats:
    """Return [variant] the main number from what was kept of each, [variant, input, width]."""
    if whole.kind == "score":
        return kept[:, 0, 0].astype(np.float64)
    if whole.kind == "similarity":
        return np.einsum("vw,vw->v", kept[:, 0], kept[:, 1], dtype=np.float64)
    if whole.kind == "embedding":
        assert whole.embeddings is not None
        return distance(kept[:, 0], whole.embeddings[0])
    if whole.kind == "classes":
        chances = torch.softmax(torch.from_numpy(kept[:, 0]).float(), dim=-1).double().numpy()
        return chances[:, whole.values.argmax()]
    with torch.no_grad():
        states = torch.from_numpy(kept[:, 0])[None].to(model.network.device)
        chances = _guesses(model, states, range(len(kept)))
    return chances[:, whole.values[0].argmax()]
