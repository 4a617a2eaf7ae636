"""Tokens: the words of a text, what each piece covers, which are special, and which side of a pair."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.capture import encode
from analysis.messages import TextError
from analysis.models import open_model
from analysis.tokens import NO_SEGMENT, words_of
from tests import tiny

TEXTS = st.text(
    alphabet=st.one_of(
        st.sampled_from("ab '.,()<>-\t\n你好é😀_+$"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=40,
)


@pytest.fixture(scope="module")
def readers(tmp_path_factory):
    """One model for each kind of tokenizer: WordPiece, WordPiece without token types, byte-level."""
    root = tmp_path_factory.mktemp("readers")
    return {
        family: open_model(str(tiny.save_tiny(root / family, family, max_position_embeddings=130)))
        for family in ("bert", "distilbert", "roberta")
    }


def words(text):
    """Return the words of a text as strings."""
    return [text[start:end] for start, end in words_of(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t\n ", []),
        ("cat", ["cat"]),
        ("didn't", ["didn't"]),
        ("(tired).", ["(", "tired", ")", "."]),
        ("...", [".", ".", "."]),
        ("the cat and the dog and the bird", ["the", "cat", "and", "the", "dog", "and", "the", "bird"]),
        ("state-of-the-art, U.S.A.!", ["state-of-the-art", ",", "U.S.A", ".", "!"]),
        ('"quoted"', ['"', "quoted", '"']),
        ("<b>x</b>", ["<", "b>x</b", ">"]),
        ("a&amp;b", ["a&amp;b"]),
        ("你好 world", ["你", "好", "world"]),
        ("ab你cd", ["ab", "你", "cd"]),
        ("مرحبا بك", ["مرحبا", "بك"]),
        ("I 😀 it", ["I", "😀", "it"]),
        ("don’t «go»", ["don’t", "«", "go", "»"]),
        ("a\u00a0b", ["a", "b"]),
    ],
)
def test_words_by_hand(text, expected):
    assert words(text) == expected


@given(TEXTS)
def test_words_are_in_order_apart_and_cover_all_that_is_not_blank(text):
    spans = words_of(text)
    covered = [i for start, end in spans for i in range(start, end)]
    assert covered == sorted(set(covered))
    assert covered == [i for i, char in enumerate(text) if not char.isspace()]
    assert all(start < end for start, end in spans)


def check(tokens):
    """Check what holds for the tokens of any text, and for their words."""
    for units in (tokens, tokens.as_words()):
        n = len(units)
        assert units.spans.shape == (n, 2)
        assert {len(x) for x in (units.ids, units.special, units.segment, units.word, units.labels)} == {n}
        assert all(units.labels)
        assert set(np.diff(units.word)) <= {0, 1}
        assert units.word[0] == 0
        for i, (start, end) in enumerate(units.spans):
            if units.segment[i] == NO_SEGMENT:
                assert units.special[i]
                assert (start, end) == (0, 0)
            elif end > start:
                shown = units.labels[i].removeprefix("##") if units is tokens else units.labels[i]
                text = units.texts[units.segment[i]]
                assert text[start:end] in (shown, units.labels[i])
                assert not text[start].isspace()
                assert not text[end - 1].isspace()
    assert len(tokens.as_words()) == tokens.word[-1] + 1
    assert tokens.as_words().as_words().labels == tokens.as_words().labels


def check_encoded(model, text):
    """Check the tokens of any text that is not blank, or that it is refused because nothing of it is left."""
    try:
        tokens = encode(model, text).tokens
    except TextError:
        parts = (text,) if isinstance(text, str) else text
        assert not any(char.isalnum() and char.isascii() for part in parts for char in part)
    else:
        check(tokens)


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
@given(text=TEXTS.filter(str.strip))
def test_any_text_gives_tokens_that_fit_it(readers, family, text):
    check_encoded(readers[family], text)


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
@given(first=TEXTS.filter(str.strip), second=TEXTS.filter(str.strip))
def test_any_pair_gives_tokens_that_fit_it(readers, family, first, second):
    check_encoded(readers[family], (first, second))


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_repeated_words_stay_apart(readers, family):
    units = encode(readers[family], "the cat and the dog and the bird").tokens.as_words()
    assert units.labels[1:-1] == ("the", "cat", "and", "the", "dog", "and", "the", "bird")
    assert units.special.tolist() == [True, *[False] * 8, True]
    assert len(set(map(tuple, units.spans[1:-1]))) == 8


@pytest.mark.parametrize("family", ["bert", "distilbert", "roberta"])
def test_split_words_are_merged_by_their_characters(readers, family):
    tokens = encode(readers[family], "It didn't (unbelievable)!").tokens
    assert len(tokens) > 10 or family != "roberta"
    units = tokens.as_words()
    assert units.labels[1:-1] == ("It", "didn't", "(", "unbelievable", ")", "!")
    assert units.spans[2].tolist() == [3, 9]


def test_word_pieces_show_their_span_and_that_they_continue(readers):
    tokens = encode(readers["bert"], "Unbelievable cats").tokens
    assert tokens.labels == ("[CLS]", "Un", "##bel", "##ievable", "cat", "##s", "[SEP]")
    assert tokens.word.tolist() == [0, 1, 1, 1, 2, 2, 3]
    assert tokens.as_words().ids.tolist()[1:3] == [-1, -1]
    assert tokens.as_words().ids[0] == tokens.ids[0]


def test_bytes_show_the_character_they_are_part_of(readers):
    tokens = encode(readers["roberta"], "a😀b 你").tokens
    assert tokens.labels[1:6] == ("a", "😀", "##😀", "##😀", "##😀")
    assert tokens.as_words().labels == ("<s>", "a😀b", "你", "</s>")


def test_blanks_around_a_word_are_not_part_of_it(readers):
    assert encode(readers["roberta"], "  a  b ").tokens.as_words().labels == ("<s>", "a", "b", "</s>")


def test_what_is_not_in_the_vocabulary_shows_its_own_text(readers):
    example = encode(readers["bert"], "the 😀 好 cat مرحبا")
    tokens = example.tokens
    assert tokens.labels[1:] == ("the", "😀", "好", "cat", "مرحبا", "[SEP]")
    unknown = tokens.ids == readers["bert"].tokenizer.unk_token_id
    assert unknown.tolist() == [False, False, True, True, False, True, False]
    assert not tokens.special[unknown].any()
    (note,) = example.notes
    assert "read as [UNK]" in str(note)
    assert "😀" in str(note)


@pytest.mark.parametrize("text", ["<s>", "</s>", "<b>", "</script>", "\"'", "&<>"])
def test_markup_is_only_text_to_word_pieces(readers, text):
    tokens = encode(readers["bert"], text).tokens
    assert "".join(tokens.labels[1:-1]).replace("##", "") == text
    assert not tokens.special[1:-1].any()


@pytest.mark.parametrize(
    ("family", "typed"),
    [
        ("bert", "[SEP]"),
        ("bert", "[MASK]"),
        ("bert", "[CLS]"),
        ("distilbert", "[MASK]"),
        ("roberta", "<s>"),
        ("roberta", "<mask>"),
        ("roberta", "</s>"),
    ],
)
def test_a_special_token_that_the_text_spells_out_is_flagged(readers, family, typed):
    example = encode(readers[family], f"the {typed} cat")
    tokens = example.tokens
    (at,) = [i for i, label in enumerate(tokens.labels) if label == typed and tokens.segment[i] == 0]
    assert tokens.special[at]
    assert (tokens.word == tokens.word[at]).sum() == 1
    (note,) = example.notes
    assert f"spells out {typed}" in str(note)
    assert encode(readers[family], "the cat").notes == ()


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("bert", [-1, 0, 0, -1, 1, 1, 1, -1]),
        ("distilbert", [-1, 0, 0, -1, 1, 1, 1, -1]),
        ("roberta", [-1, 0, 0, -1, -1, 1, 1, 1, -1]),
    ],
)
def test_the_sides_of_a_pair(readers, family, expected):
    example = encode(readers[family], ("the cat", "it was the"))
    units = example.tokens.as_words()
    assert units.segment.tolist() == expected
    assert [label for label, side in zip(units.labels, units.segment, strict=True) if side == 1] == [
        "it",
        "was",
        "the",
    ]
    assert units.special.tolist() == [side < 0 for side in expected]
    assert ("token_type_ids" in example.inputs) == (family == "bert")


def test_taken_tokens_are_numbered_anew(readers):
    tokens = encode(readers["bert"], "unbelievable cats sat").tokens
    taken = tokens.take(np.array([2, 3, 5, 6]))
    assert taken.labels == ("##bel", "##ievable", "##s", "sat")
    assert taken.word.tolist() == [0, 0, 1, 2]
    assert len(tokens.take(np.array([], dtype=np.int64)).as_words()) == 0


def test_accents_and_joiners_stay_with_their_letter(bundled):
    from analysis.capture import capture

    for text in ("e\u0301" * 3, "z\u0351\u036b\u0343", "cafe\u0301", "\N{MAN}\u200d\N{WOMAN}"):
        tokens = capture(bundled, f"{text} x").queries.as_words()
        assert tokens.labels == ("[CLS]", text, "x", "[SEP]")
