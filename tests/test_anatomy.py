"""The matrices of attention are found where each architecture keeps them: what goes in and comes out says so."""

from __future__ import annotations

import pytest
import torch
import transformers

from analysis.anatomy import ANATOMIES, output_projection
from analysis.messages import ModelError
from analysis.probe import Probe, run
from tests import tiny

FORMS = [(family, kind) for family in tiny.FAMILIES for kind in tiny.KINDS]


def contexts_and_inputs(network, layers):
    """Return of each layer the joined contexts of its heads, and what went into its W_O in that pass.

    In ALBERT one W_O stands for several layers: the n-th of its layers is the n-th call.
    """
    contexts, calls, matrix = [], {}, []
    found = [output_projection(network, layer) for layer in range(layers)]
    hooks = [
        module.register_forward_hook(lambda module, args, out: calls.setdefault(module, []).append(args[0]))
        for module in set(found)
    ]

    def keep_values(layer, query, key, value, scale):
        matrix.append(value)

    def keep_contexts(layer, weights, mask):
        contexts.append((weights @ matrix[layer]).transpose(1, 2).flatten(2))

    with torch.no_grad():
        run(network, tiny.batch_of(network, [12]), Probe(on_weights=keep_contexts, on_vectors=keep_values))
    for hook in hooks:
        hook.remove()
    went_in = [calls[module].pop(0) for module in found]
    assert not any(calls.values()), "W_O of a layer was found in fewer layers than it serves"
    return contexts, went_in


@pytest.mark.parametrize(("family", "kind"), FORMS)
def test_what_goes_into_the_output_projection_is_the_context_of_all_heads(family, kind):
    network = tiny.tiny_network(family, kind)
    layers = network.config.num_hidden_layers
    contexts, went_in = contexts_and_inputs(network, layers)
    for layer in range(layers):
        torch.testing.assert_close(went_in[layer], contexts[layer], atol=1e-6, rtol=0)
        assert output_projection(network, layer).weight.shape == (tiny.WIDTH, tiny.WIDTH)
        assert layer == 0 or (went_in[layer] - contexts[layer - 1]).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("layers", "groups", "expected"),
    [
        (4, 1, [0, 0, 0, 0]),
        (4, 2, [0, 0, 1, 1]),
        (4, 4, [0, 1, 2, 3]),
        (5, 2, [0, 0, 0, 1, 1]),
        (18, 14, [0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 7, 8, 9, 10, 10, 11, 12, 13]),  # 9 / (18 / 14) is 6.999...
    ],
)
def test_the_layers_of_albert_share_the_projection_of_their_group(layers, groups, expected):
    network = tiny.tiny_network("albert", num_hidden_layers=layers, num_hidden_groups=groups)
    kept = [group.albert_layers[0].attention.dense for group in network.encoder.albert_layer_groups]
    assert [kept.index(output_projection(network, layer)) for layer in range(layers)] == expected
    contexts, went_in = contexts_and_inputs(network, layers)
    for context, inside in zip(contexts, went_in, strict=True):
        torch.testing.assert_close(inside, context, atol=1e-6, rtol=0)


def test_every_family_is_in_the_table():
    assert sorted(ANATOMIES) == sorted(tiny.FAMILIES)


def test_an_architecture_that_is_not_in_the_table_is_refused_by_name():
    config = transformers.MPNetConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    network = transformers.MPNetModel(config)
    with pytest.raises(
        ModelError, match=r"Where MPNetModel keeps .* is not known here\. Choose .*: bert, rob"
    ):
        output_projection(network, 0)
