"""The attention function against transformers' own: the same numbers, gates that mean what they say, no traces left."""

from __future__ import annotations

import threading

import pytest
import torch
import transformers

from analysis.messages import ModelError, OptionError
from analysis.probe import ATTENTION, Probe, run
from tests import tiny

FORMS = [(family, kind) for family in tiny.FAMILIES for kind in tiny.KINDS]
LONG, SHORT = 24, 11  # ModernBERT's window of 8 reaches 4 tokens to each side


@pytest.fixture(scope="module", params=FORMS, ids=["-".join(form) for form in FORMS])
def network(request):
    """A tiny network of each family with each head."""
    return tiny.tiny_network(*request.param)


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def encoder(request):
    """A tiny network of each family, without a head."""
    return tiny.tiny_network(request.param)


def passed(network, inputs, gates=None):
    """Return what the network says first, under gates."""
    with torch.no_grad():
        return run(network, inputs, Probe(gates=gates))[0]


def recorded(network, inputs, gates=None):
    """Return what the network says first, and the weights of every layer."""
    layers = []
    with torch.no_grad():
        said = run(
            network, inputs, Probe(gates=gates, on_weights=lambda n, w, mask: layers.append((n, w.clone())))
        )
    assert [n for n, _ in layers] == list(range(len(layers)))
    return said[0], [w for _, w in layers]


def distance(ours, theirs, lengths):
    """Return the largest difference over the real tokens; padded rows mean nothing."""
    if ours.ndim < 2 or ours.shape[1] != max(lengths):  # one value or one row of classes for each text
        return (ours - theirs).abs().max().item()
    return max((ours[i, :n] - theirs[i, :n]).abs().max().item() for i, n in enumerate(lengths))


def shape_of(network):
    """Return (layers, heads) of a network."""
    return network.config.num_hidden_layers, network.config.num_attention_heads


def output_projections(network):
    """Return W_O of each layer, found by the names of each family."""
    ends = ("attention.output.dense", "attention.out_lin", "attention.dense", "attn.Wo")
    return [module for name, module in network.named_modules() if name.endswith(ends)]


@pytest.mark.parametrize("lengths", [[LONG], [LONG, SHORT, 3]], ids=["alone", "padded"])
def test_recording_equals_eager_attention(network, lengths):
    inputs = tiny.batch_of(network, lengths)
    said, weights = recorded(network, inputs)
    eager = tiny.twin(network, "eager")
    with torch.no_grad():
        expected = eager(**inputs, output_attentions=True)
    assert len(weights) == len(expected.attentions) == network.config.num_hidden_layers
    for ours, theirs in zip(weights, expected.attentions, strict=True):
        for i, n in enumerate(lengths):
            torch.testing.assert_close(ours[i, :, :n, :n], theirs[i, :, :n, :n], atol=1e-6, rtol=0)
            torch.testing.assert_close(
                ours[i, :, :n, :n].sum(-1), torch.ones(ours.shape[1], n), atol=1e-5, rtol=0
            )
    assert distance(said, expected[0], lengths) <= 1e-6
    assert torch.stack(weights)[:, 0].max() > 2 / LONG, "attention is uniform: this test would see nothing"


@pytest.mark.parametrize("lengths", [[LONG], [LONG, SHORT, 3]], ids=["alone", "padded"])
def test_without_recording_it_is_sdpa(network, lengths):
    inputs = tiny.batch_of(network, lengths)
    said = passed(network, inputs)
    with torch.no_grad():
        sdpa = tiny.twin(network, "sdpa")(**inputs)[0]
        eager = tiny.twin(network, "eager")(**inputs)[0]
    assert distance(said, sdpa, lengths) <= 1e-6
    assert distance(said, eager, lengths) <= 1e-5 * max(1.0, eager.abs().max().item())


def test_the_local_window_of_modernbert_bites():
    network = tiny.tiny_network("modernbert")
    _, (first, second, third) = recorded(network, tiny.batch_of(network, [LONG]))
    assert (first[0, :, 0, -1] > 0).all()
    assert (third[0, :, 0, -1] > 0).all()
    assert second[0, :, 0, 5:].max() == 0
    assert second[0, :, 0, :5].min() > 0


def test_gates_of_one_change_nothing(network):
    inputs = tiny.batch_of(network, [LONG, SHORT])
    assert torch.equal(passed(network, inputs, torch.ones(1, *shape_of(network))), passed(network, inputs))


def test_a_gate_of_zero_equals_zeroed_columns_of_the_output_projection(network):
    inputs = tiny.batch_of(network, [LONG])
    layers, heads = shape_of(network)
    whole = passed(network, inputs)
    width = network.config.hidden_size // heads
    for layer, head in [(0, 0), (layers - 1, heads - 1), (1, 2)]:
        shared = network.config.model_type == "albert"  # its layers share one W_O: the head is off in each
        gates = torch.ones(1, layers, heads)
        gates[0, slice(None) if shared else layer, head] = 0
        zeroed = tiny.twin(network, "sdpa")
        projection = output_projections(zeroed)[0 if shared else layer]
        projection.weight.data[:, head * width : (head + 1) * width] = 0
        with torch.no_grad():
            expected = zeroed(**inputs)[0]
        said = passed(network, inputs, gates)
        torch.testing.assert_close(said, expected, atol=1e-5, rtol=0)
        assert (said - whole).abs().max() > 1e-3, "the gate was ignored"


def test_in_albert_a_gate_in_layer_3_changes_that_call_only():
    network = tiny.tiny_network("albert")
    inputs = tiny.batch_of(network, [LONG])
    gates = torch.ones(1, *shape_of(network))
    gates[0, 3, 1] = 0
    whole, before = recorded(network, inputs)
    gated, after = recorded(network, inputs, gates)
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))  # layer 3 is the last
    assert (whole - gated).abs().max() > 1e-3
    gates = torch.ones(1, *shape_of(network))
    gates[0, 2, 1] = 0
    _, after = recorded(network, inputs, gates)
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True, True, True, False]


def test_head_mask_is_ignored_by_transformers_and_the_gates_are_not(encoder):
    inputs = tiny.batch_of(encoder, [SHORT])
    whole = passed(encoder, inputs)
    off = torch.zeros(1, *shape_of(encoder))
    with torch.no_grad():
        masked = encoder(**inputs, head_mask=off[0])[0]
    assert torch.equal(masked, whole)
    gated = passed(encoder, inputs, off)
    assert torch.isfinite(gated).all()
    assert (gated - whole).abs().max() > 1e-2


def test_each_row_of_a_batch_has_gates_of_its_own(encoder):
    inputs = tiny.batch_of(encoder, [SHORT, SHORT, SHORT])
    inputs = {name: rows[:1].expand(3, -1) for name, rows in inputs.items()}
    generator = torch.Generator().manual_seed(3)
    gates = torch.rand(3, *shape_of(encoder), generator=generator).round()
    together = passed(encoder, inputs, gates)
    one = {name: rows[:1] for name, rows in inputs.items()}
    for row in range(3):
        torch.testing.assert_close(
            together[row], passed(encoder, one, gates[row : row + 1])[0], atol=1e-5, rtol=0
        )
    assert (together[0] - together[1]).abs().max() > 1e-2


def test_a_gate_scales_what_one_head_adds(encoder):
    """One half between off and whole: the context is scaled linearly in the last layer's attention."""
    inputs = tiny.batch_of(encoder, [SHORT])
    seen = []
    last = output_projections(encoder)[-1]
    for factor in (0.0, 0.5, 1.0):
        gates = torch.ones(1, *shape_of(encoder))
        gates[0, -1, 0] = factor
        hook = last.register_forward_hook(lambda _, __, out: seen.append(out))
        passed(encoder, inputs, gates)
        hook.remove()
    calls = len(seen) // 3
    off, half, whole = seen[calls - 1], seen[2 * calls - 1], seen[3 * calls - 1]
    torch.testing.assert_close(half, (off + whole) / 2, atol=1e-5, rtol=0)
    assert (off - whole).abs().max() > 1e-3


def test_scaling_after_the_projection_is_something_else(encoder):
    inputs = tiny.batch_of(encoder, [SHORT])
    layers, heads = shape_of(encoder)
    width = encoder.config.hidden_size // heads
    gates = torch.ones(1, layers, heads)
    gates[:, :, 0] = 0
    sliced = tiny.twin(encoder, "sdpa")
    scale = torch.ones(encoder.config.hidden_size)
    scale[:width] = 0
    for projection in output_projections(sliced):
        projection.register_forward_hook(lambda _, __, out: out * scale)
    with torch.no_grad():
        wrong = sliced(**inputs)[0]
    assert (passed(encoder, inputs, gates) - wrong).abs().max() > 1e-2


def test_gates_scale_while_recording_too(encoder):
    inputs = tiny.batch_of(encoder, [LONG])
    gates = torch.ones(1, *shape_of(encoder))
    gates[0, 1, 2] = 0
    said, weights = recorded(encoder, inputs, gates)
    torch.testing.assert_close(said, passed(encoder, inputs, gates), atol=1e-5, rtol=0)
    torch.testing.assert_close(weights[1].sum(-1), torch.ones_like(weights[1].sum(-1)))  # what it sees, not 0


def vectors_of(network, inputs, **readers):
    """Return what the network says first, and each layer's (number, queries, keys, values, scale)."""
    layers = []
    with torch.no_grad():
        said = run(network, inputs, Probe(on_vectors=lambda *vectors: layers.append(vectors), **readers))
    return said[0], layers


@pytest.mark.parametrize("lengths", [[LONG], [LONG, SHORT, 3]], ids=["alone", "padded"])
def test_reading_the_vectors_alone_changes_no_bit(network, lengths):
    inputs = tiny.batch_of(network, lengths)
    said, layers = vectors_of(network, inputs)
    assert torch.equal(said, passed(network, inputs))
    gates = torch.ones(1, *shape_of(network))
    gates[0, 1, 2] = 0
    gated, _ = vectors_of(network, inputs, gates=gates)
    assert torch.equal(gated, passed(network, inputs, gates))
    count, heads = shape_of(network)
    width = network.config.hidden_size // heads
    assert [layer for layer, *_ in layers] == list(range(count))
    for _, query, key, value, scale in layers:
        assert query.shape == key.shape == value.shape == (len(lengths), heads, max(lengths), width)
        assert scale == pytest.approx(width**-0.5)


def test_the_vectors_are_those_that_the_weights_come_from(encoder):
    inputs = tiny.batch_of(encoder, [LONG])
    order, maps = [], []

    def keep(layer, weights, mask):
        order.append(("weights", layer))
        maps.append((weights.clone(), mask))

    def note(layer, *_):
        order.append(("vectors", layer))

    said, layers = vectors_of(encoder, inputs, on_weights=keep)
    expected, weights = recorded(encoder, inputs)
    assert torch.equal(said, expected)
    for (_, query, key, value, scale), (seen, mask), plain in zip(layers, maps, weights, strict=True):
        scores = query @ key.transpose(2, 3) * scale
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        torch.testing.assert_close(torch.softmax(scores, dim=-1), plain, atol=1e-6, rtol=0)
        assert torch.equal(seen, plain)
        assert (value - key).abs().max() > 1e-2
    order.clear()
    run(encoder, inputs, Probe(on_weights=keep, on_vectors=note))
    assert order == [(what, layer) for layer in range(len(layers)) for what in ("vectors", "weights")]


def test_the_keys_of_modernbert_come_rotated_by_their_position():
    """Equal tokens have equal values everywhere in layer 0, and keys that differ by their position."""
    network = tiny.tiny_network("modernbert")
    inputs = {"input_ids": torch.full((1, 5), 7), "attention_mask": torch.ones(1, 5, dtype=torch.long)}
    _, ((_, _, key, value, _), *_) = vectors_of(network, inputs)
    torch.testing.assert_close(value[0, :, 0], value[0, :, 3], atol=1e-6, rtol=0)
    assert (key[0, :, 0] - key[0, :, 3]).abs().max() > 1e-2
    torch.testing.assert_close(key[0, :, 0].norm(dim=-1), key[0, :, 3].norm(dim=-1))


@pytest.mark.parametrize("shape", [(1, 3, 5), (1, 2, 4), (1, 4, 3)])
def test_gates_of_a_wrong_shape_are_refused(shape):
    network = tiny.tiny_network("bert")
    with pytest.raises(
        OptionError, match=rf"{shape[1]} x {shape[2]} layers x heads, but the model has 3 x 4"
    ):
        run(network, tiny.batch_of(network, [5]), Probe(gates=torch.ones(shape)))


def test_gates_for_another_number_of_rows_are_refused():
    network = tiny.tiny_network("bert")
    with pytest.raises(OptionError, match="2 rows of gates for a batch of 3"):
        run(network, tiny.batch_of(network, [5, 5, 5]), Probe(gates=torch.ones(2, 3, 4)))


@pytest.mark.parametrize("name", ["MPNet", "DebertaV2"])
def test_architectures_that_ignore_the_probe_are_refused_by_name(name):
    config = getattr(transformers, f"{name}Config")(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=66,
    )  # fmt: skip
    config._attn_implementation = ATTENTION
    network = getattr(transformers, f"{name}Model")(config).eval()
    inputs = {"input_ids": torch.arange(5, 12)[None], "attention_mask": torch.ones(1, 7, dtype=torch.long)}
    with pytest.raises(ModelError, match=f"{name}Model showed the attention of 0 of its 2 layers"):
        run(network, inputs, Probe(gates=torch.zeros(1, 2, 4)))


def test_the_shared_network_is_never_changed(network):
    state = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    config, hooks = network.config.to_dict(), hooks_of(network)
    inputs = tiny.batch_of(network, [LONG, SHORT])
    recorded(network, inputs, torch.zeros(1, *shape_of(network)))
    with pytest.raises(ZeroDivisionError):
        run(network, inputs, Probe(on_weights=lambda *_: 1 / 0))
    assert network.config.to_dict() == config
    assert hooks_of(network) == hooks
    assert not network.training
    after = network.state_dict()
    assert after.keys() == state.keys()
    assert all(torch.equal(after[name], tensor) for name, tensor in state.items())


def hooks_of(network):
    """Return the number of hooks on each module."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return {name: [len(getattr(module, kind)) for kind in kinds] for name, module in network.named_modules()}


def test_an_exception_in_one_pass_leaves_the_next_one_bit_equal(encoder):
    inputs = tiny.batch_of(encoder, [LONG])
    said, weights = recorded(encoder, inputs)

    def fail_in_layer_1(layer, weights, mask):
        if layer == 1:
            raise RuntimeError("the reader broke")

    with pytest.raises(RuntimeError, match="the reader broke"):
        run(encoder, inputs, Probe(gates=torch.zeros(1, *shape_of(encoder)), on_weights=fail_in_layer_1))
    again, weights_again = recorded(encoder, inputs)
    assert torch.equal(said, again)
    assert all(torch.equal(a, b) for a, b in zip(weights, weights_again, strict=True))


@pytest.mark.parametrize("family", ["bert", "albert", "modernbert"])
def test_threads_with_different_gates_do_not_mix(family):
    network = tiny.tiny_network(family)
    inputs = tiny.batch_of(network, [LONG, SHORT])
    generator = torch.Generator().manual_seed(1)
    gates = [None, *(torch.rand(1, *shape_of(network), generator=generator).round() for _ in range(3))]
    alone = [passed(network, inputs, g) for g in gates]
    maps = recorded(network, inputs, gates[1])[1]
    failures: list[str] = []

    def repeat(which: int) -> None:
        torch.set_num_threads(1)
        for n in range(40):
            if which == 1 and n % 2:
                same = all(
                    torch.equal(a, b)
                    for a, b in zip(recorded(network, inputs, gates[1])[1], maps, strict=True)
                )
            else:
                same = torch.equal(passed(network, inputs, gates[which]), alone[which])
            if not same:
                failures.append(f"thread {which}, pass {n}")

    threads = [threading.Thread(target=repeat, args=(which,)) for which in range(len(gates))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (alone[0] - alone[1]).abs().max() > 1e-2


def replaced(network, inputs, gates, **instead):
    """Return what the network says first, under gates and a replacement."""
    with torch.no_grad():
        return run(network, inputs, Probe(gates=gates, **instead))[0]


def contexts_of(network, inputs, **options):
    """Return each layer's (contexts, replacement) before the gates."""
    kept = {}
    with torch.no_grad():
        probe = Probe(on_contexts=lambda layer, *contexts: kept.update({layer: contexts}), **options)
        run(network, inputs, probe)
    assert list(kept) == list(range(shape_of(network)[0]))
    return list(kept.values())


def one_off(network, layer, head):
    """Return gates with one head off; in ALBERT, whose layers share their matrices, off in each layer."""
    gates = torch.ones(1, *shape_of(network))
    gates[0, slice(None) if network.config.model_type == "albert" else layer, head] = 0
    return gates


def own_parameters(network, layer, ends):
    """Return the parameters of one layer whose names end so; of the one that all share in ALBERT."""
    shared = network.config.model_type == "albert"
    parts = [f".{layer}.", f"layers.{layer}."]
    named = [
        (name, parameter)
        for name, parameter in network.named_parameters()
        if name.endswith(ends) and (shared or any(part in "." + name for part in parts))
    ]
    return [parameter for _, parameter in named]


@pytest.mark.parametrize("lengths", [[LONG], [LONG, SHORT, 3]], ids=["alone", "padded"])
def test_uniform_attention_is_that_of_a_head_whose_queries_are_zero(network, lengths):
    """All its scores are then 0: the softmax spreads evenly over the keys that may be attended."""
    inputs = tiny.batch_of(network, lengths)
    layers, heads = shape_of(network)
    width = network.config.hidden_size // heads
    ends = tuple(
        f"{name}.{kind}" for name in ("query", "q_lin", "Wqkv") for kind in ("weight", "bias")
    )  # Wqkv holds the queries first
    for layer, head in [(0, 0), (layers - 1, heads - 1), (1, 2)]:
        blind = tiny.twin(network, ATTENTION)
        found = own_parameters(blind, layer, ends)
        assert len(found) in (1, 2)
        for parameter in found:
            parameter[head * width : (head + 1) * width] = 0
        said = replaced(network, inputs, one_off(network, layer, head), replacement="uniform")
        assert distance(said, passed(blind, inputs), lengths) <= 1e-5
        assert distance(said, passed(network, inputs), lengths) > 1e-3
        assert distance(said, passed(network, inputs, one_off(network, layer, head)), lengths) > 1e-4


def test_a_mean_context_is_a_constant_in_place_of_the_head(network):
    """As good as: its columns of W_O zeroed, and what they make of the mean added to the bias."""
    inputs = tiny.batch_of(network, [LONG, SHORT, 3])
    layers, heads = shape_of(network)
    width = network.config.hidden_size // heads
    means = torch.randn(layers, heads, width, generator=torch.Generator().manual_seed(4))
    if network.config.model_type == "albert":
        means[:] = means[0]
    for layer, head in [(0, 0), (layers - 1, heads - 1)]:
        constant = tiny.twin(network, "sdpa")
        projection = output_projections(constant)[0 if network.config.model_type == "albert" else layer]
        columns = projection.weight[:, head * width : (head + 1) * width]
        added = columns @ means[layer, head]
        columns.zero_()
        bias = added if projection.bias is None else projection.bias + added
        projection.bias = torch.nn.Parameter(bias, requires_grad=False)
        with torch.no_grad():
            expected = constant(**inputs)[0]
        gates = one_off(network, layer, head)
        said = replaced(network, inputs, gates, replacement="mean", means=means)
        assert distance(said, expected, [LONG, SHORT, 3]) <= 1e-5
        assert distance(said, passed(network, inputs, gates), [LONG, SHORT, 3]) > 1e-3


@pytest.mark.parametrize("replacement", ["zero", "mean", "uniform"])
def test_a_replacement_changes_nothing_where_no_gate_is_below_one(encoder, replacement):
    inputs = tiny.batch_of(encoder, [LONG, SHORT])
    layers, heads = shape_of(encoder)
    means = torch.full((layers, heads, encoder.config.hidden_size // heads), 7.0)
    whole = passed(encoder, inputs)
    ones = torch.ones(2, layers, heads)
    assert torch.equal(replaced(encoder, inputs, ones, replacement=replacement, means=means), whole)
    assert torch.equal(replaced(encoder, inputs, None, replacement=replacement, means=means), whole)
    ones[1, 0, 0] = 0  # of the second text alone
    said = replaced(encoder, inputs, ones, replacement=replacement, means=means)
    assert torch.equal(said[0], whole[0])
    assert (said[1, :SHORT] - whole[1, :SHORT]).abs().max() > 1e-3


@pytest.mark.parametrize("replacement", ["zero", "mean", "uniform"])
def test_contexts_are_weights_times_values_before_the_gates(encoder, replacement):
    lengths = [LONG, SHORT]
    inputs = tiny.batch_of(encoder, lengths)
    layers, heads = shape_of(encoder)
    means = torch.randn(layers, heads, encoder.config.hidden_size // heads)
    kept = contexts_of(encoder, inputs, replacement=replacement, means=means)
    _, weights = recorded(encoder, inputs)
    _, vectors = vectors_of(encoder, inputs)
    _, masks = masks_of(encoder, inputs)
    for layer, (context, instead) in enumerate(kept):
        value = vectors[layer][3]
        assert distance(context, (weights[layer] @ value).transpose(1, 2), lengths) <= 1e-5
        if replacement == "zero":
            assert instead is None
        elif replacement == "mean":
            assert torch.equal(instead.expand_as(context)[0, 0], means[layer])
        else:
            mask = masks[layer]
            for row, n in enumerate(lengths):
                for query in (0, n - 1):
                    keys = slice(None) if mask is None else mask[row, 0, query]
                    mean = value[row][:, keys].mean(1)
                    torch.testing.assert_close(instead.expand_as(context)[row, query], mean)
    gates = torch.ones(1, layers, heads)
    gates[0, -1, 0] = 0
    gated = contexts_of(encoder, inputs, gates=gates)
    assert torch.equal(gated[-1][0], kept[-1][0])


def masks_of(network, inputs):
    """Return what the network says first, and the mask of each layer."""
    masks = []
    with torch.no_grad():
        said = run(network, inputs, Probe(on_weights=lambda _layer, _weights, mask: masks.append(mask)))
    return said[0], masks


def test_a_gate_of_one_half_mixes_a_context_with_its_replacement(encoder):
    inputs = tiny.batch_of(encoder, [SHORT])
    layers, heads = shape_of(encoder)
    seen = []
    hook = output_projections(encoder)[-1].register_forward_hook(lambda _, args, __: seen.append(args[0]))
    for factor in (0.0, 0.5, 1.0):
        gates = torch.ones(1, layers, heads)
        gates[0, -1] = factor
        replaced(encoder, inputs, gates, replacement="uniform")
    hook.remove()
    calls = len(seen) // 3
    off, half, whole = seen[calls - 1], seen[2 * calls - 1], seen[3 * calls - 1]
    torch.testing.assert_close(half, (off + whole) / 2, atol=1e-6, rtol=0)
    assert (off - whole).abs().max() > 1e-2


def test_gates_of_one_still_have_gradients(encoder):
    """Where nothing is off the gates are left out of the arithmetic, but not when someone asks for gradients."""
    inputs = tiny.batch_of(encoder, [SHORT])
    gates = torch.ones(1, *shape_of(encoder), requires_grad=True)
    said = run(encoder, inputs, Probe(gates=gates))[0]
    (said[0, :, 0] ** 3).sum().backward()
    assert (gates.grad.abs() > 0).all()


@pytest.mark.parametrize("means", [None, torch.zeros(3, 4, 7), torch.zeros(2, 4, 8)])
def test_means_of_a_wrong_shape_are_refused(means):
    network = tiny.tiny_network("bert")
    probe = Probe(replacement="mean", means=means)
    with pytest.raises(OptionError, match=r"means of the shape \(3, 4, 8\), not"):
        run(network, tiny.batch_of(network, [5]), probe)
