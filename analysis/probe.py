"""One attention function for every supported encoder: it sees each head, scales it, reports it.

Transformers 5 lets a program register its own attention function and hands unknown keyword arguments of
``model(...)`` down to it. So each forward pass carries a probe of its own and the shared model is never
changed: two sessions can look at, or switch off, different heads of one model at the same moment.

Scaling a head's context by a gate is xi in Michel, Levy, Neubig 2019 (arXiv 1905.10650), section 2.3: a
gate of 0 equals zeroing the head's weights after the softmax, its columns of W_O, or removing it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from analysis.messages import ModelError, OptionError

ATTENTION = "headroom"

WeightsReader = Callable[[int, Tensor, Tensor | None], None]
VectorsReader = Callable[[int, Tensor, Tensor, Tensor, float], None]


@dataclass(eq=False)
class Probe:
    """What one forward pass should do to the heads, and report of them. Use a new one for each pass.

    gates: [batch or 1, layer, head] the factor of each head's context, 1 as it is and 0 off; None for 1
    on_weights: called once a layer with the layer's number, its weights [batch, head, query, key] (rows
        sum to 1) and its mask [batch, 1, query, key] (True where a key may be attended; None: everywhere)
    on_vectors: called once a layer, before on_weights, with the layer's number, its queries, keys and values
        [batch, head, token, head_dim] as they enter the attention (in ModernBERT after the rotation by their
        position) and the scale that the products of queries and keys are multiplied with
    """

    gates: Float[Tensor, "batch layer head"] | None = None
    on_weights: WeightsReader | None = None
    on_vectors: VectorsReader | None = None
    calls: int = 0


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
    layer = probe.calls
    probe.calls += 1
    weights = None
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if probe.on_vectors is not None:
        probe.on_vectors(layer, query, key, value, scale)
    if probe.on_weights is None:
        context, _ = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    else:
        weights = _weights(query, key, attention_mask, scale)  # [batch, head, query, key]
        context = torch.matmul(weights, value).transpose(1, 2).contiguous()  # [batch, query, head, head_dim]
        probe.on_weights(layer, weights, attention_mask)
    if probe.gates is not None:
        context = context * probe.gates[:, None, layer, :, None]
    return context, weights


def _weights(query: Tensor, key: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    scores = torch.matmul(query, key.transpose(2, 3)) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, dim=-1)


def run(network: PreTrainedModel, inputs: Mapping[str, Tensor], probe: Probe) -> Any:
    """Run one forward pass of ``network`` under ``probe`` and return its outputs.

    Raises OptionError for gates of another shape than the batch and the model's heads, ModelError if the architecture
    did not pass every layer through the probe: better no answer than one that ignored the gates.
    """
    layers, heads = network.config.num_hidden_layers, network.config.num_attention_heads
    if probe.gates is not None and tuple(probe.gates.shape[1:]) != (layers, heads):
        raise OptionError(
            "The gates are for {given} layers x heads, but the model has {layers} x {heads}.",
            given=" x ".join(str(n) for n in probe.gates.shape[1:]),
            layers=layers,
            heads=heads,
        )
    rows = len(next(iter(inputs.values())))
    if probe.gates is not None and len(probe.gates) not in (1, rows):
        raise OptionError(
            "There are {given} rows of gates for a batch of {rows}: give one row, or one for each text.",
            given=len(probe.gates),
            rows=rows,
        )
    outputs = network(**inputs, head_probe=probe)
    if probe.calls != layers:
        raise ModelError(
            "{architecture} showed the attention of {calls} of its {layers} layers: its heads can be "
            "neither seen nor switched off here. Choose a BERT-like encoder.",
            architecture=type(network).__name__,
            calls=probe.calls,
            layers=layers,
        )
    return outputs


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
