"""Two heads in NumPy, the module beside torch's, and every shape: the numbers of the teaching pages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from analysis.by_hand import MASKS, PUBLISHED, copy_weights, resolution, same_weights, splits, verify
from analysis.messages import OptionError
from analysis.shapes import shapes
from analysis.toy import EXAMPLE, LARGEST, MultiHeadAttention, positions, trace_two_heads, two_heads

PATTERNS = [
    [[0.390, 0.219, 0.390], [0.264, 0.471, 0.264], [0.390, 0.219, 0.390]],
    [[0.390, 0.390, 0.219], [0.390, 0.390, 0.219], [0.264, 0.264, 0.471]],
]
OUTPUT = [
    [0.781, 0.219, 0, 0.219, 0.781, 0],
    [0.529, 0.471, 0, 0.219, 0.781, 0],
    [0.781, 0.219, 0, 0.471, 0.529, 0],
]
VERIFIED = [
    [[0.345, 0.120, 0.380, 0.155], [0.176, 0.310, 0.147, 0.367], [0.278, 0.216, 0.290, 0.216], [0.208, 0.322, 0.205, 0.265]],
    [[0.541, 0.171, 0.222, 0.066], [0.029, 0.535, 0.031, 0.405], [0.685, 0.109, 0.178, 0.028], [0.170, 0.486, 0.105, 0.239]],
]  # fmt: skip
SIZES = st.tuples(st.integers(1, 6), st.integers(1, 4)).map(lambda sizes: (sizes[0] * sizes[1], sizes[1]))
SEED = st.integers(0, 999)
STATES = arrays(
    np.float64, st.tuples(st.integers(1, 5), st.just(6)), elements=st.floats(-LARGEST, LARGEST)
)  # what a reader may type


def test_every_step_of_the_example():
    steps = trace_two_heads(EXAMPLE)
    np.testing.assert_array_equal(steps.heads[0], EXAMPLE[:, :3])
    np.testing.assert_array_equal(steps.heads[1], EXAMPLE[:, 3:])
    # tokens 0 and 2 are of one class, tokens 0 and 1 of one topic: a product of 1, over the root of 3
    root = 1 / np.sqrt(3)
    np.testing.assert_allclose(steps.scores[0], [[root, 0, root], [0, root, 0], [root, 0, root]])
    np.testing.assert_allclose(steps.scores[1], [[root, root, 0], [root, root, 0], [0, 0, root]])
    np.testing.assert_array_equal(steps.weights.round(3), PATTERNS)
    np.testing.assert_array_equal(steps.context.round(3)[0], np.array(OUTPUT)[:, :3])
    np.testing.assert_array_equal(steps.concat.round(3), OUTPUT)
    np.testing.assert_array_equal(steps.mixing, np.eye(6))
    np.testing.assert_array_equal(steps.output.round(3), OUTPUT)


@given(states=STATES)
def test_any_states_a_reader_types_are_attended_as_by_the_module(states):
    steps = trace_two_heads(states)
    np.testing.assert_allclose(steps.weights.sum(-1), 1)
    weights, output = two_heads(states)
    np.testing.assert_array_equal(weights, steps.weights)
    np.testing.assert_array_equal(output, steps.output)
    module = MultiHeadAttention(6, 2, dtype=torch.float64)
    with torch.no_grad():
        for layer in (module.query, module.key, module.value, module.output):
            layer.weight.copy_(torch.eye(6))
            layer.bias.zero_()
        expected, pattern = module(torch.from_numpy(states)[None])
    # scores up to 1e12 differ in their last bits, and a difference of 1e-4 there is one of 1e-4 in a weight
    np.testing.assert_allclose(steps.weights, pattern[0].numpy(), atol=2e-3)
    scale = max(np.abs(states).max(), 1)
    np.testing.assert_allclose(steps.output / scale, expected[0].numpy() / scale, atol=4e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2 * LARGEST])
def test_a_cell_that_is_no_number_is_named(value):
    states = EXAMPLE.copy()
    states[1, 4] = value
    with pytest.raises(OptionError, match=r"Row 1, column 4 holds .*between -1000000"):
        trace_two_heads(states)
    with pytest.raises(OptionError, match="shape 0 x 6"):
        trace_two_heads(np.zeros((0, 6)))


def test_the_verified_numbers():
    found = verify(6, 2, 4, seed=0)
    np.testing.assert_array_equal(found.weights.round(3), VERIFIED)
    np.testing.assert_array_equal(found.their_weights.round(3), VERIFIED)
    assert found.same
    assert found.weights_difference < 1e-15
    assert found.output_difference < 1e-15
    assert found.mask is None
    assert found.looked_at is not None
    np.testing.assert_array_equal(found.states, found.looked_at)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_weights_are_what_manual_seed_gives(seed):
    ours, theirs = same_weights(8, 2, torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    expected = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    module = MultiHeadAttention(8, 2, dtype=torch.float64)
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    for name, value in expected.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name]), name
    copy_weights(expected, module)
    for name, value in module.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name
    np.testing.assert_array_equal(verify(8, 2, 5, seed=seed).states, x[0].numpy())


def test_verifying_leaves_the_random_numbers_of_others_alone_where_it_can():
    torch.manual_seed(3)
    one = verify(seed=5).output
    torch.manual_seed(4)
    np.testing.assert_array_equal(verify(seed=5).output, one)


@settings(max_examples=80)
@given(
    sizes=SIZES,
    length=st.integers(1, 6),
    keys=st.none() | st.integers(1, 6),
    seed=SEED,
    mask=st.sampled_from(MASKS),
)
def test_any_sizes_and_masks_are_verified(sizes, length, keys, seed, mask):
    found = verify(*sizes, length, keys=keys, seed=seed, mask=mask)
    assert found.same
    assert found.tolerance == 1e-12
    shape = (sizes[1], length, length if keys is None else keys)
    assert found.weights.shape == found.their_weights.shape == shape
    np.testing.assert_allclose(found.weights.sum(-1), 1)
    if mask in ("causal", "boolean"):
        assert (found.weights[:, ~found.mask] == 0).all()
        assert found.mask.any(-1).all()
    if mask == "causal":
        np.testing.assert_array_equal(found.mask, np.tri(*shape[1:], dtype=bool))
    if mask == "additive":
        assert (
            np.abs(found.weights - verify(*sizes, length, keys=keys, seed=seed).weights).max() > 0
            or shape[2] == 1
        )


def test_a_mask_of_ones_own():
    allowed = np.array([[True, False], [True, True], [False, True]])
    found = verify(4, 2, 3, keys=2, mask=allowed)
    assert found.same
    assert (found.weights[:, [0, 2], [1, 0]] == 0).all()
    added = verify(4, 2, 3, keys=2, mask=np.where(allowed, 0.0, -np.inf))
    np.testing.assert_array_equal(added.weights, found.weights)
    with pytest.raises(OptionError, match="The mask is 3 x 2, but there are 3 queries and 3 keys"):
        verify(4, 2, 3, mask=allowed)
    with pytest.raises(OptionError, match="leaves query 1 nothing to look at"):
        verify(4, 2, 3, mask=np.eye(3, dtype=bool) & (np.arange(3) != 1))
    with pytest.raises(OptionError, match=r"no mask odd\. Choose one of: none, causal"):
        verify(mask="odd")


def test_a_difference_is_said():
    found = verify()
    assert not replace(found, output_difference=1e-11).same
    assert not replace(found, weights_difference=1e-11).same


@pytest.mark.parametrize(("width", "heads"), [(6, 4), (10, 3), (8, 0)])
def test_sizes_that_do_not_divide_are_refused_in_the_words_of_the_module(width, heads):
    sentence = f"A width of {width} cannot be split over {heads} heads: it must be a multiple of them."
    for refused in (
        lambda: verify(width, heads),
        lambda: shapes(width=width, heads=heads),
        lambda: splits(width, [heads]),
        lambda: resolution(width, heads, 4),
    ):
        with pytest.raises(OptionError) as error:
            refused()
        assert str(error.value) == sentence


def test_sizes_without_end_are_refused():
    with pytest.raises(OptionError, match="take 1 at least"):
        verify(length=0)
    with pytest.raises(OptionError, match="take 1 at least"):
        verify(keys=0)
    for huge in (lambda: verify(8192), lambda: verify(8, 2, 5000), lambda: shapes(2, 4000, 8, 2)):
        with pytest.raises(OptionError, match="Take smaller ones"):
            huge()


def test_one_head_or_many():
    found = splits(64, (1, 2, 4, 8))
    assert [split.head_dim for split in found] == [64, 32, 16, 8]
    assert [split.patterns for split in found] == [1, 2, 4, 8]
    assert {split.parameters for split in found} == {4 * 64**2} == {16_384}
    published = {(model.d_model, model.num_heads, model.head_dim) for model in PUBLISHED}
    assert published == {(512, 8, 64), (768, 12, 64), (4096, 32, 128), (12_288, 96, 128)}


@settings(max_examples=20)
@given(sizes=SIZES, length=st.integers(1, 30), seed=SEED)
def test_scores_have_no_more_rank_than_the_head_is_wide(sizes, length, seed):
    width, heads = sizes
    found = resolution(width, heads, length, seed=seed)
    assert found.rank.tolist() == [min(width // heads, length)] * heads
    assert found.scores.shape == (heads, length, length)
    assert found.singular.shape == (heads, length)


def test_the_shapes_of_the_page():
    found = shapes(batch=2, length=4, width=8, heads=2)
    assert [(step.name, step.shape) for step in found.steps] == [
        *((name, (2, 4, 8)) for name in ("x", "Q", "K", "V")),
        ("view", (2, 4, 2, 4)),
        *((name, (2, 2, 4, 4)) for name in ("transpose", "scores", "softmax", "context")),
        *((name, (2, 4, 8)) for name in ("concat", "output")),
    ]
    assert [(step.name, step.shape) for step in found.built_in] == [
        ("output", (2, 4, 8)),
        ("weights", (2, 2, 4, 4)),
    ]
    assert found.difference <= 1e-12


@settings(max_examples=40)
@given(batch=st.integers(1, 3), length=st.integers(1, 5), sizes=SIZES, seed=SEED)
def test_every_step_follows_from_the_one_before(batch, length, sizes, seed):
    width, heads = sizes
    found = shapes(batch, length, width, heads, seed=seed)
    assert all(len(step.axes) == step.values.ndim for step in found.steps)
    by_name = {step.name: step.values for step in found.steps}
    head_dim = width // heads

    def split(name):
        return by_name[name].reshape(batch, length, heads, head_dim).transpose(0, 2, 1, 3)

    np.testing.assert_array_equal(by_name["view"].reshape(batch, length, width), by_name["Q"])
    np.testing.assert_array_equal(by_name["transpose"], split("Q"))
    scores = split("Q") @ split("K").swapaxes(-1, -2) / np.sqrt(head_dim)
    np.testing.assert_allclose(by_name["scores"], scores, atol=1e-12)
    exponents = np.exp(by_name["scores"])
    np.testing.assert_allclose(by_name["softmax"], exponents / exponents.sum(-1, keepdims=True), atol=1e-12)
    np.testing.assert_allclose(by_name["context"], by_name["softmax"] @ split("V"), atol=1e-12)
    concat = by_name["context"].transpose(0, 2, 1, 3).reshape(batch, length, width)
    np.testing.assert_array_equal(by_name["concat"], concat)
    np.testing.assert_allclose(by_name["output"], found.built_in[0].values, atol=1e-12)
    assert found.difference <= 1e-12
    assert found.step("softmax").values is by_name["softmax"]


def test_sinusoidal_positions():
    found = positions(50, 16).numpy()
    assert found.shape == (50, 16)
    np.testing.assert_array_equal(found[0], [0.0, 1.0] * 8)
    np.testing.assert_allclose(found[3, :4], [np.sin(3), np.cos(3), np.sin(3 / 10**0.5), np.cos(3 / 10**0.5)])
    products = found @ found.T  # how far two places lie apart, and nothing else
    for step in range(1, 5):
        diagonal = np.diagonal(products, step)
        np.testing.assert_allclose(diagonal, diagonal[0])
        assert diagonal[0] < products[0, 0]
    np.testing.assert_allclose(np.diagonal(products), 8)
    assert positions(3, 5).shape == (3, 5)
