"""The network from one layer on, as a network of the same class that shares all its parameters.

Modules on the way to what changes are copied, one object each; everything else is the original's own, and the
original is never touched. A suffix reads the state before its first layer as ``inputs_embeds``: it holds
nothing of a pass, so one serves many passes and threads. Its config is the original's and its layers keep
their numbers, see `analysis.probe.Probe.first`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor
from torch.nn import Identity, Module, ModuleList
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from analysis.anatomy import ANATOMIES, layers_of
from analysis.probe import Contexts, Probe, run


@dataclass(frozen=True, eq=False)
class States:
    """What one pass left behind, of the layers that were asked for.

    inputs: by layer, what it reads [batch, token, model]; by the number of layers, what the last one gives
    contexts: by layer, what `Probe.on_contexts` was given
    outputs: what the network said
    """

    inputs: dict[int, Tensor]
    contexts: dict[int, Contexts]
    outputs: Any


def suffix(network: PreTrainedModel, first: int) -> PreTrainedModel:
    """Return the network from layer ``first`` on, or without any layer where ``first`` is their number.

    Run it on ``inputs_embeds`` and ``attention_mask``, under a probe with the same ``first``. Raises ModelError
    for an architecture whose modules are not known.
    """
    clone = _with_layers(network, layers_of(network)[first:])
    base = _base(network)
    clone = _with(clone, base + "embeddings", _Given())
    if hasattr(network.base_model, "embeddings_project"):
        clone = _with(clone, base + "embeddings_project", Identity())
    if network.config.model_type == "albert":
        clone = _with(clone, base + "encoder.embedding_hidden_mapping_in", Identity())
    return clone


def suffix_after_attention(network: PreTrainedModel, first: int) -> PreTrainedModel:
    """Return the network from what follows the attention of layer ``first``, which is not computed.

    As `suffix`; the probe brings the contexts of that layer, see `analysis.probe.Probe.kept`.
    """
    layer, *rest = layers_of(network)[first:]
    names = ANATOMIES[network.config.model_type].inputs
    parts = 3 // len(names)
    for name in names:
        width = layer.get_parameter(f"{name}.weight").shape[0] // parts
        layer = _with(layer, name, _Uncomputed(parts, width))
    return _with_layers(suffix(network, first), [layer, *rest])


def head_of(network: PreTrainedModel) -> PreTrainedModel:
    """Return what follows the base model of a masked language model; it reads the last states as ``inputs_embeds``.

    On the few states that are asked for, it spares the logits of all other tokens. The last states are what the
    base model returns, after any norm.
    """
    return _with(network, network.base_model_prefix, _LastStates())


def states(
    network: PreTrainedModel, inputs: Mapping[str, Tensor], probe: Probe, layers: Collection[int]
) -> States:
    """Run one pass of the whole network under ``probe`` and return what ``layers`` read and attended to.

    The number of layers among ``layers`` asks for what the last one gives, before any norm that follows.
    """
    kept: dict[int, Tensor] = {}
    contexts: dict[int, Contexts] = {}

    modules: list[Module] = []
    whole = layers_of(network)
    for number, layer in enumerate([*whole, None]):
        if number in layers:
            modules.append(_Keeping(kept, number, layer or whole[-1]))
        if layer is not None:
            modules.append(layer)
    outputs = run(
        _with_layers(network, modules),
        inputs,
        replace(probe, on_contexts=partial(_keep_contexts, layers, contexts)),
    )
    return States(kept, contexts, outputs)


def _keep_contexts(
    layers: Collection[int],
    kept: dict[int, Contexts],
    layer: int,
    context: Tensor,
    instead: Tensor | None,
) -> None:
    if layer in layers:
        kept[layer] = context, instead


class _Given(Module):
    """In place of the embeddings: the state that the network is given."""

    def forward(self, input_ids: None = None, inputs_embeds: Tensor | None = None, *_: Any, **__: Any) -> Any:
        return inputs_embeds


class _LastStates(Module):
    """In place of the base model: the last states that the network is given."""

    def forward(
        self, input_ids: None = None, inputs_embeds: Tensor | None = None, *_: Any, **__: Any
    ) -> BaseModelOutput:
        return BaseModelOutput(last_hidden_state=inputs_embeds)


class _Uncomputed(Module):
    """In place of what gives queries, keys and values: something of their shape that nobody reads."""

    def __init__(self, parts: int, width: int) -> None:
        super().__init__()
        self.parts, self.width = parts, width

    def forward(self, state: Float[Tensor, "batch token model"]) -> Tensor:
        one = state[..., : self.width]  # narrower than the state where heads were removed
        return one if self.parts == 1 else one[:, :, None].expand(-1, -1, self.parts, -1)


class _Keeping(Module):
    """Before a layer: keeps the state on its way into it."""

    def __init__(self, kept: dict[int, Tensor], number: int, layer: Module) -> None:
        super().__init__()
        self.keep: Callable[[Tensor], None] = lambda state: kept.update({number: state})
        self.attention_type = getattr(layer, "attention_type", None)  # ModernBERT asks each of its layers

    def forward(self, state: Float[Tensor, "batch token model"], *_: Any, **__: Any) -> Tensor:
        self.keep(state)
        return state


def _base(network: PreTrainedModel) -> str:
    """Return what the names of the base model's modules begin with: nothing where it is the network itself."""
    return "" if network.base_model is network else network.base_model_prefix + "."


def _with_layers(network: PreTrainedModel, layers: list[Module]) -> PreTrainedModel:
    """Return a clone of ``network`` whose layers are these modules."""
    clone = _with(network, _base(network) + ANATOMIES[network.config.model_type].layers, ModuleList(layers))
    if network.config.model_type == "albert":  # it counts its layers by its config, and groups them
        encoder = clone.base_model.encoder
        encoder.config = copy.copy(encoder.config)
        encoder.config.num_hidden_layers = encoder.config.num_hidden_groups = len(layers)
    return clone


def _with(module: Any, path: str, new: Module) -> Any:
    """Return a copy of ``module`` with ``new`` at ``path``, that shares all that is not on the way there."""
    clone = copy.copy(module)
    for name, value in vars(module).items():  # its tables of submodules, parameters, hooks
        if isinstance(value, dict):
            vars(clone)[name] = copy.copy(value)
    name, _, rest = path.partition(".")
    clone._modules[name] = _with(getattr(module, name), rest, new) if rest else new
    return clone
