"""What a model says of one text with heads switched off: its own words, exactly, whatever it can say."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon

from analysis.anatomy import output_projection
from analysis.answers import CLASSES, GUESSES, Answer, distances, lines, moved
from analysis.capture import capture, encode
from analysis.live import answer, effects, kind_of, masked_places
from analysis.messages import OptionError, TextError
from analysis.models import open_model
from tests import tiny
from tests.test_ablation import root, shape_of
from tests.test_cases import APART

__all__ = ["root"]  # a fixture for this file too

CLOSE = 1e-5
TEXT, OTHER = "the cat sat on the mat and the dog was too tired.", "a good film"
KINDS = ("classes", "score", "guesses", "similarity", "embedding")
CHECKPOINT = {  # of each kind of answer: the head of the checkpoint, and what its config says
    "classes": ("classification", {"num_labels": 3}),
    "score": ("classification", {"num_labels": 1}),
    "guesses": ("masked", {}),
    "similarity": ("headless", {}),
    "embedding": ("headless", {}),
}


def opened(root, family, kind):
    """Return a tiny model that can give this kind of answer."""
    head, changes = CHECKPOINT[kind]
    folder = root / f"live-{family}-{head}-{changes.get('num_labels', 0)}"
    return open_model(
        str(folder if folder.exists() else tiny.save_tiny(folder, family, head, seed=5, **changes))
    )


def asked(model, kind):
    """Return the text, and the second one where two are read, that get this kind of answer."""
    if kind == "guesses":
        mask = model.tokenizer.mask_token
        return f"the {mask} sat on a {mask} mat", None
    return TEXT, OTHER if kind == "similarity" else None


def outputs_of(network, model, text):
    """Return what a network says of a text, or of a pair, without any probe."""
    batch = {name: torch.tensor([row]) for name, row in encode(model, text).inputs.items()}
    with torch.no_grad():
        return network(**batch)


def expected(network, model, kind, text, pair=None):
    """Return what ``network`` says, from its own outputs: the values, and the embeddings where it has no other."""
    if kind in ("classes", "score"):
        logits = outputs_of(network, model, text if pair is None else (text, pair)).logits[0]
        return (logits if kind == "score" else logits.softmax(-1)).numpy(), None
    if kind == "guesses":
        ids = encode(model, text).inputs["input_ids"]
        places = [i for i, piece in enumerate(ids) if piece == model.tokenizer.mask_token_id]
        return outputs_of(network, model, text).logits[0, places].softmax(-1).numpy(), None
    means = [
        outputs_of(network.base_model, model, one).last_hidden_state[0].mean(0).numpy()
        for one in (text, *([pair] if pair else []))
    ]
    vectors = np.stack([mean / np.linalg.norm(mean) for mean in means])
    return (vectors[:1] @ vectors[1] if kind == "similarity" else np.zeros(0)), vectors


def same(found, wanted):
    """Check an answer against values and embeddings."""
    values, embeddings = wanted
    np.testing.assert_allclose(found.values, values, atol=CLOSE)
    assert found.values.shape == values.shape
    assert (found.embeddings is None) == (embeddings is None)
    if embeddings is not None:
        np.testing.assert_allclose(found.embeddings, embeddings, atol=CLOSE)


def far(one, other):
    """Return how far apart two answers are."""
    sides = (one.values, other.values) if one.embeddings is None else (one.embeddings, other.embeddings)
    return np.abs(sides[0] - sides[1]).max()


def mask_of(model, *heads):
    """Return the mask with these heads off."""
    off = np.zeros(shape_of(model), dtype=bool)
    off[tuple(np.array(heads).T)] = True
    return off


# What is said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_with_nothing_off_it_is_what_the_network_says(root, family, kind):
    model = opened(root, family, kind)
    text, pair = asked(model, kind)
    found = answer(model, text, pair)
    assert found.kind == kind_of(model, text, pair) == kind
    same(found, expected(model.network, model, kind, text, pair))
    nothing = answer(model, text, pair, np.zeros(shape_of(model), dtype=bool))
    assert nothing.values.tobytes() == found.values.tobytes()
    if found.embeddings is not None:
        assert not distances(found, nothing).any()  # exactly
    for maps, alone in zip(found.maps, (text, pair), strict=False):
        np.testing.assert_allclose(maps.weights, capture(model, alone).weights, atol=CLOSE)
    assert len(found.maps) == (2 if kind == "similarity" else 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", APART)
def test_with_heads_off_it_is_what_the_network_without_them_says(root, family, kind):
    model = opened(root, family, kind)
    layers, _heads = shape_of(model)
    text, pair = asked(model, kind)
    heads = [(layer, 1) for layer in range(layers)] if family == "albert" else [(0, 1), (2, 0), (2, 3)]
    zeroed, width = copy.deepcopy(model.network), model.geometry.head_dim
    for layer, head in heads:
        output_projection(zeroed, layer).weight[:, head * width : (head + 1) * width] = 0
    whole = answer(model, text, pair)
    found = answer(model, text, pair, mask_of(model, *heads))
    same(found, expected(zeroed, model, kind, text, pair))
    assert far(found, whole) > 1e-3
    assert answer(model, text, pair).values.tobytes() == whole.values.tobytes()  # nothing stays off


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", APART)
def test_with_everything_off_it_is_finite_and_blind(root, family, kind):
    model = opened(root, family, kind)
    text, pair = asked(model, kind)
    whole, found = answer(model, text, pair), answer(model, text, pair, np.ones(shape_of(model), dtype=bool))
    assert np.isfinite(found.values).all()
    assert found.embeddings is None or np.isfinite(found.embeddings).all()
    assert all(np.isfinite(maps.weights).all() for maps in found.maps)
    assert far(found, whole) > 1e-3
    if kind == "embedding":  # no word sees another, so only one's own place can tell equal words apart
        swapped = answer(model, "dog the cat", off=np.ones(shape_of(model), dtype=bool))
        again = answer(model, "cat the dog", off=np.ones(shape_of(model), dtype=bool))
        is_blind = family == "modernbert"  # it knows places by its attention alone
        assert (float(distances(swapped, again)[0]) < 1e-6) == is_blind


def test_a_classifier_reads_a_pair_together(root):
    model = opened(root, "bert", "classes")
    found = answer(model, TEXT, OTHER, mask_of(model, (1, 1)))
    [maps] = found.maps
    assert maps.is_pair
    assert found.names == ("LABEL_0", "LABEL_1", "LABEL_2")
    assert far(found, answer(model, TEXT, None, mask_of(model, (1, 1)))) > 1e-3
    same(answer(model, TEXT, OTHER), expected(model.network, model, "classes", TEXT, OTHER))


def test_equal_sentences_are_alike_whatever_is_off(root):
    model = opened(root, "bert", "similarity")
    for off in (None, mask_of(model, (0, 0), (1, 3)), np.ones(shape_of(model), dtype=bool)):
        assert answer(model, TEXT, TEXT, off).values[0] == pytest.approx(1, abs=1e-6)


def test_what_can_be_said_depends_on_the_checkpoint_and_the_text(root):
    kinds = {
        ("embedding", "the [MASK] sat", None): "embedding",
        ("embedding", "the [MASK] sat", "a [MASK]"): "similarity",
        ("guesses", "the cat sat", None): "embedding",
        ("guesses", "the cat sat", "a dog"): "similarity",
        ("guesses", "the cat sat", "a [MASK]"): "guesses",
        ("classes", "the [MASK] sat", None): "classes",
        ("score", "the [MASK] sat", "a [MASK]"): "score",
    }
    for (checkpoint, text, pair), kind in kinds.items():
        model = opened(root, "bert", checkpoint)
        assert kind_of(model, text, pair) == answer(model, text, pair).kind == kind
    assert masked_places(opened(root, "bert", "guesses"), "the [MASK] sat", "a [MASK]") == [2, 6]


def test_what_cannot_be_asked_is_refused(root):
    model = opened(root, "bert", "embedding")
    for text, pair in (("", None), ("  ", None), (TEXT, " "), ("\u200b", None)):
        with pytest.raises(TextError):
            answer(model, text, pair)
    for shape in ((3, 5), (2, 4), (4, 3)):
        with pytest.raises(OptionError, match="The gates are for"):
            answer(model, TEXT, None, np.ones(shape, dtype=bool))


# Each head alone


def main_number(whole, found):
    """Return the one number that effects are told in."""
    if whole.kind == "embedding":
        return 1 - whole.embeddings[0] @ found.embeddings[0]
    if whole.kind == "guesses":
        return found.values[0, whole.values[0].argmax()]
    return found.values[whole.values.argmax() if whole.kind == "classes" else 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", APART)
def test_the_effect_of_a_head_is_that_of_switching_it_off(root, family, kind):
    model = opened(root, family, kind)
    text, pair = asked(model, kind)
    whole = answer(model, text, pair)
    found = effects(model, text, pair, whole)
    wanted = np.zeros(shape_of(model))
    for at in np.ndindex(wanted.shape):
        one = answer(model, text, pair, mask_of(model, at))
        wanted[at] = main_number(whole, one) - main_number(whole, whole)
    np.testing.assert_allclose(found, wanted, atol=CLOSE)
    assert np.abs(found).max() > 1e-3
    if kind == "embedding":
        assert (found >= 0).all()


# Where attention moves


@pytest.mark.parametrize("kind", ["classes", "similarity"])
@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_attention_moves_only_behind_the_first_head_that_is_off(root, family, kind):
    model = opened(root, family, kind)
    text, pair = asked(model, kind)
    layers, heads = shape_of(model)
    whole = answer(model, text, pair)
    for first in range(layers):
        off = mask_of(model, (first, 2), (layers - 1, 0))
        for before, after in zip(whole.maps, answer(model, text, pair, off).maps, strict=True):
            values = moved(before, after)
            assert values.shape == (layers, heads)
            assert not values[: first + 1].any()  # exactly
            assert (values[first + 1 :].max(axis=1) > 1e-6).all()
            wanted = jensenshannon(before.weights, after.weights, base=2, axis=-1) ** 2
            np.testing.assert_allclose(values, np.nan_to_num(wanted).mean(-1), atol=1e-5)


# The numbers that are named

CHANCES = arrays(np.float64, some.integers(1, 12), elements=some.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0]))


def of_classes(values):
    return Answer("classes", (), values, names=tuple(f"c{i}" for i in range(len(values))))


@given(CHANCES, some.randoms(use_true_random=False))
def test_what_stands_highest_on_either_side_is_named(before, random):
    after = np.array(random.sample(before.tolist(), len(before)))
    found = lines(of_classes(before), of_classes(after), str)
    places = [int(line.name[1:]) for line in found]
    assert [(line.before, line.after) for line in found] == [(before[i], after[i]) for i in places]
    assert len(places) == len(set(places)) <= 2 * CLASSES
    assert [line.before for line in found] == sorted((before[places]), reverse=True)
    for side in (before, after):
        left_out = [value for i, value in enumerate(side) if i not in places]
        assert sum(value >= max(left_out, default=0) for value in side[places]) >= min(CLASSES, len(side))


def test_guesses_are_named_for_each_masked_word(root):
    model = opened(root, "bert", "guesses")
    text, _pair = asked(model, "guesses")
    before, after = answer(model, text), answer(model, text, off=mask_of(model, (0, 0), (1, 1)))
    found = lines(before, after, lambda piece: f"<{piece}>")
    for number in (1, 2):
        of_one = [line for line in found if line.about == number]
        sides = before.values[number - 1], after.values[number - 1]
        best = {f"<{i}>" for side in sides for i in side.argsort()[-GUESSES:]}
        assert {line.name for line in of_one} == best
        assert of_one[0].before == sides[0].max()
        assert all(line.after == sides[1][int(line.name[1:-1])] for line in of_one)
    assert len(found) == len({(line.about, line.name) for line in found})


def test_one_number_has_no_name(root):
    for kind in ("score", "similarity", "embedding"):
        model = opened(root, "distilbert", kind)
        before = answer(model, *asked(model, kind))
        after = answer(model, *asked(model, kind), mask_of(model, (0, 1)))
        [line] = lines(before, after, str)
        assert (line.about, line.name) == (0, "")
        wanted = (
            (0, distances(before, after)[0]) if kind == "embedding" else (before.values[0], after.values[0])
        )
        assert (line.before, line.after) == wanted
        assert line.before != line.after
