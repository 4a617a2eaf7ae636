"""Text to maps: what is cut is said, padding changes nothing, and each text gets its own maps in any thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from analysis.capture import capture, capture_batch, encode, open_source
from analysis.maps import in_units, strongest, with_specials
from analysis.messages import TextError
from analysis.models import open_model
from analysis.statistics import head_entropy
from analysis.toy import Toy, make_toy
from tests import tiny

ANIMAL = "The animal didn't cross the street because it was too tired."


@pytest.fixture(scope="module")
def tiny_models(tmp_path_factory):
    """One tiny model of each family, with a limit of 64 tokens."""
    root = tmp_path_factory.mktemp("tiny")
    return {family: open_model(str(tiny.save_tiny(root / family, family))) for family in tiny.FAMILIES}


def test_the_maps_of_the_bundled_model(bundled):
    maps = capture(bundled, ANIMAL)
    n = len(maps.queries)
    assert maps.weights.shape == (6, 12, n, n)
    assert maps.weights.dtype == np.float32
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    assert (maps.weights >= 0).all()
    assert maps.source == bundled.name
    assert maps.attendable is None
    assert maps.notes == ()
    assert maps.queries.labels[0] == "[CLS]"
    assert maps.queries.labels[-1] == "[SEP]"
    assert not maps.is_pair


def test_the_maps_equal_eager_attention(bundled):
    maps = capture(bundled, ANIMAL)
    eager = tiny.twin(bundled.network, "eager")
    with torch.no_grad():
        layers = eager(**bundled.tokenizer(ANIMAL, return_tensors="pt"), output_attentions=True).attentions
    np.testing.assert_allclose(maps.weights, torch.stack(layers)[:, 0].numpy(), atol=1e-6)


def test_a_head_links_it_to_the_animal(bundled):
    maps = in_units(capture(bundled, ANIMAL), "words")
    labels = list(maps.queries.labels)
    assert labels[1:-1] == [
        "The",
        "animal",
        "didn't",
        "cross",
        "the",
        "street",
        "because",
        "it",
        "was",
        "too",
        "tired",
        ".",
    ]
    row = maps.weights[3, 1, labels.index("it")]
    assert labels[int(row.argmax())] == "animal"
    assert round(float(row.max()), 2) == 0.68
    words = maps.weights[3, 1][1:-1, 1:-1]
    assert strongest(words) == (labels.index("it") - 1, labels.index("animal") - 1)


def test_a_head_looks_at_the_previous_token(bundled):
    weights = capture(bundled, ANIMAL).weights[0, 2]
    n = len(weights)
    assert (weights[1:].argmax(-1) == np.arange(n - 1)).all()
    assert np.diagonal(weights, -1).mean() > 0.95


@pytest.mark.parametrize(
    ("text", "pair", "said"),
    [
        ("", None, "There is no text to read"),
        (" \t\n\u00a0", None, "There is no text to read"),
        ("", "a dog", "The first sentence of the pair is empty"),
        ("a cat", "  ", "The second sentence of the pair is empty"),
        ("", "", "The first sentence of the pair is empty"),
    ],
)
@pytest.mark.parametrize("source", ["bundled", "toy"])
def test_nothing_to_read_is_said(bundled, source, text, pair, said):
    with pytest.raises(TextError, match=said):
        capture(bundled if source == "bundled" else open_source("toy"), text, pair)


@pytest.mark.parametrize("text", ["\x00", "\u200b\u200e", "\ud800", "\x07"])
def test_characters_that_no_tokenizer_keeps_are_said(bundled, text):
    with pytest.raises(TextError, match=f"tokenizer of {bundled.name} finds nothing to read"):
        capture(bundled, text)


@pytest.mark.parametrize(
    "text",
    [
        "cat",
        "...",
        "?!",
        "😀",
        "a\x00b",
        "a\ud800b",
        "x\udc00",
        "é́́́",
        "<s> </script> &amp; \"'",
        "مرحبا",
        "你好",
        "a" * 300,
    ],
)
def test_odd_texts_give_maps(bundled, text):
    maps = capture(bundled, text)
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(in_units(maps, "words").weights.sum(-1), 1, atol=1e-5)
    assert len(maps.queries) >= 3
    assert np.isfinite(head_entropy(maps)[0]).all()


@settings(max_examples=25)
@given(st.text(max_size=30))
def test_any_text_gives_maps_or_one_sentence(tiny_models, text):
    for family in ("bert", "roberta", "modernbert"):
        try:
            maps = capture(tiny_models[family], text)
        except TextError:
            continue
        np.testing.assert_allclose(in_units(maps, "words").weights.sum(-1), 1, atol=1e-5)


def test_a_long_text_is_cut_at_the_true_limit_and_it_is_said(bundled):
    fits = encode(bundled, "cat " * 510)
    assert (len(fits.tokens), fits.notes) == (512, ())
    for words, cut in [(511, 1), (2000, 1490)]:
        example = encode(bundled, "cat " * words)
        assert len(example.tokens) == 512
        (note,) = example.notes
        assert str(note) == f"Cut to the 512 tokens that this model can read: {cut} tokens are left out."
        assert example.tokens.labels[-1] == "[SEP]"
    assert capture(bundled, "cat " * 511).weights.shape == (6, 12, 512, 512)


def test_200_tokens_are_not_cut_by_what_the_tokenizer_was_saved_with(bundled):
    assert len(encode(bundled, "cat " * 200).tokens) == 202


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_limit_is_what_the_positions_can_number(tiny_models, family):
    """A limit of 64 in each: for the RoBERTa family 66 positions less 2 for the padding's id."""
    model = tiny_models[family]
    assert model.tokenizer.model_max_length > 1e29  # it would not cut
    words = "the " * 100
    whole = len(model.tokenizer(words)["input_ids"])
    maps = capture(model, words)
    assert maps.weights.shape[-1] == 64
    assert (
        str(maps.notes[0])
        == f"Cut to the 64 tokens that this model can read: {whole - 64} tokens are left out."
    )
    assert maps.queries.special[[0, -1]].all()


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_a_pair_is_cut_from_its_longer_side(tiny_models, family):
    model = tiny_models[family]
    first, second = "the cat sat on the mat " * 30, "a dog"
    short = (encode(model, ("a dog", "a dog")).tokens.segment == 1).sum()
    whole = len(model.tokenizer(first, second)["input_ids"])
    example = encode(model, (first, second))
    assert len(example.tokens) == 64
    assert (example.tokens.segment == 1).sum() == short
    assert (example.tokens.segment == 0).sum() > 30
    assert f"{whole - 64} tokens are left out" in str(example.notes[0])
    swapped = encode(model, (second, first))
    assert (swapped.tokens.segment == 1).sum() > 30
    assert (swapped.tokens.segment == 0).sum() >= 2
    both = encode(model, (first, first)).tokens.segment
    assert abs(int((both == 0).sum()) - int((both == 1).sum())) <= 1


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_alone_and_in_a_padded_batch_are_the_same(tiny_models, family):
    model = tiny_models[family]
    texts = [
        "the cat",
        "the cat sat on a mat and it was too tired because the dog ran",
        ("a dog", "it was good"),
        "love",
    ]
    together = capture_batch(model, texts)
    for text, maps in zip(texts, together, strict=True):
        alone = capture(model, *([text] if isinstance(text, str) else text))
        assert maps.weights.shape == alone.weights.shape
        assert maps.queries.labels == alone.queries.labels
        np.testing.assert_allclose(maps.weights, alone.weights, atol=1e-5)
        np.testing.assert_array_equal(maps.key_counts(), alone.key_counts())
        for ours, theirs in zip(head_entropy(maps), head_entropy(alone), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_alone_and_in_a_padded_batch_are_the_same_in_the_bundled_model(bundled):
    texts = [
        "Cats sleep.",
        ANIMAL,
        "The quick brown fox jumps over the lazy dog near the bank of the river. " * 3,
    ]
    for text, maps in zip(texts, capture_batch(bundled, texts), strict=True):
        alone = capture(bundled, text)
        np.testing.assert_allclose(maps.weights, alone.weights, atol=1e-5)
        for ours, theirs in zip(head_entropy(maps), head_entropy(alone), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_local_window_says_which_keys_may_be_attended(tiny_models):
    model = tiny_models["modernbert"]
    maps = capture(model, "the cat sat on a mat and it was too tired because the dog ran")
    n = len(maps.queries)
    counts = maps.key_counts()
    assert (counts[0] == n).all()
    assert (counts[2] == n).all()
    window = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 4
    np.testing.assert_array_equal(maps.attendable[1], window)
    assert (maps.weights[1][:, ~window] == 0).all()
    assert capture(model, "the cat").attendable is None  # shorter than the window


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_the_blocks_of_a_pair(tiny_models, family):
    maps = capture(tiny_models[family], "the cat", "a dog sat")
    assert maps.is_pair
    inner = in_units(with_specials(maps, "hide"), "words")
    assert inner.queries.segment.tolist() == [0, 0, 1, 1, 1]
    assert inner.queries.labels == ("the", "cat", "a", "dog", "sat")


def test_the_second_sentence_is_told_apart_from_the_first(tiny_models):
    """BERT's token types reach the network: the same words as one text and as a pair differ."""
    model = tiny_models["bert"]
    pair = capture(model, "the cat", "a dog").weights
    typed = capture(model, "the cat [SEP] a dog").weights
    assert pair.shape == typed.shape
    assert np.abs(pair - typed).max() > 1e-3


def test_half_precision_weights_give_entropy_in_float32(tmp_path):
    folder = tiny.save_tiny(tmp_path / "m")
    network = tiny.tiny_network("bert", vocab_size=len(tiny.PIECES)).half()
    network.save_pretrained(folder)
    maps = capture(open_model(str(folder)), "the cat sat")
    assert maps.weights.dtype == np.float32
    np.testing.assert_allclose(maps.weights.sum(-1), 1, atol=1e-6)


def test_capturing_leaves_the_model_and_the_tokenizer_as_they_were(bundled):
    config, hooks = (
        bundled.network.config.to_dict(),
        sum(len(m._forward_hooks) for m in bundled.network.modules()),
    )
    first = capture(bundled, "cat " * 600)
    assert len(encode(bundled, "cat " * 200).tokens) == 202
    assert bundled.tokenizer("cat " * 600, verbose=False)["input_ids"][-1] == 102
    assert len(bundled.tokenizer("cat " * 600, verbose=False)["input_ids"]) == 602
    assert bundled.network.config.to_dict() == config
    assert sum(len(m._forward_hooks) for m in bundled.network.modules()) == hooks
    np.testing.assert_array_equal(capture(bundled, "cat " * 600).weights[0, 0], first.weights[0, 0])


def test_four_threads_get_what_each_gets_alone(bundled):
    texts = [ANIMAL, "Cats sleep.", "cat " * 600, "It didn't rain, unbelievable!"]
    alone = [capture(bundled, text) for text in texts]
    order = [i for _ in range(4) for i in range(4)]

    def repeat(which):
        torch.set_num_threads(1)
        return which, capture(bundled, texts[which])

    with ThreadPoolExecutor(4) as pool:
        for which, maps in pool.map(repeat, order):
            np.testing.assert_array_equal(maps.weights, alone[which].weights)
            assert maps.queries.labels == alone[which].queries.labels
            assert list(map(str, maps.notes)) == list(map(str, alone[which].notes))


def test_sources_are_opened_by_name(bundled):
    assert isinstance(open_source("toy"), Toy)
    assert open_source("bundled").name == bundled.name


def test_maps_that_would_not_fit_into_memory_are_refused():
    toy = make_toy(d_model=8, num_heads=2)
    with pytest.raises(TextError, match=r"20000 tokens in 1 x 2 heads .* Shorten the text to 11585 tokens"):
        capture(toy, "a " * 20_000)
