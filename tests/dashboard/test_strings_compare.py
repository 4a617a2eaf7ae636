"""The language of Compare and of the lenses: nothing visible escapes `_`."""

from __future__ import annotations

import pytest

from analysis.texts import HUB
from dashboard import corpus
from dashboard.examples import MINIMAL_PAIRS
from dashboard.sidebar import BUNDLED_NAME
from tests.dashboard.test_compare_page import COMPARE, measured, type_sides
from tests.dashboard.test_pages import _nothing_opened_before, open_page, put, ran, said, write
from tests.dashboard.test_strings import NONSENSE, PIECES, foreign, pseudo, seen
from tests.tiny import save_tiny

__all__ = ["_nothing_opened_before", "pseudo"]  # fixtures for this file too

OTHER = "zqxj vwkz vwkz"
TOKENS = f"{NONSENSE} {PIECES}"
# What is no language: sentences that ship, the name of a model, what may be typed into a box.
DATA = {*(" / ".join(pair) for pair in MINIMAL_PAIRS), *(side for pair in MINIMAL_PAIRS for side in pair)}
DATA |= {BUNDLED_NAME, f"{HUB}owner/name/file.parquet", NONSENSE, OTHER}


@pytest.fixture(autouse=True)
def _few_texts_ship(monkeypatch):
    """Let a small collection ship, so that nothing waits for long measurements."""
    few = {
        name: corpus.corpus(name, [NONSENSE, OTHER, (NONSENSE, OTHER)]) for name in ("english", "indonesian")
    }
    monkeypatch.setattr(corpus, "_shipped", few.__getitem__)


def untranslated(at, *names: str) -> list[str]:
    """Return what is foreign to the catalogue; ``names`` of models may stand anywhere."""
    plain = (line.replace("\\", "") for line in foreign(at, f"{TOKENS} {' '.join(names)}"))
    found = []
    for line in plain:
        bare = line
        for name in (BUNDLED_NAME, *names):
            bare = bare.replace(name, "")
        if line not in DATA and any(char.isalpha() for char in _outside(bare)):
            found.append(line)
    return found


def _outside(line: str) -> str:
    """Return what stands outside the marks of the catalogue, names of heads and of colours taken away."""
    depth, kept = 0, []
    for char in line:
        depth += {"⟦": 1, "⟧": -1}.get(char, 0)
        if depth == 0 and char != "⟧":
            kept.append(char)
    bare = "".join(kept)
    for sign in (":orange[", ":blue["):
        bare = bare.replace(sign, "")
    words = bare.replace("*", " ").split()
    return " ".join(
        word for word in words if not (word.startswith("L") and "·H" in word) and word not in TOKENS.split()
    )


def test_the_walk_finds_what_is_not_translated():
    found = " ".join(untranslated(type_sides(open_page(COMPARE), NONSENSE, OTHER)))
    for part in ("First sentence", "Second sentence", "Minimal pairs", "words in both", "Which head changes most",
                 "two sentences", "change (bits)", "difference", "Most different", "Jensen-Shannon",
                 "Numbers as a table", "your own", "Blue: more in the second"):  # fmt: skip
        assert part in found
    found = " ".join(untranslated(write(put(open_page(), view="lines", lens="norms"), NONSENSE)))
    for part in ("Lens", "all queries", "received", "Ctrl-click", "add heads", "carries most from", "Kobayashi",
                 "norms", "Jain and Wallace"):  # fmt: skip
        assert part in found
    found = " ".join(untranslated(write(put(open_page(), view="why"), NONSENSE)))
    for part in ("the sum of", "by dimension", "query × key, scaled", "dimension of the head", "split"):
        assert part in found


@pytest.mark.usefixtures("pseudo")
def test_lines_why_and_the_lenses_speak_through_the_catalogue():
    at = write(open_page(), NONSENSE, "zqxj vwkz")
    for choices in (
        {"view": "lines", "with": "5.11,3.7"},
        {"lens": "norms", "attention.table": True},
        {"lens": "rollout", "specials": "hide", "units": "pieces"},
        {"view": "map", "lens": "norms"},
        {"lens": "rollout", "specials": "keep"},
        {"view": "why", "units": "words"},
    ):
        put(at, **choices)
        assert untranslated(at) == []
    assert any("A word that was split" in line for line in seen(at))
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert untranslated(at) == []


@pytest.mark.usefixtures("pseudo")
@pytest.mark.parametrize("compare", ["sentences", "sources"])
def test_words_laid_over_each_other_speak_through_the_catalogue(compare):
    at = write(open_page(), NONSENSE)
    at.switch_page(COMPARE)
    put(at, compare=compare)
    if compare == "sentences":
        type_sides(at, NONSENSE, OTHER)
    for choices in (
        {"compare.words.table": True},
        {"picture": "first", "units": "pieces"},
        {"picture": "second", "specials": "hide"},
    ):
        put(at, **choices)
        assert untranslated(at) == []
    assert "words in both" in said(at)
    if compare == "sentences":
        for sides in ((NONSENSE, NONSENSE), ("", NONSENSE), ("[SEP]", "[SEP]")):
            assert untranslated(type_sides(put(at, picture="difference"), *sides)) == []


@pytest.mark.usefixtures("pseudo")
def test_two_heads_speak_through_the_catalogue():
    at = put(open_page(COMPARE), compare="heads")
    for choices in ({}, {"measure": "previous", "pick": "second"}, {"layer2": 3, "head2": 1}):
        measured(put(at, **choices))
        assert untranslated(at) == []
        assert any("beyond noise" in line for line in seen(at))


@pytest.mark.usefixtures("pseudo")
def test_two_models_speak_through_the_catalogue(tmp_path):
    folders = [str(save_tiny(tmp_path / f"z{number}", seed=number)) for number in (0, 1)]
    at = put(open_page(COMPARE), compare="models", model2="toy")
    for choices in ({}, {"shown": "second"}):
        measured(put(at, **choices))
        assert untranslated(at) == []
    for folder in folders:  # as the sidebar's form does
        at.selectbox(key="model.box.en").set_value("other").run()
        at.text_input(key="model.name").set_value(folder)
        next(button for button in at.button if "Open" in button.label).click()
        measured(at)
    measured(put(at, model2=folders[0], shown="difference"))
    assert untranslated(at, *folders, "z0", "z1") == []
    assert any("differ beyond noise in" in line for line in seen(at))
