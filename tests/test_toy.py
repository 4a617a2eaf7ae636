"""Attention by hand: the numbers of the teaching pages, and torch's own module as the reference."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture import attend, capture, toy_tokens
from analysis.messages import OptionError
from analysis.toy import EXAMPLE, MultiHeadAttention, attention, embed, make_toy, softmax, two_heads


def like_torch(d_model, num_heads, seed=0):
    """Return our module and torch's with the same weights, in float64."""
    torch.manual_seed(seed)
    theirs = torch.nn.MultiheadAttention(d_model, num_heads, batch_first=True, dtype=torch.float64)
    ours = MultiHeadAttention(d_model, num_heads).double()
    with torch.no_grad():
        theirs.in_proj_bias.normal_()
        theirs.out_proj.bias.normal_()
    copy_weights(ours, theirs)
    return ours.eval(), theirs.eval()


def copy_weights(ours, theirs):
    """Copy torch's weights: the three blocks of in_proj, and out_proj."""
    layers = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        for layer, weight, bias in zip(
            layers, theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3), strict=True
        ):
            layer.weight.copy_(weight)
            layer.bias.copy_(bias)
        ours.output.weight.copy_(theirs.out_proj.weight)
        ours.output.bias.copy_(theirs.out_proj.bias)


def agree(ours, theirs):
    """Check output and weights within 1e-12."""
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-12, rtol=0)


SIZES = st.tuples(st.integers(1, 4), st.integers(1, 4)).map(lambda sizes: (sizes[0] * sizes[1], sizes[1]))
SEED = st.integers(0, 999)


def test_two_heads_two_patterns():
    weights, output = two_heads(EXAMPLE)
    first = [[0.390, 0.219, 0.390], [0.264, 0.471, 0.264], [0.390, 0.219, 0.390]]
    second = [[0.390, 0.390, 0.219], [0.390, 0.390, 0.219], [0.264, 0.264, 0.471]]
    np.testing.assert_array_equal(weights.round(3), [first, second])
    expected = [
        [0.781, 0.219, 0, 0.219, 0.781, 0],
        [0.529, 0.471, 0, 0.219, 0.781, 0],
        [0.781, 0.219, 0, 0.471, 0.529, 0],
    ]
    np.testing.assert_array_equal(output.round(3), expected)


@pytest.mark.parametrize(("shape", "said"), [((3, 5), "3 x 5"), ((6,), "6"), ((1, 3, 6), "1 x 3 x 6")])
def test_states_of_another_shape_are_refused(shape, said):
    with pytest.raises(OptionError, match=rf"6 columns, not of shape {said}\."):
        two_heads(np.zeros(shape))


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=8), st.floats(-1e3, 1e3))
def test_softmax_sums_to_one_and_never_overflows(row, shift):
    scores = np.array(row)
    weights = softmax(scores)
    assert np.isfinite(weights).all()
    np.testing.assert_allclose(weights.sum(), 1)
    small = scores / 1e300
    np.testing.assert_allclose(softmax(small + shift), softmax(small), atol=1e-9)


def test_softmax_by_hand():
    np.testing.assert_allclose(softmax(np.array([[0, np.log(3)], [5, 5]])), [[0.25, 0.75], [0.5, 0.5]])


@pytest.fixture
def float64():
    """Make every new tensor a float64, so that the random numbers of the page are drawn."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
def test_the_module_has_the_numbers_of_the_page():
    torch.manual_seed(0)
    theirs = torch.nn.MultiheadAttention(6, 2, batch_first=True)
    ours = MultiHeadAttention(6, 2)
    x = torch.randn(1, 4, 6)
    copy_weights(ours, theirs)
    with torch.no_grad():
        output, weights = ours(x)
        agree((output, weights), theirs(x, x, x, average_attn_weights=False))
    first = [
        [0.345, 0.120, 0.380, 0.155],
        [0.176, 0.310, 0.147, 0.367],
        [0.278, 0.216, 0.290, 0.216],
        [0.208, 0.322, 0.205, 0.265],
    ]
    second = [
        [0.541, 0.171, 0.222, 0.066],
        [0.029, 0.535, 0.031, 0.405],
        [0.685, 0.109, 0.178, 0.028],
        [0.170, 0.486, 0.105, 0.239],
    ]
    np.testing.assert_array_equal(weights[0].numpy().round(3), [first, second])


@settings(max_examples=30)
@given(sizes=SIZES, batch=st.integers(1, 3), n=st.integers(1, 6), seed=SEED, causal=st.booleans())
def test_self_attention_equals_torch(sizes, batch, n, seed, causal):
    ours, theirs = like_torch(*sizes, seed)
    x = torch.randn(batch, n, sizes[0], dtype=torch.float64)
    future = torch.ones(n, n, dtype=torch.bool).triu(1) if causal else None
    with torch.no_grad():
        agree(ours(x, causal=causal), theirs(x, x, x, attn_mask=future, average_attn_weights=False))
        weights = ours(x, causal=causal)[1]
    if causal:
        assert (weights[..., future] == 0).all()
        assert (weights[:, :, 0, 0] == 1).all()


@settings(max_examples=30)
@given(sizes=SIZES, n=st.integers(1, 5), m=st.integers(1, 5), seed=SEED)
def test_cross_attention_equals_torch(sizes, n, m, seed):
    ours, theirs = like_torch(*sizes, seed)
    x, y = (torch.randn(2, length, sizes[0], dtype=torch.float64) for length in (n, m))
    with torch.no_grad():
        agree(ours(x, y), theirs(x, y, y, average_attn_weights=False))
        assert ours(x, y)[1].shape == (2, sizes[1], n, m)


@settings(max_examples=30)
@given(sizes=SIZES, n=st.integers(1, 6), seed=SEED, boolean=st.booleans())
def test_masks_equal_torch(sizes, n, seed, boolean):
    ours, theirs = like_torch(*sizes, seed)
    x = torch.randn(2, n, sizes[0], dtype=torch.float64)
    allowed = (torch.rand(n, n) > 0.5) | torch.eye(n, dtype=torch.bool)
    bias = torch.randn(n, n, dtype=torch.float64)
    with torch.no_grad():
        if boolean:  # torch's mask says which may *not* be attended
            agree(ours(x, mask=allowed), theirs(x, x, x, attn_mask=~allowed, average_attn_weights=False))
            assert (ours(x, mask=allowed)[1][..., ~allowed] == 0).all()
        else:
            agree(ours(x, mask=bias), theirs(x, x, x, attn_mask=bias, average_attn_weights=False))


def test_a_padding_mask_equals_torch():
    ours, theirs = like_torch(8, 2)
    x = torch.randn(2, 5, 8, dtype=torch.float64)
    padded = torch.tensor([[False] * 5, [False, False, False, True, True]])
    with torch.no_grad():
        agree(
            ours(x, mask=~padded[:, None, None, :]),
            theirs(x, x, x, key_padding_mask=padded, average_attn_weights=False),
        )


@settings(max_examples=30)
@given(sizes=SIZES, seed=SEED, data=st.data())
def test_a_gate_of_zero_equals_zeroed_columns_of_the_output_projection(sizes, seed, data):
    width, heads = sizes
    module, _ = like_torch(width, heads, seed)
    x = torch.randn(2, 4, width, dtype=torch.float64)
    head = data.draw(st.integers(0, heads - 1), label="head")
    gates = torch.ones(1, heads, dtype=torch.float64)
    gates[0, head] = 0
    with torch.no_grad():
        whole, weights = module(x)
        gated, same = module(x, gates=gates)
        assert torch.equal(module(x, gates=torch.ones_like(gates))[0], whole)
        module.output.weight[:, head * module.head_dim : (head + 1) * module.head_dim] = 0
        torch.testing.assert_close(gated, module(x)[0], atol=1e-12, rtol=0)
    assert torch.equal(weights, same)
    assert (gated - whole).abs().max() > 1e-6


def test_gates_belong_to_their_row_of_the_batch():
    module, _ = like_torch(8, 2)
    x = torch.randn(1, 4, 8, dtype=torch.float64).expand(2, -1, -1)
    gates = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    with torch.no_grad():
        both = module(x, gates=gates)[0]
        for row in range(2):
            torch.testing.assert_close(
                both[row], module(x[:1], gates=gates[row : row + 1])[0][0], atol=1e-12, rtol=0
            )
        off = module(x[:1], gates=torch.zeros(1, 2, dtype=torch.float64))[0]
    torch.testing.assert_close(off[0], module.output.bias.expand(4, -1))  # the bias of W_O stays


@pytest.mark.parametrize(("width", "heads"), [(10, 3), (6, 4), (3, 5), (8, 0), (0, 2), (8, -2)])
def test_a_width_that_cannot_be_split_is_refused_with_both_numbers(width, heads):
    with pytest.raises(OptionError, match=f"A width of {width} cannot be split over {heads} heads"):
        MultiHeadAttention(width, heads)
    with pytest.raises(OptionError, match=f"{width} cannot be split over {heads}"):
        make_toy(d_model=width, num_heads=heads)


@pytest.mark.parametrize("additive", [False, True])
def test_a_query_that_may_see_nothing_is_refused(additive):
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    given_mask = torch.zeros(4, 4).masked_fill(~mask, -torch.inf) if additive else mask
    with pytest.raises(OptionError, match=r"leaves query 2 nothing to look at"):
        MultiHeadAttention(8, 2)(torch.randn(1, 4, 8), mask=given_mask)
    with pytest.raises(OptionError, match="leaves query 0 nothing"):
        MultiHeadAttention(8, 2)(torch.randn(1, 4, 8), mask=~torch.eye(4, dtype=torch.bool), causal=True)


@given(seed=SEED, n=st.integers(1, 5))
@settings(max_examples=20)
def test_the_numpy_twin_equals_the_module(seed, n):
    module, _ = like_torch(6, 2, seed)
    x = torch.randn(1, n, 6, dtype=torch.float64)
    with torch.no_grad():
        output, weights = module(x)
        q, k, v = (
            layer(x)[0].view(n, 2, 3).transpose(0, 1).numpy()
            for layer in (module.query, module.key, module.value)
        )
    pattern, context = attention(q, k, v)
    np.testing.assert_allclose(pattern, weights[0].numpy(), atol=1e-12)
    joined = np.concatenate(list(context), axis=-1)
    expected = joined @ module.output.weight.detach().numpy().T + module.output.bias.detach().numpy()
    np.testing.assert_allclose(expected, output[0].numpy(), atol=1e-12)


def test_two_heads_are_the_module_with_blocks_of_the_identity():
    module = MultiHeadAttention(6, 2).double()
    with torch.no_grad():
        for layer in (module.query, module.key, module.value, module.output):
            layer.weight.copy_(torch.eye(6))
            layer.bias.zero_()
        output, weights = module(torch.tensor(EXAMPLE)[None])
    ours, said = two_heads(EXAMPLE)
    np.testing.assert_allclose(weights[0].numpy(), ours, atol=1e-12)
    np.testing.assert_allclose(output[0].numpy(), said, atol=1e-12)


def test_the_toy_depends_on_its_seed_alone():
    text = "the cat and the dog"
    torch.manual_seed(1)
    first = capture(make_toy(), text)
    torch.manual_seed(2)
    np.testing.assert_array_equal(capture(make_toy(), text).weights, first.weights)
    assert np.abs(capture(make_toy(seed=1), text).weights - first.weights).max() > 0.01
    assert first.weights.shape == (1, 8, 5, 5)
    assert first.weights.dtype == np.float32
    np.testing.assert_allclose(first.weights.sum(-1), 1, atol=1e-5)
    assert "seed 0" in str(first.notes[0])
    assert first.source == "toy"


def test_equal_words_give_equal_rows_and_columns():
    maps = capture(make_toy(), "The cat and the dog and the bird")
    words = [label.lower() for label in maps.queries.labels]
    for i, one in enumerate(words):
        for j, other in enumerate(words):
            same = np.allclose(maps.weights[0, :, i], maps.weights[0, :, j], atol=1e-6)
            assert same == (one == other)
            if one == other:
                np.testing.assert_allclose(maps.weights[..., i], maps.weights[..., j], atol=1e-6)


def test_the_words_of_the_toy():
    maps = capture(make_toy(), "It didn't rain.", "A 😀 你好")
    assert maps.queries.labels == ("It", "didn't", "rain", ".", "A", "😀", "你", "好")
    assert maps.queries.segment.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert not maps.queries.special.any()
    assert maps.is_pair


def test_lone_surrogates_do_not_crash_the_toy():
    assert capture(make_toy(), "a\ud800b \x00").weights.shape[-1] == 2


def test_a_causal_map_attends_to_the_past_only():
    tokens = toy_tokens("the cat sat on it")
    maps = attend(make_toy(), tokens, tokens, causal=True)
    assert (np.triu(maps.weights[0], 1) == 0).all()
    assert maps.key_counts().tolist() == [[1, 2, 3, 4, 5]]
    np.testing.assert_array_equal(maps.attendable[0], np.tri(5, dtype=bool))
    np.testing.assert_allclose(maps.weights[0, :, 0, 0], 1)


def test_a_map_from_one_sentence_to_another():
    toy = make_toy(d_model=16, num_heads=2)
    queries, keys = toy_tokens("fish eat"), toy_tokens("the big fish")
    maps = attend(toy, queries, keys)
    assert maps.weights.shape == (1, 2, 2, 3)
    with torch.no_grad():
        expected = toy.module(embed(toy, ["fish", "eat"]), embed(toy, ["the", "big", "fish"]))[1]
    np.testing.assert_array_equal(maps.weights[0], expected[0].numpy())


def test_without_positions_swapped_words_swap_the_rows():
    toy = make_toy()
    one, other = (capture(toy, text).weights for text in ("fish eat", "eat fish"))
    np.testing.assert_allclose(one[..., ::-1, ::-1], other, atol=1e-6)


def test_the_module_has_four_square_layers():
    module = MultiHeadAttention(64, 8)
    weights = [p for name, p in module.named_parameters() if re.search("weight$", name)]
    assert sum(p.numel() for p in weights) == 4 * 64**2 == 16_384
