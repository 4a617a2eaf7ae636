"""Three lenses beside the weights: their flow through the layers, what a head carries, why a query looks.

Rollout follows the weights down to the input: Abnar, Zuidema 2020 (arXiv 2005.00928), section 3. A weight
says how much of a token is taken, not how much there is to take; the length of what is carried says both:
Kobayashi et al. 2020 (arXiv 2004.10102), section 3. And the score of a query and a key is a sum of
products, one a dimension of the head: Vaswani et al. 2017 (arXiv 1706.03762), equation 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from analysis.anatomy import output_projection
from analysis.capture import Encoded, check_size, encode, pad, read_toy
from analysis.maps import AttentionMaps, Floats, Head, shares
from analysis.messages import OptionError
from analysis.models import Model
from analysis.probe import Probe, VectorsReader, WeightsReader, removed, run
from analysis.tokens import Bools
from analysis.toy import Toy, embed


@dataclass(frozen=True, eq=False)
class HeadVectors:
    """What one head compares in one text.

    queries, keys: [token, head_dim] float32 as they enter the attention (in ModernBERT after the rotation
        by their position)
    scale: the factor of their products, 1 / sqrt(head_dim)
    attendable: [query, key] whether a key may be attended, or None where all may
    """

    queries: Floats
    keys: Floats
    scale: float
    attendable: Bools | None = None


def rollout(maps: AttentionMaps) -> AttentionMaps:
    """Return how much of each token of the *input* is in each token after a layer: [layer, 1, query, key].

    R_l = A'_l R_(l-1), with A' the mean over the heads of A + I, its rows brought back to 1: I stands for
    what passes by the attention, and is all there is where every head of a layer was removed. Rows sum to 1. It takes
    whole maps, by pieces and with special tokens; the
    views `in_units` and `with_specials` come afterwards. Raises OptionError for a view, and for maps between
    two texts.
    """
    if not _are_whole(maps):
        raise OptionError(
            "These maps of {queries} x {keys} tokens are a part of a text's, or lie between two texts: rollout needs "
            "whole ones. Take the maps as captured, and choose the view afterwards.",
            queries=len(maps.queries),
            keys=len(maps.keys),
        )
    same = np.eye(len(maps.keys))
    reached = same  # [token, key of the input], in float64: a product of up to 24 layers
    flow = np.empty((maps.layers, 1, *same.shape), dtype=np.float32)
    for layer, gone in enumerate(maps.gone):
        weights = maps.weights[layer][~gone] if gone.any() else maps.weights[layer]
        mixed = weights.mean(axis=0, dtype=np.float64) + same if len(weights) else same
        reached = mixed / mixed.sum(axis=-1, keepdims=True) @ reached
        flow[layer, 0] = reached
    return replace(maps, weights=flow, attendable=None)


def lengths(source: Model | Toy, text: str, pair: str | None = None) -> Floats:
    """Return the length of what each head would carry from each token: ||f(x)||, [layer, head, key] float32.

    f(x) = (x W_V + b_V) W_O with the head's part of the matrices (Kobayashi et al. 2020, section 3); b_O
    belongs to no head. NaN for heads that were removed. The tokens are those of `capture`, by pieces. Raises
    TextError as `capture` does, ModelError for an architecture whose W_O is not known.
    """
    rows: list[Tensor] = []

    def keep(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        rows.append(_carried_lengths(value[0], _output_of(source, layer)))

    _run(source, _encode(source, text, pair), on_vectors=keep)
    return torch.stack(rows).float().numpy()


def carried(maps: AttentionMaps, lengths: Floats) -> Floats:
    """Return ||alpha f(x)||, the length of what each query gets from each key: [layer, head, query, key].

    Weight times length (Kobayashi et al. 2020, section 3), 0 or more, in the units of the network's states.
    ``lengths`` [layer, head, key] are those of the same text. Raises OptionError for those of other tokens.
    """
    expected = (maps.layers, maps.heads, len(maps.keys))
    if lengths.shape != expected:
        raise OptionError(
            "There are lengths for {given} layers x heads x tokens, but the maps have {expected}. Take the maps "
            "as captured, by pieces and with special tokens, and choose the view afterwards.",
            given=" x ".join(map(str, lengths.shape)),
            expected=" x ".join(map(str, expected)),
        )
    return maps.weights * lengths[:, :, None, :]


def norm_weighted(maps: AttentionMaps, lengths: Floats) -> AttentionMaps:
    """Return the maps with each weight replaced by its share, 0 to 1, of all that its query gets.

    `carried` with its rows brought to 1, so that it is seen on the range of attention; a row of zeros stays
    0. By pieces and with special tokens: the views come afterwards, and rows still sum to 1 in them. Raises
    OptionError for lengths of other tokens.
    """
    return replace(maps, weights=shares(carried(maps, lengths)))


def head_vectors(source: Model | Toy, text: str, pair: str | None, head: Head) -> HeadVectors:
    """Return the queries and keys of one head, of the tokens that `capture` gives by pieces.

    Raises TextError as `capture` does, OptionError for a head that the model does not have, or no longer has.
    """
    example = _encode(source, text, pair)
    layers, heads = _shape_of(source)
    # The maps, without a cell, know whether there is such a head, and what to say if not.
    AttentionMaps(example.tokens, example.tokens, np.empty((layers, heads, 0, 0)), source.name).at(head)
    if isinstance(source, Model) and source.gone[head.layer, head.index]:
        raise OptionError("Head {head} was removed from this model. Choose one that is there.", head=head)
    found: list[HeadVectors] = []
    masks: list[Bools] = []

    def keep(layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> None:
        if layer == head.layer:
            queries, keys = (states[0, head.index].float().cpu().numpy().copy() for states in (query, key))
            found.append(HeadVectors(queries, keys, scale))

    def keep_mask(layer: int, weights: Tensor, mask: Tensor | None) -> None:
        if layer == head.layer and mask is not None and not bool(mask.all()):
            masks.append(mask[0, 0].cpu().numpy().copy())

    _run(source, example, on_vectors=keep, on_weights=keep_mask)
    return replace(found[0], attendable=masks[0] if masks else None)


def scores(vectors: HeadVectors) -> Floats:
    """Return the scores before the softmax, [query, key]; over the attendable keys it gives the weights."""
    return vectors.queries @ vectors.keys.T * np.float32(vectors.scale)


def products(vectors: HeadVectors, query: int, key: int) -> Floats:
    """Return what each dimension adds to the score of one query and one key: [head_dim], q_d k_d scale."""
    return vectors.queries[query] * vectors.keys[key] * np.float32(vectors.scale)


def _are_whole(maps: AttentionMaps) -> bool:
    """Return whether the maps go from all tokens of a text to the same tokens."""
    queries, keys = maps.queries, maps.keys
    same = queries.labels == keys.labels and np.array_equal(queries.segment, keys.segment)
    # Rows that do not sum to 1 lost a part of their keys; a first head other than L0·H0, a part of the heads.
    sums = maps.weights.sum(axis=-1)[~maps.gone]
    return same and maps.first == Head(0, 0) and np.allclose(sums, 1, atol=1e-3)


def _carried_lengths(
    value: Float[Tensor, "head key head_dim"], output: Float[Tensor, "model width"]
) -> Float[Tensor, "head key"]:
    """Return ||v W_O^h||, from the Gram matrix of each head: its vectors need not be built.

    In float64, where the squares lose nothing that float32 shows; rounding may still leave one below 0.
    """
    heads, _, head_dim = value.shape
    states = value.cpu().double()
    matrix = output.cpu().double()  # [model, model]
    columns = matrix.unflatten(1, (heads, head_dim)).transpose(0, 1)  # [head, model, head_dim]
    gram = columns.transpose(1, 2) @ columns  # [head, head_dim, head_dim]
    return ((states @ gram) * states).sum(dim=-1).clamp(min=0).sqrt()  # [head, key]


def _output_of(source: Model | Toy, layer: int) -> Tensor:
    """Return the weight of W_O with columns for every head, NaN for those that were removed."""
    if isinstance(source, Toy):
        return source.module.output.weight
    weight = output_projection(source.network, layer).weight
    gone = torch.from_numpy(removed(source.network)[layer])
    if not gone.any():
        return weight
    columns = (~gone).repeat_interleave(source.geometry.head_dim)
    whole = weight.new_full((len(weight), len(columns)), torch.nan)
    whole[:, columns] = weight
    return whole


def _shape_of(source: Model | Toy) -> tuple[int, int]:
    """Return (layers, heads)."""
    if isinstance(source, Toy):
        return 1, source.num_heads
    return source.geometry.layers, source.geometry.heads


def _encode(source: Model | Toy, text: str, pair: str | None) -> Encoded:
    """Return the text as `capture` reads it; the toy reads its tokens alone."""
    if isinstance(source, Toy):
        return Encoded(read_toy(source, (text,) if pair is None else (text, pair)), {}, ())
    example = encode(source, text if pair is None else (text, pair))
    check_size(*_shape_of(source), len(example.tokens))
    return example


def _run(
    source: Model | Toy,
    example: Encoded,
    *,
    on_vectors: VectorsReader,
    on_weights: WeightsReader | None = None,
) -> None:
    """Run one text through a network, or through the toy, which has no mask, under the readers."""
    if not isinstance(source, Toy):
        probe = Probe(on_vectors=on_vectors, on_weights=on_weights)
        with torch.no_grad():
            run(source.network, pad(source, [example.inputs]), probe)
        return
    toy = source.module
    split = (toy.num_heads, toy.head_dim)
    states = embed(source, list(example.tokens.labels))  # [1, token, model]
    query, key, value = (
        matrix(states).unflatten(-1, split).transpose(1, 2)  # [1, head, token, head_dim]
        for matrix in (toy.query, toy.key, toy.value)
    )
    on_vectors(0, query, key, value, toy.head_dim**-0.5)
