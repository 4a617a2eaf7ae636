"""What a session remembers, what a link carries, and the units that stand for places of the model's input."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from analysis.maps import Head, in_units, with_specials
from analysis.messages import TextError
from dashboard import boxes, cache, keys, state
from dashboard import reading as reading_module
from dashboard.cache import key_of, parts_of
from dashboard.examples import EXAMPLES
from dashboard.reading import query_and_key, read
from tests.conftest import ROOT
from tests.tiny import save_tiny

NAMES = tuple(choice.key for choice in keys.CHOICES)


class Link(dict):
    """The parameters of a link, as Streamlit keeps them; counts how often it was written."""

    writes = 0

    def to_dict(self):
        return dict(self)

    def from_dict(self, values):
        self.writes += 1
        self.clear()
        self.update(values)


@pytest.fixture
def session(monkeypatch):
    """A session without Streamlit: its keys and its link."""
    fake = SimpleNamespace(session_state={}, query_params=Link())
    monkeypatch.setattr(state, "st", fake)
    monkeypatch.setattr(reading_module, "st", fake)
    return fake


# The session


def test_a_session_starts_with_the_first_example(session):
    state.start("attention")
    kept = session.session_state
    assert (kept["text"], kept["pair"], kept["example"]) == (EXAMPLES[0].text, None, 1)
    assert (kept["query"], kept["key"]) == (None, None)
    assert all(kept[choice.key] == choice.default for choice in keys.CHOICES)
    assert session.query_params == {}


def kept(session):
    """Return what a session remembers, without the notes it keeps about its link."""
    notes = (keys.ACTED, keys.PAGE, keys.WRITTEN)
    return {key: value for key, value in session.session_state.items() if key not in notes}


def test_a_late_link_does_not_undo_a_choice(session):
    state.start("attention")
    state.write_link(NAMES)
    state.choose_head(2, 5)  # the browser still shows the link from before
    before = kept(session)
    state.start("attention")
    assert kept(session) == before


def test_back_undoes_a_choice_and_a_change_of_page_does_not(session):
    state.start("attention")
    state.choose_head(2, 5)
    state.start("attention")
    state.write_link([*NAMES, *keys.NUMBERS])
    first = session.query_params.to_dict()
    state.choose_head(4, 4)
    state.start("attention")
    state.write_link([*NAMES, *keys.NUMBERS])
    session.query_params.from_dict(first)  # Back
    state.start("attention")
    assert state.chosen_head(6, 12) == Head(2, 5)
    state.write_link([*NAMES, *keys.NUMBERS])
    writes = session.query_params.writes
    state.start("attention")
    state.write_link([*NAMES, *keys.NUMBERS])
    assert session.query_params.writes == writes  # and writes no new step
    session.query_params.from_dict({})  # as Streamlit does when another page is opened
    state.start("")
    assert state.chosen_head(6, 12) == Head(2, 5)


def test_back_never_throws_a_text_of_ones_own_away(session):
    state.start("attention")
    state.take_text("mine", "and mine")
    state.start("attention")
    state.write_link(NAMES)
    session.query_params.from_dict({"view": "heads"})
    state.start("attention")
    assert (session.session_state["text"], session.session_state["pair"]) == ("mine", "and mine")
    assert session.session_state["view"] == "heads"


@pytest.mark.parametrize("number", range(1, len(EXAMPLES) + 1))
def test_a_link_names_an_example_by_its_number(session, number):
    session.query_params["example"] = str(number)
    state.start("attention")
    assert session.session_state["text"] == EXAMPLES[number - 1].text
    assert session.session_state["pair"] == EXAMPLES[number - 1].pair
    assert session.session_state["example"] == number


@pytest.mark.parametrize("text", ["0", "8", "-1", "1.0", " 1", "٣", "²", "", "1" * 5000, "x"])
def test_a_number_that_is_none_is_ignored(session, text):
    session.query_params |= {
        "example": text,
        "query": text if text not in ("0", "8") else "-2",
        "layer": text,
    }
    state.start("attention")
    assert session.session_state["example"] == 1
    assert session.session_state["query"] is None


def test_the_examples_are_worth_their_link():
    for shipped in EXAMPLES:
        assert shipped.query in shipped.text.split() or shipped.query + "." in shipped.text.split()
        assert shipped.key in (shipped.pair or shipped.text).replace(".", "").split()


def test_a_new_text_forgets_the_example_and_the_places(session):
    state.start("attention")
    session.session_state |= {"query": 3, "key": 4, "layer": 2, "view": "heads"}
    state.take_text("mine", "too")
    keys = session.session_state
    assert [keys[name] for name in ("text", "pair", "example", "query", "key")] == [
        "mine",
        "too",
        None,
        None,
        None,
    ]
    assert (keys["layer"], keys["view"]) == (2, "heads")
    keys |= {"query": 3, "key": 4}
    state.take_example(5)
    assert [keys[name] for name in ("text", "pair", "example", "query", "key")] == [
        EXAMPLES[4].text,
        EXAMPLES[4].pair,
        5,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("layers", "heads", "expected"), [(6, 12, (4, 9)), (3, 12, (2, 9)), (24, 4, (4, 3)), (1, 1, (0, 0))]
)
def test_the_chosen_head_stays_within_the_model(session, layers, heads, expected):
    state.start("attention")
    state.choose_head(4, 9)
    assert state.chosen_head(layers, heads) == Head(*expected)
    assert state.chosen_head(24, 16) == Head(4, 9)  # a smaller model in between does not move it


@pytest.mark.parametrize(("layers", "heads"), [(6, 12), (2, 2), (1, 1), (24, 16)])
def test_the_head_of_arrival_exists_in_every_model(session, layers, heads):
    state.start("attention")
    head = state.chosen_head(layers, heads)
    assert head == Head(min(3, layers - 1), min(1, heads - 1))


def test_head_zero_is_a_choice(session):
    state.start("attention")
    state.choose_head(0, 0)
    assert state.chosen_head(6, 12) == Head(0, 0)


# The link


def test_defaults_leave_the_link(session):
    state.start("attention")
    state.write_link(NAMES)
    assert session.query_params == {}
    session.session_state["view"] = "beside"
    state.write_link(NAMES)
    assert session.query_params == {"view": "beside"}
    session.session_state["view"] = "map"
    state.write_link(NAMES)
    assert session.query_params == {}


def other(choice):
    """Return an option that is not the default."""
    return next(option for option in reversed(choice.options) if option != choice.default)


def test_a_link_carries_every_choice_and_nothing_stale(session):
    state.start("attention")
    for choice in keys.CHOICES:
        session.session_state[choice.key] = other(choice)
    session.query_params |= {"example": "3", "query": "4", "model": "toy"}
    state.write_link(NAMES, {"model": "x", "example": None})
    assert session.query_params == {choice.key: other(choice) for choice in keys.CHOICES} | {
        "model": "x",
    }
    state.write_link([])
    assert session.query_params == {}


def test_a_link_carries_the_head_also_where_it_is_zero(session):
    state.start("attention")
    state.choose_head(0, 0)
    state.write_link([*NAMES, *keys.NUMBERS])
    assert session.query_params == {"layer": "0", "head": "0"}
    session.session_state.clear()
    state.start("attention")
    assert state.chosen_head(6, 12) == Head(0, 0)


@given(some.text(min_size=1), some.none() | some.text())
@settings(max_examples=40)
def test_a_link_never_carries_a_text(text, pair):
    with pytest.MonkeyPatch.context() as patch:
        fake = SimpleNamespace(session_state={}, query_params=Link())
        patch.setattr(state, "st", fake)
        state.start("attention")
        state.take_text(text, pair)
        state.write_link([*NAMES, *keys.NUMBERS])
        assert fake.query_params == {}


def test_the_link_is_written_once_for_all_choices(session):
    """Each write is a message to the browser, and a step of its history."""
    state.start("attention")
    session.session_state["view"] = "heads"
    state.write_link(NAMES, {"query": 3})
    assert session.query_params.writes == 1
    state.write_link(NAMES, {"query": 3})
    assert session.query_params.writes == 1


# The names of sources

PLAIN = some.text(some.characters(blacklist_characters="@#", blacklist_categories=("Cs", "Cc")), min_size=1)
DEVICES = some.sampled_from(["cpu", "cuda", "mps"])
REVISIONS = some.none() | some.from_regex(r"[A-Za-z0-9_.][A-Za-z0-9_./-]{0,20}", fullmatch=True)


@given(PLAIN, DEVICES)
@example("/home/me/a model", "mps")
def test_a_key_says_its_name_and_device(name, device):
    assert parts_of(key_of(name, None, device)) == (name, None, device)


@given(
    some.from_regex(r"[A-Za-z0-9][\w.-]{0,9}(/[A-Za-z0-9][\w.-]{0,9})?", fullmatch=True).filter(str.isascii),
    REVISIONS,
    DEVICES,
)
@example("google-bert/bert-base-uncased", "refs/pr/3", "cuda")
def test_a_key_pins_the_revision_of_a_hub_model(name, revision, device):
    assert parts_of(key_of(name, revision, device)) == (name, revision, device)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    "name",
    ["/home/a@b/model", "./a@b", "~/x@1.0", "/data/c#/model", "/data/run#3", "/a@b#c@d", "C:\\me@x\\m"],
)
def test_a_folder_may_hold_the_signs_of_a_key(name, device):
    assert parts_of(key_of(name, None, device)) == (name, None, device)


def test_a_folder_with_an_at_opens(tmp_path):
    folder = save_tiny(tmp_path / "me@home" / "run#3")
    maps = cache.maps(str(folder), "the cat", None, "pieces")
    assert (maps.layers, maps.heads) == (3, 4)


# The caches


def test_what_is_shared_cannot_be_changed():
    maps = cache.maps("bundled", "a cat and a dog", None, "pieces")
    assert maps is cache.maps("bundled", "a cat and a dog", None, "pieces")
    with pytest.raises(ValueError, match="read-only"):
        maps.weights[0, 0, 0, 0] = 1
    words = cache.maps("bundled", "unaffable cats", None, "words")
    with pytest.raises(ValueError, match="read-only"):
        words.weights[0, 0, 0, 0] = 1


def test_a_copy_of_small_results_is_safe_to_change():
    arguments = ("bundled", "a cat and a dog", None, "words", "keep")
    first = cache.entropies(*arguments)[0]
    kept = first.copy()
    first[:] = -1
    np.testing.assert_array_equal(cache.entropies(*arguments)[0], kept)
    tiles = cache.tiles(*arguments)
    tiles[:] = 7
    assert cache.tiles(*arguments).max() > 7


@pytest.mark.parametrize(
    "other", [{"text": "a dog"}, {"pair": "a dog"}, {"units": "pieces"}, {"specials": "hide"}]
)
def test_a_result_belongs_to_its_settings(other):
    first = {
        "key": "bundled",
        "text": "unaffable cats",
        "pair": None,
        "units": "words",
        "specials": "keep",
    }
    here, there = cache.tiles(**first), cache.tiles(**first | other)
    assert not np.array_equal(here, there)


def test_tiles_are_roots_up_to_254():
    text = "word " * 100
    maps = with_specials(cache.maps("bundled", text, None, "words"), "renormalise")
    tiles = cache.tiles("bundled", text, None, "words", "renormalise")
    assert tiles.dtype == np.uint8
    assert tiles.shape == (6, 12, 48, 48)
    assert tiles.max() <= 254
    largest = maps.weights.max(axis=(-1, -2))
    np.testing.assert_array_equal(tiles.max(axis=(-1, -2)), np.rint(np.sqrt(largest) * 254))


def test_a_text_that_cannot_be_read_is_asked_anew():
    for _ in range(2):
        with pytest.raises(TextError):
            read("bundled", "  ", None, "words", "keep")


# Units and places

WORDS = some.sampled_from(
    [
        "the",
        "cat",
        "unaffable",
        "didn't",
        "tired.",
        "(a",
        "😀",
        "你好",
        "مرحبا",
        "[SEP]",
        "[MASK]",
        "x-ray",
        "—",
    ]
)
TEXTS = some.lists(WORDS, min_size=1, max_size=7).map(" ".join)
UNITS = some.sampled_from(keys.UNITS.options)
SPECIALS = some.sampled_from(keys.SPECIALS.options)


@given(TEXTS, some.none() | TEXTS, UNITS, SPECIALS)
@settings(max_examples=40)
@example("[SEP]", None, "words", "hide")
@example("unaffable didn't", "didn't 你好", "words", "renormalise")
def test_a_unit_is_found_again_by_its_place(text, pair, units, specials):
    found = read("bundled", text, pair, units, specials)
    assert [found.unit(int(place)) for place in found.places] == list(range(len(found.places)))
    assert len(found.places) == len(found.tokens)
    pieces = found.pieces
    for place in range(len(pieces)):
        unit = found.unit(place)
        if specials != "keep" and pieces.special[place]:
            assert unit is None
        elif units == "pieces":
            assert found.places[unit] == place
        else:  # any piece of a word stands for the word
            assert pieces.word[found.places[unit]] == pieces.word[place]
    assert [found.unit(place) for place in (None, -1, len(pieces), 10_000)] == [None] * 4


@given(TEXTS, some.none() | TEXTS, UNITS, SPECIALS, some.randoms(use_true_random=False))
@settings(max_examples=30)
def test_a_link_is_the_cell_of_the_map_shown(text, pair, units, specials, random):
    found = read("bundled", text, pair, units, specials)
    n = len(found.places)
    if not n:
        return
    query, key = random.randrange(n), random.randrange(n)
    values = found.links(query, key)
    assert values.shape == (6, 12)
    for layer, index in ((0, 0), (3, 1), (5, 11)):
        cell = found.view(Head(layer, index)).weights[0, 0, query, key]
        assert values[layer, index] == pytest.approx(cell, abs=1e-6)


@pytest.mark.parametrize("specials", keys.SPECIALS.options)
@pytest.mark.parametrize("units", keys.UNITS.options)
def test_what_is_shown_is_the_view_of_all_maps(units, specials):
    example = EXAMPLES[4]
    found = read("bundled", example.text, example.pair, units, specials)
    whole = with_specials(
        in_units(cache.maps("bundled", example.text, example.pair, "pieces"), units), specials
    )
    for head in (Head(0, 0), Head(5, 11)):
        shown = found.view(head)
        np.testing.assert_array_equal(shown.weights[0, 0], whole.weights[head.layer, head.index])
        assert shown.queries.labels == found.tokens.labels == whole.queries.labels
    bits, share = found.entropies()
    assert bits.shape == share.shape == (6, 12)
    assert ((share >= 0) & (share <= 1)).all()
    assert (bits <= np.log2(len(found.maps.keys)) + 1e-6).all()
    assert found.tiles().shape == (6, 12, len(found.places), len(found.places))


def test_the_toy_is_read_the_same_way():
    found = read("toy", "didn't the cat", "a dog", "words", "hide")
    assert [found.unit(int(place)) for place in found.places] == [0, 1, 2, 3, 4]
    assert found.entropies()[0].shape == (1, 8)
    assert found.links(0, 4).shape == (1, 8)


# Query and key


def test_the_example_says_where_to_look_first(session):
    state.start("attention")
    found = read("bundled", EXAMPLES[0].text, None, "words", "keep")
    query, key = query_and_key(found, Head(0, 0))
    assert (found.tokens.labels[query], found.tokens.labels[key]) == ("it", "animal")
    assert session.session_state["query"] == found.places[query]
    assert session.session_state["key"] == found.places[key]


def test_a_pair_is_looked_at_across_its_sentences(session):
    state.start("attention")
    state.take_example(5)
    found = read("bundled", EXAMPLES[4].text, EXAMPLES[4].pair, "words", "keep")
    query, key = query_and_key(found, Head(0, 0))
    assert [int(found.tokens.segment[unit]) for unit in (query, key)] == [0, 1]


def test_an_own_text_starts_with_the_strongest_link_of_its_words(session):
    state.start("attention")
    state.take_text("the cat sat", None)
    found = read("bundled", "the cat sat", None, "words", "keep")
    query, key = query_and_key(found, Head(2, 3))
    inner = found.view(Head(2, 3)).weights[0, 0, 1:-1, 1:-1]
    assert inner[query - 1, key - 1] == inner.max()


def test_a_place_survives_other_units_and_hidden_specials(session):
    state.start("attention")
    state.take_text("unaffable cats", None)
    pieces = read("bundled", "unaffable cats", None, "pieces", "keep")
    last = pieces.tokens.labels.index("cats")
    session.session_state |= {"query": last, "key": last}
    for units, specials in (
        ("words", "keep"),
        ("words", "hide"),
        ("pieces", "hide"),
        ("pieces", "renormalise"),
    ):
        found = read("bundled", "unaffable cats", None, units, specials)
        query, key = query_and_key(found, Head(0, 0))
        assert found.tokens.labels[query] == found.tokens.labels[key] == "cats"
        assert session.session_state["query"] == last


def test_a_hidden_place_is_not_forgotten(session):
    state.start("attention")
    session.session_state |= {"query": 0, "key": 0}
    hidden = read("bundled", EXAMPLES[0].text, None, "words", "hide")
    query, _ = query_and_key(hidden, Head(0, 0))
    assert hidden.tokens.labels[query] == "it"
    assert session.session_state["query"] == 0
    kept = read("bundled", EXAMPLES[0].text, None, "words", "keep")
    assert query_and_key(kept, Head(0, 0)) == (0, 0)


def test_no_unit_no_query(session):
    state.start("attention")
    assert query_and_key(read("bundled", "[SEP]", None, "words", "hide"), Head(0, 0)) is None


def test_a_folder_with_an_at_sign_is_no_pinned_hub_model(tmp_path, monkeypatch):
    (tmp_path / "runs" / "a@b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert cache.parts_of("runs/a@b") == ("runs/a@b", None, "cpu")
    assert cache.parts_of("owner/name@main") == ("owner/name", "main", "cpu")


def test_no_widget_has_the_key_of_something_a_session_remembers():
    """Streamlit would write the one over the other."""
    remembered = {choice.key for choice in keys.CHOICES}
    for module in (keys, keys.learn):
        remembered |= {
            value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)
        }
    drawn = set()
    for path in (ROOT / "dashboard").rglob("*.py"):
        drawn |= set(re.findall(r'\bkey=f?"([^"]+)"', path.read_text(encoding="utf-8")))
    assert len(drawn) > 40
    assert drawn & remembered == set()


# The boxes


@pytest.fixture
def box(session, monkeypatch):
    """A box that shows 3; call it with what the browser tells and how the run came to be, get what was taken."""
    monkeypatch.setattr(boxes, "st", session)

    def tell(told, *, shown=3, draw=boxes.draw, **run):
        taken = []
        session.session_state.pop(keys.ACTED, None)
        now = SimpleNamespace(fragment_ids_this_run=None, is_history_navigation=False)
        vars(now).update(run)
        monkeypatch.setattr(boxes, "get_script_run_ctx", lambda suppress_warning: now)

        def widget(label, *limits, key, on_change):
            assert session.session_state[key] == shown
            session.session_state[key] = told
            on_change()

        draw(widget, "Layer", range(5), key="layer.box", shown=shown, take=taken.append)
        acted = session.session_state.get(keys.ACTED, False)
        return taken, acted, session.session_state["layer.box"]

    return tell


def test_what_a_person_chose_is_taken(box):
    assert box(4) == ([4], True, 4)


def test_what_is_shown_already_is_no_choice(box):
    assert box(3) == ([], False, 3)


@pytest.mark.parametrize("run", [{"fragment_ids_this_run": ["progress"]}, {"is_history_navigation": True}])
def test_what_no_person_chose_is_not_taken(box, run):
    """The browser tells every box with the ticks of a progress and with Back, also values of before."""
    assert box(0, **run) == ([], False, 3)
