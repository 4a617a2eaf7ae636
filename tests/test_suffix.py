"""A suffix of a network says what the whole says, bit for bit, and the whole is never touched."""

from __future__ import annotations

import pytest
import torch
import transformers

from analysis.messages import ModelError
from analysis.probe import ATTENTION, Probe, run
from analysis.suffix import head_of, states, suffix, suffix_after_attention
from tests import tiny

KINDS = ("headless", "classification", "masked")
FORMS = [(family, kind) for family in tiny.FAMILIES for kind in KINDS]
LONG, SHORT = 24, 11  # ModernBERT's window of 8 reaches 4 tokens to each side
REPLACEMENTS = ("zero", "mean", "uniform")


@pytest.fixture(scope="module", params=FORMS, ids=["-".join(form) for form in FORMS])
def network(request):
    """A tiny network of each family: without a head, as a classifier, as a masked language model."""
    return tiny.tiny_network(*request.param)


def shape_of(network):
    """Return (layers, heads) of a network."""
    return network.config.num_hidden_layers, network.config.num_attention_heads


def from_state(inputs, state):
    """Return the inputs of a suffix."""
    return {"inputs_embeds": state, "attention_mask": inputs["attention_mask"]}


@pytest.mark.parametrize("lengths", [[LONG], [LONG, SHORT, 3]], ids=["alone", "padded"])
def test_from_any_layer_on_it_says_the_same_bit_for_bit(network, lengths):
    inputs = tiny.batch_of(network, lengths)
    layers, _ = shape_of(network)
    with torch.no_grad():
        whole = run(network, inputs, Probe())[0]
        before = states(network, inputs, Probe(), range(layers + 1))
        assert torch.equal(before.outputs[0], whole)
        assert sorted(before.inputs) == list(range(layers + 1))
        assert sorted(before.contexts) == list(range(layers))
        for first in range(layers + 1):
            part = suffix(network, first)
            assert type(part) is type(network)
            assert torch.equal(
                run(part, from_state(inputs, before.inputs[first]), Probe(first=first))[0], whole
            )
            for other in range(layers + 1):
                assert other == first or (before.inputs[first] - before.inputs[other]).abs().max() > 1e-2


@pytest.mark.parametrize("replacement", REPLACEMENTS)
def test_from_its_contexts_on_a_layer_says_the_same_under_gates(network, replacement):
    lengths = [LONG, SHORT, 3]
    inputs = tiny.batch_of(network, lengths)
    layers, heads = shape_of(network)
    generator = torch.Generator().manual_seed(5)
    means = torch.randn(layers, heads, tiny.WIDTH // heads, generator=generator)
    instead = {"replacement": replacement, "means": means}
    with torch.no_grad():
        before = states(network, inputs, Probe(**instead), range(layers))
        for first in range(layers):
            gates = torch.rand(len(lengths), layers, heads, generator=generator).round()
            gates[:, :first] = 1
            gates[:, first, 0] = 0
            whole = run(network, inputs, Probe(gates=gates, **instead))[0]
            probe = Probe(gates=gates, first=first, kept=before.contexts[first], **instead)
            said = run(
                suffix_after_attention(network, first), from_state(inputs, before.inputs[first]), probe
            )[0]
            assert torch.equal(said, whole)
            assert (said - before.outputs[0]).abs().max() > 1e-3


def test_the_pass_of_states_is_under_its_gates(network):
    inputs = tiny.batch_of(network, [LONG, SHORT])
    layers, heads = shape_of(network)
    gates = torch.ones(1, layers, heads)
    gates[0, 0, 1] = 0
    with torch.no_grad():
        before = states(network, inputs, Probe(gates=gates), [0, 1])
        plain = states(network, inputs, Probe(), [0, 1])
        assert torch.equal(before.outputs[0], run(network, inputs, Probe(gates=gates))[0])
    assert torch.equal(before.contexts[0][0], plain.contexts[0][0]), (
        "contexts are kept as they are before gates"
    )
    assert (before.inputs[1] - plain.inputs[1]).abs().max() > 1e-3
    assert sorted(before.inputs) == sorted(before.contexts) == [0, 1]


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_after_attention_no_query_key_or_value_is_computed(family):
    network = tiny.tiny_network(family)
    inputs = tiny.batch_of(network, [LONG])
    layers, _ = shape_of(network)
    last = layers - 1  # in ALBERT, whose layers share one module, only the last can be broken alone
    with torch.no_grad():
        before = states(network, inputs, Probe(), [last])
        broken = tiny.twin(network, ATTENTION)
        names = ("query.", "key.", "value.", "q_lin.", "k_lin.", "v_lin.", "Wqkv.")
        found = [p for name, p in broken.named_parameters() if any(part in name for part in names)]
        assert found
        for parameter in found:
            parameter.fill_(torch.nan)
        probe = Probe(first=last, kept=before.contexts[last])
        said = run(suffix_after_attention(broken, last), from_state(inputs, before.inputs[last]), probe)[0]
    assert torch.equal(said, before.outputs[0])


def test_all_parameters_are_shared_and_the_original_is_untouched(network):
    layers, heads = shape_of(network)
    inputs = tiny.batch_of(network, [LONG, SHORT])
    modules = {name: id(module) for name, module in network.named_modules()}
    own = {name: dict(vars(module)) for name, module in network.named_modules()}
    tables = {
        name: {key: dict(value) for key, value in vars(module).items() if isinstance(value, dict)}
        for name, module in network.named_modules()
    }
    config = network.config.to_dict()
    with torch.no_grad():
        whole = run(network, inputs, Probe())[0]
        before = states(network, inputs, Probe(gates=torch.zeros(1, layers, heads)), range(layers))
        with pytest.raises(ZeroDivisionError):
            states(network, inputs, Probe(on_weights=lambda *_: 1 / 0), range(layers))
        parts = [make(network, n) for n in range(layers) for make in (suffix, suffix_after_attention)]
        for n, part in enumerate(parts):
            part.register_forward_hook(lambda *_: None)
            run(part, from_state(inputs, before.inputs[n // 2]), Probe(first=n // 2))
        again = run(network, inputs, Probe())[0]
    assert torch.equal(whole, again)
    assert network.config.to_dict() == config
    assert {name: id(module) for name, module in network.named_modules()} == modules
    for name, module in network.named_modules():
        assert vars(module).keys() == own[name].keys()
        assert all(vars(module)[key] is value for key, value in own[name].items()), name
        for key, table in tables[name].items():
            now = vars(module)[key]
            assert now.keys() == table.keys()
            assert all(now[k] is value for k, value in table.items()), (name, key)
    whole_parameters = {id(parameter) for parameter in network.parameters()}
    for part in parts:
        assert {id(parameter) for parameter in part.parameters()} <= whole_parameters


@pytest.mark.parametrize("groups", [2, 4])
def test_albert_with_several_groups_of_layers(groups):
    network = tiny.tiny_network("albert", num_hidden_groups=groups)
    inputs = tiny.batch_of(network, [LONG])
    with torch.no_grad():
        before = states(network, inputs, Probe(), range(4))
        for first in range(4):
            said = run(suffix(network, first), from_state(inputs, before.inputs[first]), Probe(first=first))
            assert torch.equal(said[0], before.outputs[0])


def test_a_pass_of_a_suffix_that_starts_elsewhere_is_refused():
    network = tiny.tiny_network("bert")
    inputs = from_state(tiny.batch_of(network, [SHORT]), torch.zeros(1, SHORT, tiny.WIDTH))
    with torch.no_grad():
        run(suffix(network, 2), inputs, Probe(first=2))
        for first in (0, 1, 3):
            with pytest.raises(ModelError, match="showed the attention of 1 of its"):
                run(suffix(network, 2), inputs, Probe(first=first))


def test_an_architecture_that_is_not_known_is_refused_by_name():
    config = transformers.MPNetConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4
    )
    with pytest.raises(ModelError, match="Where MPNetModel keeps the matrices"):
        suffix(transformers.MPNetModel(config), 1)


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_head_alone_gives_the_logits_of_the_states_it_is_given(family):
    network = tiny.tiny_network(family, "masked")
    if family == "modernbert":  # a norm after the last layer, which must not be applied twice
        network.model.final_norm.weight.data.uniform_(0.2, 2, generator=torch.Generator().manual_seed(1))
    inputs = tiny.batch_of(network, [LONG, SHORT])
    rows, places = torch.tensor([0, 1, 1]), torch.tensor([20, 2, 7])
    with torch.no_grad():
        logits = run(network, inputs, Probe()).logits
        last = run(network.base_model, inputs, Probe()).last_hidden_state
        said = head_of(network)(inputs_embeds=last[rows, places][:, None]).logits[:, 0]
    torch.testing.assert_close(said, logits[rows, places], atol=1e-5, rtol=0)
