"""The Learn pages as a reader meets them, without a browser: their numbers, tasks, links, code and files."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from analysis.by_hand import verify
from analysis.maps import Head
from analysis.planted import eight_heads
from analysis.senses import TEXTS, WORD
from analysis.six_words import SENTENCES, sentence
from analysis.toy import EXAMPLE, softmax
from dashboard import cache
from dashboard.learn import (
    by_hand,
    heading,
    keys,
    measured,
    mixing,
    page,
    prose,
    questions,
    saved,
    shapes,
    six_steps,
    two_layers,
    variations,
)
from dashboard.learn.source import code_of
from dashboard.text import languages
from tests.conftest import ROOT
from tests.dashboard.test_compare_page import numbers_of
from tests.dashboard.test_pages import _nothing_opened_before, open_page, put, ran, said
from tests.dashboard.test_strings import foreign, pseudo, seen

__all__ = ["_nothing_opened_before", "pseudo"]  # fixtures for this file too

STEPS = {
    "by_hand": by_hand.PAGE.steps,
    "shapes": shapes.PAGE.steps,
    "six_steps": (*six_steps.STEPS, *mixing.STEPS, two_layers.STEP),
    "variations": (*variations.STEPS, *measured.STEPS),
    "questions": questions.PAGE.steps,
}
EVERY = [(name, step.name) for name, steps in STEPS.items() for step in steps]


def lesson(name, part=None, **link):
    """Open a Learn page at a step."""
    return open_page(f"views/{name}.py", **({} if part is None else {"part": part}), **link)


def texts_of(at):
    """Return all that is written into the cells of the pictures."""
    found = []
    for chart in at.get("plotly_chart"):
        for trace in json.loads(chart.proto.spec)["data"]:
            found += trace.get("text") or []
    return found


def unsolved(at):
    return [m.value for m in at.markdown if ":material/radio_button_unchecked:" in m.value]


def solved(at):
    return [m.value for m in at.markdown if m.value.startswith(":material/check_circle: **")]


def test_the_list_of_steps_is_that_of_the_links():
    assert {name: tuple(step.name for step in steps) for name, steps in STEPS.items()} == keys.STEPS


@pytest.mark.parametrize(("name", "part"), EVERY)
def test_every_step_arrives_with_a_picture_a_link_to_the_real_one_and_nothing_solved(name, part):
    at = put(lesson(name, part), **{"learn.code": True})
    words = prose.prose(name).sections[part]
    assert words.text in said(at)
    step = next(step for step in STEPS[name] if step.name == part)
    shown = [code.value for code in at.code]  # the source itself
    assert shown == [code_of(thing) for thing in step.code]
    for thing, code in zip(step.code, shown, strict=True):
        source = inspect.getsource(inspect.unwrap(thing))
        assert all(line.strip() in source for line in code.splitlines())
        assert '"""' not in code
    charts = at.get("plotly_chart")
    assert len(charts) > 0 or part == "two-layers"
    assert all(chart.proto.alt for chart in charts)
    assert len(unsolved(at)) == len(words.tasks) >= 1
    assert solved(at) == []
    assert len(at.get("page_link")) >= 1
    assert {"lang"} & set(at.query_params) == set()


def test_code_loses_its_docstring_and_nothing_else():
    assert code_of(softmax).splitlines() == [
        "def softmax(scores: Array) -> Array:",
        "    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))",
        "    return shifted / shifted.sum(axis=-1, keepdims=True)",
    ]


# Numbers of the lesson, as they were given to be taught.


def test_two_heads_show_every_number():
    found = texts_of(lesson("by_hand"))
    states, output, first, second = (
        found[start : start + size] for start, size in ((0, 18), (18, 18), (36, 9), (45, 9))
    )
    assert [float(text) for text in states] == EXAMPLE.ravel().tolist()
    assert first == ["0.390", "0.219", "0.390", "0.264", "0.471", "0.264", "0.390", "0.219", "0.390"]
    assert second == ["0.390", "0.390", "0.219", "0.390", "0.390", "0.219", "0.264", "0.264", "0.471"]
    rows = "0.781 0.219 0.000 0.219 0.781 0.000 0.529 0.471 0.000 0.219 0.781 0.000 0.781 0.219 0.000 0.471 0.529 0.000"
    assert output == rows.split()


def test_the_module_is_verified():
    at = lesson("by_hand", "module")
    assert texts_of(at)[:8] == ["0.345", "0.120", "0.380", "0.155", "0.176", "0.310", "0.147", "0.367"]
    assert texts_of(at)[16:20] == ["0.541", "0.171", "0.222", "0.066"]
    line = next(m.value for m in at.markdown if "torch.nn.MultiheadAttention" in m.value)
    assert line.startswith(":material/check_circle:")
    assert "the same to 1e-12" in line
    found = verify()
    assert (
        f"{found.output_difference:.1e} in the output, {found.weights_difference:.1e} in the weights" in line
    )
    table = at.table[0].value
    assert table["patterns"].tolist() == [1, 2]
    assert table["parameters of the four matrices"].tolist() == [144, 144]
    assert table["width of a head"].tolist() == [6, 3]
    assert table["rank of its 6 × 6 scores"].tolist() == [6, 3]


@pytest.mark.parametrize("masking", ["none", "causal", "boolean", "additive"])
def test_the_module_is_verified_again_on_what_the_reader_sets(masking):
    at = lesson(
        "by_hand", "module", width="12", heads_by_hand="4", length="5", other="7", seed="3", masking=masking
    )
    if masking == "causal":
        found = verify(12, 4, 5, keys=7, seed=3, mask=masking)
        assert found.weights.shape == (4, 5, 7)
    assert "the same to 1e-12" in said(at)
    assert set(at.query_params) >= {"width", "heads_by_hand", "length", "other", "seed"}


def test_a_wrong_verdict_would_be_said(monkeypatch):
    def wrong(*given, **more):
        found = verify(*given, **more)
        return type(found)(**{**vars(found), "output_difference": 1e-3})

    monkeypatch.setattr(by_hand, "verify", wrong)
    line = next(m.value for m in lesson("by_hand", "module").markdown if "torch.nn" in m.value)
    assert line.startswith(":material/cancel:")
    assert "**not** the same" in line


def test_a_width_that_does_not_divide_is_said_and_the_page_lives_on():
    at = lesson("by_hand", "module", width="7")
    assert "A width of 7 cannot be split over 2 heads: it must be a multiple of them." in at.info[0].value
    assert len(solved(at)) == 1
    at.number_input(key="width.number.en").set_value(8)
    ran(at.run())
    assert "the same to 1e-12" in said(at)
    assert len(solved(at)) == 1  # what was solved stays solved


def test_shapes_are_those_of_the_lesson():
    at = lesson("shapes")
    table = at.table[0].value
    wanted = ["x", "Q", "K", "V", "view", "transpose", "scores", "softmax", "context", "concat", "output"]
    assert table["tensor"].tolist() == wanted
    short, wide, four = "(2, 4, 8)", "(2, 4, 2, 4)", "(2, 2, 4, 4)"
    assert table["shape"].tolist() == [short] * 4 + [wide] + [four] * 4 + [short] * 2
    assert "output **(2, 4, 8)**, weights **(2, 2, 4, 4)**" in said(at)
    at = lesson("shapes", batch="3", length="5", width="12", heads_by_hand="3", tensor="softmax")
    assert "**softmax** has the shape **(3, 3, 5, 5)**" in said(at)
    assert len(texts_of(at)) == 3 * 25


def test_one_head_reads_as_in_the_lesson():
    at = lesson("six_steps", "one")
    assert "Query **cat** looks most at **cat**, 0.22 of its weight. Entropy 2.54 of 2.58 bits." in said(at)
    low, high = map(float, re.search(r"between ([\d.]+) and ([\d.]+) bits", said(at)).groups())
    assert 2.53 <= low <= high <= 2.58


def test_many_heads_cost_the_same():
    at = lesson("six_steps", "many")
    every, published = (table.value for table in at.table)
    assert every["heads"].tolist() == ["1", "2", "4", "8"]
    assert every["width of a head"].tolist() == ["64", "32", "16", "8"]
    assert every["weights"].tolist() == ["4 × 64² = 16,384"] * 4
    widths = ["512 = 8 × 64", "768 = 12 × 64", "4,096 = 32 × 128", "12,288 = 96 × 128"]
    assert published["width"].tolist() == widths
    for heads in (1, 2, 4, 8):
        at = put(at, split=str(heads))
        spec = json.loads(at.get("plotly_chart")[0].proto.spec)
        assert len([trace for trace in spec["data"] if trace["type"] == "heatmap"]) == heads


def test_patterns_are_read_out_for_the_toy_and_the_bundled_model():
    at = put(lesson("six_steps", "patterns"), **{"learn.numbers": True})
    table = at.table[0].value
    assert table["head"].tolist()[0] == "neighbours"
    assert table.iloc[0][["top key", "weight", "entropy (bits)"]].tolist() == ["cat", 0.47, 2.0]
    real = at.dataframe[0].value
    maps = cache.maps("bundled", "The cat chased the mouse.", None, "words")
    assert real["head"].tolist() == [str(Head(2, head)) for head in range(12)]
    rows = maps.weights[2, :, 2]
    np.testing.assert_allclose(real["weight"], rows.max(axis=-1), atol=0.006)


def test_concat_is_as_wide_as_the_layer_however_it_is_cut():
    at = lesson("six_steps", "concat")
    for heads, ranges in (
        (1, "head 1: 0–63"),
        (2, "head 2: 32–63"),
        (4, "head 2: 16–31"),
        (8, "head 8: 56–63"),
    ):
        at = put(at, blocks=str(heads))
        assert f"{heads} blocks of {64 // heads} = **64** dimensions." in said(at)
        assert ranges in said(at)


def test_the_output_is_a_sum_over_heads_whatever_is_off():
    at = lesson("six_steps", "mix")
    assert "W_O: 64 × 64 = 4,096 weights, in 8 blocks of 8 rows." in said(at)
    values = numbers_of(json.loads(at.get("plotly_chart")[0].proto.spec)["data"][0]["x"])
    assert sum(values) == pytest.approx(1)
    at = put(at, out="1,4")
    for apart in re.findall(r"largest difference ([\d.e+-]+)\.", said(at)):
        assert float(apart) < 1e-12
    assert "With 2 of 8 heads off the output for **cat**" in said(at)


def test_causal_weights_above_the_diagonal_are_exactly_zero():
    at = lesson("variations", "causal")
    assert "Largest weight above the diagonal, in all heads: **0**." in said(at)
    assert "−∞" in texts_of(at)
    at = put(at, ahead="open")
    ahead = eight_heads().trace(sentence("en").states).weights[0, 6, 1, 2:].sum()
    assert ahead > 0.5
    assert f"**next token**, query **cat**: {ahead:.3f} of its weight lies ahead" in said(at)


def test_without_positions_only_rows_move():
    at = put(lesson("variations", "order"), second="moved")
    assert "**Equal**: the rows have moved, no number has changed" in said(at)
    assert "**Not equal**" in said(put(at, positions="with"))


def test_a_word_in_two_senses_begins_equal():
    at = lesson("variations", "context")
    assert "**word embedding**: cosine **1.000**" in said(at)
    y = numbers_of(json.loads(at.get("plotly_chart")[0].proto.spec)["data"][0]["y"])
    assert len(y) == 8
    assert y[:2] == pytest.approx([1, 1])
    assert min(y) < 0.9


def test_maps_grow_with_the_square():
    assert "grows with n to the power of **2.00**" in said(lesson("variations", "cost", longest="1"))


# Every task can be solved by moving the figure.

WIDER = ";".join(["1,0,0,0,1,0", "0,1,0,0,1,0", "3,0,0,1,0,0"])
ALIKE = ";".join(["1,0,0,1,0,0", "0,1,0,0,1,0", "1,0,0,1,0,0"])
EVEN = ";".join(["0,0,0,0,1,0", "0,1,0,0,1,0", "1,0,0,1,0,0"])
SOLUTIONS = [
    ("by_hand", "two-heads", "itself", {"states": WIDER}),
    ("by_hand", "two-heads", "same", {"states": ALIKE}),
    ("by_hand", "two-heads", "even", {"states": EVEN}),
    ("by_hand", "module", "divide", {"width": "7"}),
    ("by_hand", "module", "triangle", {"masking": "causal"}),
    ("by_hand", "module", "oblong", {"other": "3"}),
    ("shapes", "shapes", "square", {"tensor": "scores"}),
    ("shapes", "shapes", "single", {"heads_by_hand": "8"}),
    ("shapes", "shapes", "longer", {"tensor": "output", "length": "6"}),
    ("six_steps", "one", "highest", {"word": "5"}),
    ("six_steps", "one", "other", {"word": "4"}),
    ("six_steps", "many", "sixteen", {"split": "4"}),
    ("six_steps", "many", "blend", {"split": "1"}),
    ("six_steps", "patterns", "twice", {"word": "0"}),
    ("six_steps", "patterns", "end", {"word": "5"}),
    ("six_steps", "concat", "third", {"blocks": "4"}),
    ("six_steps", "concat", "pairs", {"blocks": "2"}),
    ("six_steps", "mix", "least", {"out": "7"}),
    ("six_steps", "mix", "most", {"out": "0,1,2,3,4,5,6,7"}),
    ("six_steps", "together", "sure", {"source": "bert", "real_layer": "4"}),
    ("six_steps", "together", "spread", {"source": "bert", "real_layer": "0", "word": "0"}),
    ("variations", "causal", "lone", {"word": "0"}),
    ("variations", "causal", "open", {"ahead": "open"}),
    ("variations", "scale", "stuck", {"dimensions": "5"}),
    ("variations", "scale", "root", {"dimensions": "6"}),
    ("variations", "order", "equal", {"second": "moved"}),
    ("variations", "order", "broken", {"second": "moved", "positions": "with"}),
    ("variations", "cost", "four", {"longest": "4"}),
    ("variations", "context", "layer", {"depth": "7"}),
    ("variations", "context", "alike", {"sense": "alike"}),
    ("questions", "questions", "coarse", {"narrow": "4"}),
    ("questions", "questions", "usual", {"narrow": "0"}),
]


@pytest.mark.parametrize(("name", "part", "task", "link"), SOLUTIONS, ids=lambda value: str(value)[:24])
def test_a_task_is_solved_by_the_figure_and_explained(name, part, task, link):
    at = lesson(name, part, **link)
    words = prose.prose(name).sections[part].tasks[task]
    assert f":material/check_circle: **{words.asks}**" in solved(at)
    assert words.explains in said(at)


def test_sentences_that_cross_solve_their_tasks_and_enter_no_link():
    at = lesson("variations", "cross")
    words = prose.prose("variations").sections["cross"].tasks
    at.text_input(key="learn.crossed.1").set_value("secret")
    ran(at.run())
    assert f":material/check_circle: **{words['one'].asks}**" in solved(at)
    at.text_input(key="learn.crossed.1").set_value("a b c d e f g h i j k l m n")
    ran(at.run())
    assert "6 queries × 14 keys" in said(at)
    assert f":material/check_circle: **{words['wide'].asks}**" in solved(at)
    assert "secret" not in str(at.query_params)
    at.text_input(key="learn.crossed.0").set_value("")
    ran(at.run())
    assert len(at.info) == 1  # nothing to read is said
    assert at.text_input(key="learn.crossed.0").value == ""


def test_every_task_has_a_solution_here():
    asked = {
        (name, part, task)
        for name, steps in STEPS.items()
        for part, section in prose.prose(name).sections.items()
        if part in {step.name for step in steps}
        for task in section.tasks
    }
    elsewhere = {("variations", "cross", task) for task in ("wide", "one")}
    elsewhere |= {("six_steps", "two-layers", task) for task in ("induce", "cheap", "dear")}
    assert {solution[:3] for solution in SOLUTIONS} | elsewhere == asked
    assert asked == {
        (name, step.name, task) for name, steps in STEPS.items() for step in steps for task in step.tasks
    }


def test_a_training_runs_in_the_page_and_its_heads_are_switched_off():
    at = lesson("six_steps", "two-layers", seed="0")
    words = prose.prose("six_steps").sections["two-layers"].tasks
    if cache.course(0) is None:
        at.button(key="learn.train.button").click()
        ran(at.run(timeout=120))
    course, pruned = cache.course(0), cache.toy_pruned(0)
    assert course[-1].loss < 0.5 * course[0].loss
    assert f":material/check_circle: **{words['induce'].asks}**" in solved(at)
    assert len(at.get("plotly_chart")) == 3
    assert f"Loss with all heads **{pruned.whole:.3f}** nats; guessing gives 3.26." in said(at)
    cheapest = int(pruned.alone.argmin())
    at = put(at, gates=str(cheapest))
    assert f"**{pruned.alone.ravel()[cheapest]:.3f}** nats" in said(at)
    assert f":material/check_circle: **{words['cheap'].asks}**" in solved(at)
    both = [int(head) for head in pruned.scores.argmax(axis=1)]
    at = put(at, gates=f"{both[0]},{4 + both[1]}")
    assert f":material/check_circle: **{words['dear'].asks}**" in solved(at)
    again = lesson("six_steps", "two-layers", seed="0")  # another session: trained already
    assert len(again.get("plotly_chart")) == 3


# Links, languages, files.


def test_a_link_opened_in_the_other_language_keeps_its_choices():
    link = {"width": "12", "heads_by_hand": "3", "masking": "causal", "seed": "5"}
    for lang in languages():
        at = lesson("by_hand", "module", lang=lang, **link)
        assert {key: at.query_params[key] for key in link} == link
        assert len(texts_of(at)) == 3 * 16


@pytest.mark.parametrize("lang", languages())
@pytest.mark.parametrize("name", STEPS)
def test_the_prose_is_there_in_every_language_with_the_same_steps_and_tasks(name, lang):
    assert (prose.FOLDER / lang / f"{name}.md").is_file()
    here, english = prose.prose(name, lang), prose.prose(name)
    assert [(part, list(section.tasks)) for part, section in here.sections.items()] == [
        (part, list(section.tasks)) for part, section in english.sections.items()
    ]
    for section in here.sections.values():
        assert section.title
        assert section.text
        assert all(task.asks and task.explains for task in section.tasks.values())
    if lang != "en":
        same = [
            part for part, section in here.sections.items() if section.text == english.sections[part].text
        ]
        assert set(same) <= {"sources"}  # a list of papers


@pytest.mark.parametrize("name", STEPS)
def test_a_page_is_saved_whole_and_needs_no_network(name):
    at = put(lesson(name, longest="1"), **{"learn.save": True})
    assert [button.label for button in at.get("download_button")] == ["HTML"]
    whole = page_as_file(name)
    text = whole.decode()
    words = prose.prose(name)
    for section in words.sections.values():
        assert f"<h2>{section.title}</h2>".replace("'", "&#x27;") in text
        for task in section.tasks.values():
            assert saved.MARKDOWN.renderInline(task.asks) in text
    assert len(re.findall(r"plotly\.js v\d", text)) == 1  # the library, once
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)
    for step in STEPS[name]:
        for thing in step.code:
            assert saved.html.escape(code_of(thing)) in text


def page_as_file(name):
    """Return a page as its file, with the steps as a fresh session has them."""
    made = []
    original = saved.to_file

    def note(*given):
        made.append(original(*given))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page.saved, "to_file", note)
        put(lesson(name, longest="1"), **{"learn.save": True})
    return made[-1]


def test_a_file_that_is_saved_holds_the_choices_of_the_session():
    made = []
    original = saved.to_file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page.saved, "to_file", lambda *given: made.append(original(*given)) or made[-1])
        put(lesson("by_hand", "module", width="12", heads_by_hand="3"), **{"learn.save": True})
    text = made[-1].decode()
    assert "rank of its 12 × 12 scores" in text
    assert "✓ Largest difference from" in text
    assert ":material" not in text


# Names of tensors and symbols, which no language has other words for.
SYMBOLS = "x Q K V view transpose scores softmax context concat output The cat chased the mouse . d_k he sat"


@pytest.mark.usefixtures("pseudo")
@pytest.mark.parametrize(("name", "part"), EVERY)
def test_the_page_speaks_through_the_catalogue(name, part, monkeypatch):
    original = prose.prose

    def marked(which, language="en"):
        found = original(which)
        sections = {
            key: prose.Section(
                f"⟦{one.title}⟧",
                f"⟦{one.text}⟧",
                {
                    task: prose.Task(f"⟦{said.asks}⟧", f"⟦{said.explains}⟧")
                    for task, said in one.tasks.items()
                },
            )
            for key, one in found.sections.items()
        }
        return prose.Prose(f"⟦{found.title}⟧", f"⟦{found.question}⟧", sections)

    monkeypatch.setattr(page, "prose", marked)
    monkeypatch.setattr(heading, "prose", marked)
    at = put(lesson(name, part), **{"learn.numbers": True})
    names = f"{SYMBOLS} {' '.join(SENTENCES.values()).replace('.', '')} {' '.join((*TEXTS, WORD))} Transformer BERT-base LLaMA 7B GPT-3 fish eat"
    assert foreign(at, names) == []
    assert len(seen(at)) > 25


def test_an_indonesian_page_writes_its_numbers_and_words_so():
    at = lesson("six_steps", "one", lang="id")
    assert "2,54 dari 2,58 bit" in said(at)
    assert "kucing" in said(at)
    assert at.query_params["lang"] == "id"
    spec = json.loads(at.get("plotly_chart")[0].proto.spec)
    assert spec["layout"]["separators"] == ",."
    assert "0,220" in texts_of(at)


ODD = ["-1", "99999", "٣;;1,2;x", "nan," * 6]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: value[:8] or "empty")
@pytest.mark.parametrize(("name", "part"), [("by_hand", "two-heads"), ("by_hand", "module"), ("shapes", "shapes"), ("six_steps", "mix"), ("six_steps", "two-layers"), ("variations", "scale"), ("questions", "questions")])  # fmt: skip
def test_odd_links_leave_the_page_alive(name, part, odd):
    link = dict.fromkeys(keys.LINKS[name], odd)
    at = lesson(name, **(link | {"part": part}))
    assert len(at.get("plotly_chart")) > 0 or part == "two-layers" or len(at.info) == 1


def test_states_with_numbers_too_large_are_refused_in_a_sentence():
    at = lesson("by_hand", states=";".join(["1e9,0,0,0,0,0"] + ["0,0,0,0,0,0"] * 2))
    assert "Row 0, column 0 holds 1000000000.0." in at.info[0].value


def test_the_title_stands_before_the_heavy_libraries_are_loaded():
    code = "import sys, dashboard.learn.heading; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
