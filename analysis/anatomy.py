"""Where each architecture keeps the matrices of its attention, in the names of transformers' own modules."""

from __future__ import annotations

from dataclasses import dataclass

from torch.nn import Linear, Module
from transformers import PreTrainedModel

from analysis.messages import ModelError


@dataclass(frozen=True)
class Anatomy:
    """Names of the modules of one architecture.

    layers: from the base model to the list of its layers, or of the groups that share one layer
    inputs: from one of these to what gives its queries, keys and values: three modules, or one for all
    output: the same to W_O, which joins the contexts of the heads
    """

    layers: str
    inputs: tuple[str, ...]
    output: str


_BERT = Anatomy(
    layers="encoder.layer",
    inputs=("attention.self.query", "attention.self.key", "attention.self.value"),
    output="attention.output.dense",
)
ANATOMIES = {  # by config.model_type
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "electra": _BERT,
    "distilbert": Anatomy(
        layers="transformer.layer",
        inputs=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
        output="attention.out_lin",
    ),
    "albert": Anatomy(
        layers="encoder.albert_layer_groups",
        inputs=tuple(f"albert_layers.0.attention.{name}" for name in ("query", "key", "value")),
        output="albert_layers.0.attention.dense",
    ),
    "modernbert": Anatomy(layers="layers", inputs=("attn.Wqkv",), output="attn.Wo"),
}


def layers_of(network: PreTrainedModel) -> list[Module]:
    """Return the module of each layer, with a head for a task or without; in ALBERT some layers share one.

    Raises ModelError for an architecture that is not in the table.
    """
    anatomy = ANATOMIES.get(network.config.model_type)
    if anatomy is None:
        raise ModelError(
            "Where {architecture} keeps the matrices of its attention is not known here. "
            "Choose a model of one of these kinds: {kinds}.",
            architecture=type(network).__name__,
            kinds=", ".join(ANATOMIES),
        )
    kept = network.base_model.get_submodule(anatomy.layers)
    count = network.config.num_hidden_layers
    # ALBERT's own rule for the group of a layer, rounding included; one layer each elsewhere.
    return [kept[int(layer / (count / len(kept)))] for layer in range(count)]


def output_projection(network: PreTrainedModel, layer: int) -> Linear:
    """Return W_O of one layer: its weight is [model, model], columns h·head_dim and on belong to head h.

    Raises ModelError for an architecture that is not in the table.
    """
    found = layers_of(network)[layer].get_submodule(ANATOMIES[network.config.model_type].output)
    assert isinstance(found, Linear)
    return found
