"""Switch heads off and read what the network then says: exactly, for many sets of heads, without waste.

Ablation as in Michel, Levy, Neubig 2019 (arXiv 1905.10650), section 3: a head that is off adds nothing, its
bias of the values included, and the bias of W_O stays. A variant is one set of heads that are off. What
variants share is computed once: the pass up to the attention of the first layer in which a variant differs from
what all have in common. From there on, all variants that differ first in the same layer run stacked in one
batch, each row with gates of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice, product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from analysis.capture import pad
from analysis.maps import Head
from analysis.messages import OptionError
from analysis.models import Model
from analysis.passes import Inputs, Passes, Reader, drafted
from analysis.probe import Probe, Replacement, removed, run
from analysis.suffix import suffix_after_attention

TOKENS = 1024  # of a stacked batch, its padding included: what a processor's cache holds runs fastest
STACK = 12  # variants that a batch of inputs leaves room for


class Unit(NamedTuple):
    """A finished part of an evaluation: values [variant, input, width] of these variants for these inputs."""

    variants: np.ndarray
    inputs: list[int]
    values: np.ndarray


def evaluate(
    model: Model,
    inputs: Sequence[Inputs],
    read: Reader,
    masks: Bool[np.ndarray, "variant layer head"],
    *,
    replacement: Replacement = "zero",
    means: np.ndarray | None = None,
    tokens: int = TOKENS,
    dtype: torch.dtype = torch.float32,
    on_progress: Callable[[int], None] | None = None,
) -> Float[np.ndarray, "variant input width"]:
    """Return what ``read`` takes from the network's outputs for each input, under each variant.

    inputs: as `analysis.capture.encode` gives them, equal ones only once; they run in batches of similar length
    read: given outputs, their padded batch and the place in ``inputs`` of each row, returns [batch, width]
    masks: True where a head is off
    replacement, means: see `analysis.probe.Probe`; means [layer, head, head_dim] as `mean_contexts` gives them
    tokens: of the largest batch that runs, its padding included
    dtype: bfloat16 for a draft with products in half precision
    on_progress: called with the number of finished units, see `count_units`; what it raises ends the evaluation

    In float32 within 1e-5 of `plain`. Raises OptionError for masks or means of another shape than the model's.
    """
    found = np.zeros((len(masks), len(inputs), 0), dtype=np.float32)
    finished = units(
        model, inputs, read, masks, replacement=replacement, means=means, tokens=tokens, dtype=dtype
    )
    for number, unit in enumerate(finished):
        if number == 0:
            found = np.zeros((len(masks), len(inputs), unit.values.shape[-1]), dtype=np.float32)
        found[unit.variants[:, None], unit.inputs] = unit.values
        if on_progress is not None:
            on_progress(number + 1)
    return found


def units(
    model: Model,
    inputs: Sequence[Inputs],
    read: Reader,
    masks: Bool[np.ndarray, "variant layer head"],
    *,
    replacement: Replacement = "zero",
    means: np.ndarray | None = None,
    tokens: int = TOKENS,
    dtype: torch.dtype = torch.float32,
    skip: int = 0,
) -> Iterator[Unit]:
    """Yield what `evaluate` returns in units: the variants that differ first in one layer, on one batch of inputs.

    Their order is always the same; ``skip`` leaves out so many from the start, which are there already.
    """
    check_masks(model, masks)
    network = model.network if dtype == torch.float32 else drafted(model.network, dtype)
    passes = Passes(model, network, inputs, read, replacement, means, dtype)
    groups, batches = _plan(inputs, masks, tokens)
    suffixes = {n: suffix_after_attention(network, n) for n in groups if n < masks.shape[1]}
    start = None
    for batch, first in islice(product(batches, groups), skip, None):
        if start is None or start.batch is not batch:
            start = passes.start(batch, np.logical_and.reduce(masks), suffixes)
        variants = groups[first]
        if first in suffixes:
            high = max(tokens // start.padded["input_ids"].numel(), 1)
            parts = np.array_split(variants, -(-len(variants) // high))  # stacks of about equal height
            values = torch.cat([passes.stack(suffixes[first], first, start, masks[part]) for part in parts])
        else:
            values = passes.value_of(start)[None].expand(len(variants), -1, -1)
        yield Unit(variants, batch, values.cpu().numpy())


def check_masks(model: Model, masks: np.ndarray) -> None:
    """Raise OptionError unless ``masks`` say for each head of the model whether it is off."""
    shape = (model.geometry.layers, model.geometry.heads)
    if masks.dtype != bool or masks.ndim != 3 or masks.shape[1:] != shape:
        raise OptionError(
            "The masks are {dtype} of the shape {given}. Give booleans [variant, {layers}, {heads}].",
            dtype=str(masks.dtype),
            given=str(masks.shape),
            layers=shape[0],
            heads=shape[1],
        )


def count_units(
    inputs: Sequence[Inputs], masks: Bool[np.ndarray, "variant layer head"], *, tokens: int = TOKENS
) -> int:
    """Return how many units an evaluation has."""
    groups, batches = _plan(inputs, masks, tokens)
    return len(groups) * len(batches)


def plain(
    model: Model,
    inputs: Sequence[Inputs],
    read: Reader,
    masks: Bool[np.ndarray, "variant layer head"],
    *,
    replacement: Replacement = "zero",
    means: np.ndarray | None = None,
    tokens: int = TOKENS,
) -> Float[np.ndarray, "variant input width"]:
    """Return the same as `evaluate` by one whole pass for each variant: what it is measured and tested against."""
    passes = Passes(model, model.network, inputs, read, replacement, means, torch.float32)
    batches = _batches(inputs, tokens)
    found: list[list[np.ndarray]] = [[np.empty(0)] * len(inputs) for _ in masks]
    for number, mask in enumerate(masks):
        for batch in batches:
            values = passes.value_of(passes.start(batch, mask, ())).cpu().numpy()
            for place, value in zip(batch, values, strict=True):
                found[number][place] = value
    return np.array(found, dtype=np.float32).reshape(
        len(masks), len(inputs), -1 if masks.size and inputs else 0
    )


@torch.no_grad()
def mean_contexts(
    model: Model, inputs: Sequence[Inputs], *, tokens: int = TOKENS
) -> Float[np.ndarray, "layer head head_dim"]:
    """Return the mean context of each head over all tokens of ``inputs``, for the replacement "mean".

    Take other texts than those that are evaluated. Raises OptionError where there are none.
    """
    if not inputs:
        raise OptionError("There are no texts to take the mean contexts of. Give one at least.")
    geometry = model.geometry
    there = ~torch.from_numpy(removed(model.network))
    sums = torch.zeros(geometry.layers, geometry.heads, geometry.head_dim, dtype=torch.float64)

    for batch in _batches(inputs, tokens):
        padded = pad(model, [inputs[i] for i in batch])
        real = padded["attention_mask"].bool()

        def add(layer: int, context: Tensor, _: Tensor | None, real: Tensor = real) -> None:
            sums[layer, there[layer]] += context[real].double().sum(dim=0).cpu()

        run(model.network, padded, Probe(on_contexts=add))
    return (sums / sum(len(row["input_ids"]) for row in inputs)).float().numpy()


def single_heads(layers: int, heads: int) -> Bool[np.ndarray, "variant layer head"]:
    """Return a variant for each head, layer by layer, in which it alone is off."""
    return np.eye(layers * heads, dtype=bool).reshape(-1, layers, heads)


def all_but_one(layers: int, heads: int) -> Bool[np.ndarray, "variant layer head"]:
    """Return a variant for each head, layer by layer, in which the others of its layer are off."""
    same_layer = np.eye(layers, dtype=bool).repeat(heads, axis=0)[:, :, None]
    return same_layer & ~single_heads(layers, heads)


def one_set(heads: Sequence[Head], shape: tuple[int, int]) -> Bool[np.ndarray, "1 layer head"]:
    """Return the variant in which these heads are off.

    Raises OptionError for a head that the model's ``shape`` (layers, heads) does not have, or that is given twice.
    """
    mask = np.zeros((1, *shape), dtype=bool)
    for head in heads:
        if not (0 <= head.layer < shape[0] and 0 <= head.index < shape[1]):
            raise OptionError(
                "There is no head {head} in {layers} layers x {heads} heads: both are counted from 0.",
                head=head,
                layers=shape[0],
                heads=shape[1],
            )
        if mask[0, head.layer, head.index]:
            raise OptionError("Head {head} is given twice. Give it once.", head=head)
        mask[0, head.layer, head.index] = True
    return mask


def pairs_of(heads: Sequence[Head], shape: tuple[int, int]) -> Bool[np.ndarray, "variant layer head"]:
    """Return a variant for every two of these heads, in the order of `itertools.combinations`; as `one_set`."""
    one_set(heads, shape)
    pairs = [one_set(pair, shape) for pair in combinations(heads, 2)]
    return np.concatenate(pairs) if pairs else np.zeros((0, *shape), dtype=bool)


def _plan(
    inputs: Sequence[Inputs], masks: np.ndarray, tokens: int
) -> tuple[dict[int, np.ndarray], list[list[int]]]:
    """Return the groups of variants and the batches of inputs: stacks of a group on a batch fit the budget.

    Variants are numbered by the first layer in which they differ from what all have in common; those that differ
    nowhere stand under the number of layers.
    """
    differs = (masks != masks.all(axis=0)).any(axis=-1)  # [variant, layer]
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), masks.shape[1])
    groups = {int(layer): np.flatnonzero(first == layer) for layer in np.unique(first)}
    highest = max((len(variants) for variants in groups.values()), default=1)
    return groups, _batches(inputs, tokens // min(highest, STACK))


def _batches(inputs: Sequence[Inputs], tokens: int) -> list[list[int]]:
    """Return the places of inputs, those of similar length together so that little is padded, within the budget."""
    lengths = [len(row["input_ids"]) for row in inputs]
    batches: list[list[int]] = []
    for place in sorted(range(len(inputs)), key=lengths.__getitem__):
        if not batches or (len(batches[-1]) + 1) * lengths[place] > tokens:
            batches.append([])
        batches[-1].append(place)
    return batches
