"""One sentence of six tokens through a layer: what each query looks at, and how the heads make one output of it.

The output of multi-head attention is a sum over its heads, since W_O can be cut into one block of rows a head
(Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits"). So a head can be taken out and the rest
stays as it is: the gates of Michel, Levy, Neubig 2019 (arXiv 1905.10650).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from analysis.capture import toy_tokens
from analysis.maps import AttentionMaps, Floats, Head
from analysis.messages import OptionError, message
from analysis.planted import Part, states
from analysis.statistics import entropy
from analysis.tokens import Bools, Tokens
from analysis.toy import MultiHeadAttention

# Both are built alike, so that the same numbers stand at the same places.
SENTENCES = {"en": "The cat chased the mouse.", "id": "Si kucing mengejar si tikus."}
ORDER: tuple[Part, ...] = ("determiner", "subject", "verb", "determiner", "object", "punctuation")
SOURCE = "by hand"


@dataclass(frozen=True, eq=False)
class Sentence:
    """Six tokens and their states [1, token, model] for `analysis.planted`."""

    tokens: Tokens
    parts: tuple[Part, ...]
    states: Float[Tensor, "1 token model"]


@dataclass(frozen=True)
class Readout:
    """Where one head looks from one query.

    query, key: places of the token that looks and of the one that gets most
    query_label, key_label: how they read
    weight: what the latter gets, 0 to 1
    bits: entropy of the row; most: the largest it could be, log2 of the keys that may be attended
    """

    head: Head
    query: int
    key: int
    query_label: str
    key_label: str
    weight: float
    bits: float
    most: float


@dataclass(frozen=True, eq=False)
class Blocks:
    """The contexts of all heads side by side.

    context: [head, query, head_dim]
    concat: [query, model]
    bounds: of each head, the first dimension that is its own and the first that is not any more
    """

    context: Floats
    concat: Floats
    bounds: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Mix:
    """The output of a layer as a sum: one part a head, and the bias of W_O.

    context: [head, query, head_dim]; blocks: [head, head_dim, model] the rows of W_O that each head is multiplied with
    parts: [head, query, model] context times block
    bias: [model]
    total: [query, model] the parts and the bias added up; output: what the layer says
    difference: the largest difference between these two
    lengths: [head, query] of the parts
    shares: [head, query] of the length of the output, by what each part adds along its direction; negative where it
        takes away. With ``bias_share`` [query] they sum to 1
    """

    context: Floats
    blocks: Floats
    parts: Floats
    bias: Floats
    total: Floats
    output: Floats
    difference: float
    lengths: Floats
    shares: Floats
    bias_share: Floats


@dataclass(frozen=True, eq=False)
class Without:
    """The output of a layer with some heads off.

    output: [query, model] with the gates of these heads at 0
    difference: the largest between that and the whole output less their parts
    length: [query] of this output, as a multiple of the whole one's
    cosine: [query] between the two, 0 where one has no length
    """

    output: Floats
    difference: float
    length: Floats
    cosine: Floats


def sentence(language: str = "en") -> Sentence:
    """Return the sentence in ``"en"`` or ``"id"``. Raises OptionError for another language."""
    if language not in SENTENCES:
        raise OptionError(
            "There is no sentence in {language}. Choose one of: {languages}.",
            language=language,
            languages=", ".join(SENTENCES),
        )
    tokens = toy_tokens(SENTENCES[language])
    return Sentence(tokens, ORDER, states(tokens.labels, ORDER))


@torch.no_grad()
def maps_of(module: MultiHeadAttention, said: Sentence) -> AttentionMaps:
    """Return the maps of a layer over the sentence, [1, head, query, key]."""
    _, weights = module(said.states)
    return AttentionMaps(
        queries=said.tokens,
        keys=said.tokens,
        weights=weights.float().numpy(),
        source=SOURCE,
        notes=(message("What these heads compare is set by hand. Nothing is trained."),),
    )


def readouts(maps: AttentionMaps, query: int, *, layer: int = 0) -> tuple[Readout, ...]:
    """Return where each head of one layer looks from one query; of equal keys the first is named.

    Raises OptionError for a query or a layer that there is not.
    """
    if not (0 <= query < len(maps.queries) and 0 <= layer < maps.layers):
        raise OptionError(
            "There is no query {query} in layer {layer}: there are {queries} queries and {layers} layers.",
            query=query,
            layer=layer,
            queries=len(maps.queries),
            layers=maps.layers,
        )
    rows = maps.weights[layer, :, query]  # [head, key]
    most = math.log2(max(int(maps.key_counts()[layer, query]), 1))
    keys = rows.argmax(axis=-1)
    return tuple(
        Readout(
            head=Head(maps.first.layer + layer, maps.first.index + head),
            query=query,
            key=int(key),
            query_label=maps.queries.labels[query],
            key_label=maps.keys.labels[key],
            weight=float(row[key]),
            bits=float(bits),
            most=most,
        )
        for head, (row, key, bits) in enumerate(zip(rows, keys, entropy(rows), strict=True))
    )


@torch.no_grad()
def blocks(module: MultiHeadAttention, x: Float[Tensor, "1 token model"]) -> Blocks:
    """Return the contexts of all heads, apart and side by side: a width of d_model, however many heads there are."""
    steps = module.trace(x)
    width = module.head_dim
    bounds = tuple((head * width, (head + 1) * width) for head in range(module.num_heads))
    return Blocks(steps.context[0].numpy(), steps.concat[0].numpy(), bounds)


@torch.no_grad()
def mix(module: MultiHeadAttention, x: Float[Tensor, "1 token model"]) -> Mix:
    """Cut the output for the states ``x`` into what each head adds to it."""
    steps = module.trace(x)
    context, output = steps.context[0], steps.output[0]
    rows = module.output.weight.T  # [concat, model]: torch keeps W_O transposed
    cut = rows.view(module.num_heads, module.head_dim, -1)  # [head, head_dim, model]
    bias = module.output.bias
    parts = context @ cut  # [head, query, model]
    total = parts.sum(dim=0) + bias  # [query, model]
    squared = output.square().sum(-1)  # [query]
    return Mix(
        context=context.numpy(),
        blocks=cut.numpy(),
        parts=parts.numpy(),
        bias=bias.numpy(),
        total=total.numpy(),
        output=output.numpy(),
        difference=float((total - output).abs().max()),
        lengths=parts.norm(dim=-1).numpy(),
        shares=((parts * output).sum(-1) / squared).numpy(),
        bias_share=((bias * output).sum(-1) / squared).numpy(),
    )


@torch.no_grad()
def without(module: MultiHeadAttention, x: Float[Tensor, "1 token model"], off: Bools) -> Without:
    """Return the output for the states ``x`` with the heads ``off`` [head] switched off.

    Raises OptionError for another number of switches than heads.
    """
    if off.shape != (module.num_heads,):
        raise OptionError(
            "There are {given} switches for {heads} heads: give one for each.",
            given=off.size,
            heads=module.num_heads,
        )
    whole = mix(module, x)
    gates = torch.from_numpy(~off).to(x.dtype)[None]
    output = module(x, gates=gates)[0][0].numpy()
    less = whole.total - whole.parts[off].sum(axis=0)
    here, there = (np.linalg.norm(part, axis=-1) for part in (output, whole.output))
    product = here * there
    dot = (output * whole.output).sum(axis=-1)
    return Without(
        output=output,
        difference=float(np.abs(output - less).max()),
        length=np.divide(here, there, out=np.zeros_like(here), where=there > 0),
        cosine=np.divide(dot, product, out=np.zeros_like(dot), where=product > 0),
    )
