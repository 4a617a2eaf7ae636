"""One attention function for every supported encoder: it sees each head, scales it, reports it.

Transformers 5 lets a program register its own attention function and hands unknown keyword arguments of
``model(...)`` down to it. So each forward pass carries a probe of its own and the shared model is never
changed: two sessions can look at, or switch off, different heads of one model at the same moment.

Scaling a head's context by a gate is xi in Michel, Levy, Neubig 2019 (arXiv 1905.10650), section 2.3: a
gate of 0 equals zeroing the head's weights after the softmax, its columns of W_O, or removing it. Something
else may stand in for the context of a head that is off: its mean over other texts, or the mean of the values
it could have attended to, which is what uniform attention gives (Kovaleva et al. 2019, arXiv 1908.08593).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from analysis.messages import ModelError, OptionError
from analysis.tokens import Bools

ATTENTION = "headroom"

WeightsReader = Callable[[int, Tensor, Tensor | None], None]
VectorsReader = Callable[[int, Tensor, Tensor, Tensor, float], None]
Contexts = tuple[Tensor, Tensor | None]
ContextsReader = Callable[[int, Tensor, Tensor | None], None]
Replacement = Literal["zero", "mean", "uniform"]


@dataclass(eq=False)
class Probe:
    """What one forward pass should do to the heads, and report of them. Use a new one for each pass.

    gates: [batch or 1, layer, head] the factor of each head's context, 1 as it is and 0 off; None for 1
    replacement: what takes the place of a context, as far as its gate is below 1: nothing, the head's mean
        context from ``means``, or the mean of the values that the query may attend to
    means: [layer, head, head_dim] for the replacement "mean"
    first: the number of the layer that a pass starts with: above 0 in a suffix of a network, whose
        layers keep their numbers
    kept: what ``on_contexts`` was given of layer ``first``, with a row for each row of the batch; it stands in
        for computing the attention of that layer
    alive: [layer, head] the heads that a network from which some were removed still has, None for all; set by `run`
    on_weights: called once a layer with the layer's number, its weights [batch, head, query, key] (rows
        sum to 1) and its mask [batch, 1, query, key] (True where a key may be attended; None: everywhere)
    on_vectors: called once a layer, before on_weights, with the layer's number, its queries, keys and values
        [batch, head, token, head_dim] as they enter the attention (in ModernBERT after the rotation by their
        position) and the scale that the products of queries and keys are multiplied with
    on_contexts: called once a layer, after on_weights, with the layer's number, the contexts
        [batch, query, head, head_dim] before their gates, and the replacement, which fits that shape
        (None: nothing)

    Heads keep their numbers where some were removed: gates and means have all, weights and vectors are NaN for those
    that are gone. Contexts alone are of the heads that are there.
    """

    gates: Float[Tensor, "batch layer head"] | None = None
    replacement: Replacement = "zero"
    means: Float[Tensor, "layer head head_dim"] | None = None
    first: int = 0
    kept: Contexts | None = None
    on_weights: WeightsReader | None = None
    on_vectors: VectorsReader | None = None
    on_contexts: ContextsReader | None = None
    alive: Bool[Tensor, "layer head"] | None = None
    calls: int = 0

    def heads_of(self, layer: int) -> Bool[Tensor, " head"] | None:
        """Return which heads a layer has; None for all."""
        if self.alive is None or bool(self.alive[layer].all()):
            return None
        return self.alive[layer]


def removed(network: PreTrainedModel) -> Bools:
    """Return [layer, head] which heads a network no longer has, as its config says (``pruned_heads``)."""
    config = network.config
    gone = np.zeros((config.num_hidden_layers, config.num_attention_heads), dtype=bool)
    for layer, heads in (getattr(config, "pruned_heads", None) or {}).items():
        gone[int(layer), list(heads)] = True
    return gone


def attend(
    module: torch.nn.Module,
    query: Float[Tensor, "batch head query head_dim"],
    key: Float[Tensor, "batch head key head_dim"],
    value: Float[Tensor, "batch head key head_dim"],
    attention_mask: Bool[Tensor, "batch 1 query key"] | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    head_probe: Probe | None = None,
    **kwargs: Any,
) -> tuple[Float[Tensor, "batch query head head_dim"], Float[Tensor, "batch head query key"] | None]:
    """Return the context of every head, and its weights where the probe reads them.

    The layer is the number of calls so far in this pass: `layer_idx` is None in DistilBERT and ALBERT.
    Without a reader of weights this is transformers' own sdpa; with one, the arithmetic of its eager attention.
    """
    probe = head_probe or Probe()
    layer = probe.first + probe.calls
    probe.calls += 1
    gates = _gates(probe, layer)
    if probe.kept is not None and layer == probe.first:
        return _gated(probe.kept, gates), None
    weights = None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    alive = probe.heads_of(layer)
    if probe.on_vectors is not None:
        probe.on_vectors(layer, _in_all(query, alive), _in_all(key, alive), _in_all(value, alive), scale)
    if probe.on_weights is None:
        context, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    else:
        weights = _weights(query, key, attention_mask, scale)  # [batch, head, query, key]
        context = torch.matmul(weights, value).transpose(1, 2).contiguous()  # [batch, query, head, head_dim]
        probe.on_weights(layer, _in_all(weights, alive), attention_mask)
    instead = None
    if gates is not None or probe.on_contexts is not None:
        instead = _replacement(probe, layer, value, attention_mask)
    if probe.on_contexts is not None:
        probe.on_contexts(layer, context, instead)
    return _gated((context, instead), gates), weights


def _in_all(part: Tensor, alive: Tensor | None) -> Tensor:
    """Return [batch, head, ...] with a row for every head that there was, NaN for those that are gone."""
    if alive is None:
        return part
    whole = part.new_full((len(part), len(alive), *part.shape[2:]), torch.nan)
    whole[:, alive] = part
    return whole


def _gates(probe: Probe, layer: int) -> Tensor | None:
    """Return the gates of one layer, or None where all are 1 and no gradient with respect to them is asked for."""
    if probe.gates is None:
        return None
    gates = probe.gates[:, layer]
    alive = probe.heads_of(layer)
    gates = gates if alive is None else gates[:, alive]
    return gates if gates.requires_grad or bool((gates != 1).any()) else None


def _gated(contexts: Contexts, gates: Tensor | None) -> Tensor:
    context, instead = contexts  # [batch, query, head, head_dim]
    if gates is None:
        return context
    gates = gates[:, None, :, None].to(context.dtype)
    return context * gates if instead is None else context * gates + instead * (1 - gates)


def _replacement(probe: Probe, layer: int, value: Tensor, mask: Tensor | None) -> Tensor | None:
    """Return what stands in for the contexts, with axes that fit [batch, query, head, head_dim]."""
    if probe.replacement == "zero":
        return None
    if probe.replacement == "mean":
        assert probe.means is not None  # `run` holds it
        means, alive = probe.means[layer], probe.heads_of(layer)
        return (means if alive is None else means[alive])[None, None].to(value.dtype)
    if mask is None:
        return value.mean(dim=2)[:, None]
    shares = mask / mask.sum(-1, keepdim=True).clamp(min=1)  # [batch, 1, query, key]
    return torch.matmul(shares.to(value.dtype), value).transpose(1, 2)


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    scores = torch.matmul(query, key.transpose(2, 3)) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1)


def run(network: PreTrainedModel, inputs: Mapping[str, Tensor], probe: Probe) -> Any:
    """Run one forward pass of ``network`` under ``probe`` and return its outputs.

    Raises OptionError for gates or means of another shape than the batch and the model's heads, ModelError if
    the architecture did not pass every layer through the probe: better no answer than one that ignored the gates.
    """
    _check(network, len(next(iter(inputs.values()))), probe)
    gone = removed(network)
    if gone.any():
        probe.alive = torch.from_numpy(~gone).to(network.device)
    outputs = network(**inputs, head_probe=probe)
    layers = network.config.num_hidden_layers
    if probe.first + probe.calls != layers:
        raise ModelError(
            "{architecture} showed the attention of {calls} of its {layers} layers: its heads can be "
            "neither seen nor switched off here. Choose a BERT-like encoder.",
            architecture=type(network).__name__,
            calls=probe.calls,
            layers=layers - probe.first,
        )
    return outputs


def _check(network: PreTrainedModel, rows: int, probe: Probe) -> None:
    layers, heads = network.config.num_hidden_layers, network.config.num_attention_heads
    assert probe.kept is None or (probe.on_weights, probe.on_vectors, probe.on_contexts) == (None,) * 3
    if probe.gates is not None and tuple(probe.gates.shape[1:]) != (layers, heads):
        raise OptionError(
            "The gates are for {given} layers x heads, but the model has {layers} x {heads}.",
            given=" x ".join(str(n) for n in probe.gates.shape[1:]),
            layers=layers,
            heads=heads,
        )
    if probe.gates is not None and len(probe.gates) not in (1, rows):
        raise OptionError(
            "There are {given} rows of gates for a batch of {rows}: give one row, or one for each text.",
            given=len(probe.gates),
            rows=rows,
        )
    if probe.replacement not in ("zero", "mean", "uniform"):
        raise OptionError(
            "There is no replacement {given}. Choose zero, mean or uniform.", given=str(probe.replacement)
        )
    if probe.replacement != "mean":
        return
    shape = (layers, heads, network.config.hidden_size // heads)
    given = None if probe.means is None else tuple(probe.means.shape)
    if given != shape:
        raise OptionError(
            "To replace a head by its mean context, give means of the shape {shape}, not {given}.",
            shape=shape,
            given=given,
        )


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
