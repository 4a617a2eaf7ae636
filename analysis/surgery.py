"""Take heads out of a network for good: a smaller network that says what the masked one said.

A head's rows of W_Q, W_K, W_V and their biases go, and its columns of W_O; b_O stays, and so does the scale
(transformers 4 did the same under the name ``prune_heads``; Michel, Levy, Neubig 2019). What was removed stands in the
config as ``pruned_heads``, by the numbers that heads had at first: a second round adds to it, and all numbers of
heads stay what they were.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor
from torch.nn import Linear, Module, Parameter
from transformers import PreTrainedModel

from analysis.anatomy import ANATOMIES, layers_of
from analysis.messages import ModelError, OptionError
from analysis.probe import removed
from analysis.tokens import Bools


@dataclass(frozen=True)
class Sizes:
    """What a network costs.

    parameters: how many numbers it has; bytes: that they take in float32
    products: multiply-adds of its layers for one text of ``tokens`` tokens, the output's head left out
    """

    parameters: int
    bytes: int
    products: int
    tokens: int


def without(network: PreTrainedModel, heads: Bool[np.ndarray, "layer head"]) -> PreTrainedModel:
    """Return a copy of ``network`` from which these heads are removed; the original is not touched.

    heads: True where a head goes; those that are gone already may be among them

    Raises ModelError where layers share their weights (ALBERT), OptionError for a mask of another shape.
    """
    check_heads(network, heads)
    clone = copy.deepcopy(network)
    shrink(clone, heads & ~removed(clone))
    return clone


def check_heads(network: PreTrainedModel, heads: Bools) -> None:
    """Raise unless these heads can be removed from ``network``."""
    config = network.config
    if config.model_type == "albert":
        raise ModelError(
            "{architecture} uses one and the same layer several times: a head cannot be removed from one of them "
            "alone. Switch heads off instead.",
            architecture=type(network).__name__,
        )
    shape = (config.num_hidden_layers, config.num_attention_heads)
    if heads.shape != shape:
        raise OptionError(
            "The heads are of {given} layers x heads, but the model has {layers} x {heads}.",
            given=" x ".join(map(str, heads.shape)),
            layers=shape[0],
            heads=shape[1],
        )


def shrink(network: PreTrainedModel, heads: Bools) -> None:
    """Remove heads [layer, head], all of which are there, from ``network`` itself, and note it in its config."""
    gone = removed(network)
    for number, layer in enumerate(layers_of(network)):
        if heads[number].any():
            keep = ~heads[number][~gone[number]]  # of the heads that are there
            _change_heads(network, layer, partial(_taken, rows=_rows(network, keep)))
    note_removed(network.config, gone | heads)


def note_removed(config: Any, gone: Bools) -> None:
    """Write into a config which heads are gone, as transformers 4 did."""
    config.pruned_heads = {
        int(layer): [int(head) for head in np.flatnonzero(row)] for layer, row in enumerate(gone) if row.any()
    }


def _rows(network: PreTrainedModel, heads: Bools) -> Tensor:
    """Return the rows of W_Q that belong to these heads [head] of a layer."""
    config = network.config
    return torch.from_numpy(
        np.flatnonzero(np.repeat(heads, config.hidden_size // config.num_attention_heads))
    )


Change = Callable[
    [Tensor, int, int], Tensor
]  # of a tensor along an axis in which so many blocks lie behind each other


def _change_heads(network: PreTrainedModel, layer: Module, change: Change) -> None:
    """Change W_Q, W_K, W_V and their biases by their rows, and W_O by its columns."""
    anatomy = ANATOMIES[network.config.model_type]
    blocks = 3 // len(anatomy.inputs)  # a fused projection has three
    for name in anatomy.inputs:
        _replace(layer, name, lambda part: change(part, 0, blocks), change_bias=True)
    _replace(layer, anatomy.output, lambda part: change(part, 1, 1), change_bias=False)


def _replace(layer: Module, name: str, change: Callable[[Tensor], Tensor], *, change_bias: bool) -> None:
    """Put a Linear of another size in the place of one."""
    old = layer.get_submodule(name)
    assert isinstance(old, Linear)
    new = Linear(1, 1, bias=old.bias is not None, device="meta")
    new.weight = Parameter(change(old.weight.detach()), requires_grad=old.weight.requires_grad)
    if old.bias is not None:
        new.bias = old.bias
        if change_bias:
            new.bias = Parameter(change(old.bias.detach()), requires_grad=old.bias.requires_grad)
    new.out_features, new.in_features = new.weight.shape
    new.training = old.training
    parent, _, last = name.rpartition(".")
    setattr(layer.get_submodule(parent), last, new)


def _taken(part: Tensor, dim: int, blocks: int, *, rows: Tensor) -> Tensor:
    """Return only ``rows`` of each block of ``part`` along ``dim``."""
    return part.index_select(
        dim, _in_blocks(rows, blocks, part.shape[dim] // blocks, part.device)
    ).contiguous()


def _spread(part: Tensor, dim: int, blocks: int, *, rows: Tensor, high: int) -> Tensor:
    """Return ``part`` with blocks ``high`` along ``dim``, where it stands at ``rows`` of each and all else is 0."""
    whole = part.new_zeros([blocks * high if axis == dim else size for axis, size in enumerate(part.shape)])
    return whole.index_copy(dim, _in_blocks(rows, blocks, high, part.device), part)


def _in_blocks(rows: Tensor, blocks: int, high: int, device: torch.device) -> Tensor:
    return torch.cat([rows + block * high for block in range(blocks)]).to(device)


def zeroed(network: PreTrainedModel, heads: Bool[np.ndarray, "layer head"]) -> PreTrainedModel:
    """Return a copy of full shape in which these heads add nothing: their columns of W_O are 0.

    Heads that were removed are there again, as zeros. Any program loads it; it is as large and as slow as the whole.
    Raises as `without` does.
    """
    check_heads(network, heads)
    clone = copy.deepcopy(network)
    gone = removed(clone)
    name = ANATOMIES[clone.config.model_type].output
    for number, layer in enumerate(layers_of(clone)):
        if gone[number].any():
            rows = _rows(clone, ~gone[number])
            _change_heads(clone, layer, partial(_spread, rows=rows, high=clone.config.hidden_size))
        with torch.no_grad():
            layer.get_parameter(f"{name}.weight")[:, _rows(clone, heads[number])] = 0.0
    if gone.any():
        note_removed(clone.config, np.zeros_like(gone))
    return clone


def sizes(network: PreTrainedModel, tokens: int = 64) -> Sizes:
    """Return what a network costs for a text of ``tokens`` tokens.

    Multiply-adds of one layer with h heads of width d, model width m, n tokens: the projections 4 n m h d, scores and
    contexts 2 n^2 h d, and all other Linear modules of the layer n times their weights. Local windows are counted as if
    they were whole.
    """
    config = network.config
    parameters = sum(parameter.numel() for parameter in network.parameters())
    head_dim = config.hidden_size // config.num_attention_heads
    heads = (~removed(network)).sum(axis=1)
    products = 0
    for layer, count in zip(layers_of(network), heads, strict=True):
        products += tokens * sum(part.weight.numel() for part in layer.modules() if isinstance(part, Linear))
        products += 2 * tokens**2 * int(count) * head_dim
    return Sizes(parameters, 4 * parameters, products, tokens)


def pruned_class(network_class: type[PreTrainedModel], gone: Mapping[Any, Any]) -> type[PreTrainedModel]:
    """Return a class of the same name whose networks are made without the heads that are gone.

    Its own ``from_pretrained`` then finds weights of the shapes that were saved: those of this version and those that
    transformers 4 pruned.
    """

    def make(self: Any, config: Any, *args: Any, **options: Any) -> None:
        network_class.__init__(self, config, *args, **options)
        heads = np.zeros((config.num_hidden_layers, config.num_attention_heads), dtype=bool)
        for layer, numbers in gone.items():
            heads[int(layer), list(numbers)] = True
        config.pruned_heads = {}
        shrink(self, heads)

    return type(
        network_class.__name__, (network_class,), {"__init__": make, "__module__": network_class.__module__}
    )
