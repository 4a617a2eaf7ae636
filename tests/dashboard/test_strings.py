"""The language of the pages: nothing visible escapes `_`, and two sessions may speak two languages."""

from __future__ import annotations

import ast
import json
import re
import string
from collections.abc import Iterator

import pytest
from babel.messages.pofile import read_po
from streamlit.testing.v1 import AppTest

from analysis.messages import Message
from dashboard import jobs, keys, measuring, text
from dashboard.corpus import corpus
from dashboard.examples import EXAMPLES
from dashboard.naming import number
from dashboard.sidebar import PRESETS
from dashboard.text import escape, say, say_markdown
from tests.conftest import ROOT
from tests.dashboard.catalogue import messages, sentences
from tests.dashboard.test_heads import (
    _all_results_stay,
    fetch,
    few_sequences,
    open_heads,
    paste,
    settled,
    slow,
    start,
    upload,
)
from tests.dashboard.test_pages import (
    APP,
    ATTENTION,
    HOME,
    LONG,
    _nothing_opened_before,
    open_page,
    put,
    ran,
    said,
    write,
)
from tests.tiny import save_tiny

# fixtures for this file too
__all__ = ["_all_results_stay", "_nothing_opened_before", "few_sequences", "slow"]

FILES = sorted((ROOT / "dashboard").rglob("*.py"))
# Letters that are no language: names of heads, forms of files, a product, what may be typed into a box.
DATA = re.compile(
    r"L\d+(·H\d+)?|H\d+|\b[AB] → [AB]\b|\b(CSV|JSON|NPZ|HTML|PARQUET|EN|ID)\b|Headroom|"
    r":material/\w+:|</?b>|:gray\[|:small\[|%\{[^}]*\}|</?extra>|google-bert/bert-base-cased|^main$|"
    r"^hf://datasets/owner/name/file\.parquet$"
)
# Fields of a message to the browser that nobody reads.
UNSEEN = {
    "id", "key", "form_id", "component_name", "js_content", "css_content", "html_content", "tag", "element_type",
    "theme", "config", "url", "mime", "type", "selection_mode", "autocomplete", "raw_values", "json", "spec", "value",
    "raw_value", "default_format", "format", "icon", "column_order", "columns", "user_key", "delta_path", "deferred_file_id", "hash", "anchor",
    "page", "page_script_hash", "query_string",
}  # fmt: skip


class Pseudo:
    """A catalogue that marks what went through it."""

    def gettext(self, message: str) -> str:
        return f"⟦{message}⟧"


@pytest.fixture
def pseudo(monkeypatch):
    monkeypatch.setattr(text, "_catalogue", lambda _name: Pseudo())


def strings_of(message: object) -> Iterator[str]:
    """Yield every string in a protobuf message that a person may see."""
    for field, value in message.ListFields():
        if field.name in UNSEEN:
            continue
        values = value if field.is_repeated else [value]
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                continue
            for part in values:
                yield from strings_of(part)
        elif field.type == field.TYPE_STRING:
            yield from values


def strings_in(value: object, names: set[str] | None = None) -> Iterator[str]:
    """Yield the strings of JSON; with ``names``, those under one of these names only."""
    if isinstance(value, str) and names is None:
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from strings_in(part, names)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from strings_in(part, None if names is None or name in names else names)


def component_strings(proto: object) -> Iterator[str]:
    """Yield what a component shows: its label, texts and titles; no colours, no marks."""
    data = json.loads(proto.json or proto.mixed.json)
    yield data["label"]
    for row in data.get("cells", []):
        for _fill, _ink, shown, title, _mark in row:
            yield from (shown, title)
    for shown, _shade, _quiet, title, _starts in data.get("words", []):
        yield from (shown, title)
    for side in ("queries", "keys"):
        for shown, _quiet, title in data.get(side, []):
            yield from (shown, title)
    yield from (name for name, _colour, _packed in data.get("strands", []))
    yield from (data.get(name, "") for name in ("received", "every", "hint"))


def seen(at) -> list[str]:
    """Return every string that the page shows, wherever it hides."""
    found = []
    for root in at._tree.children.values():
        nodes = [root]
        while nodes:
            node = nodes.pop()
            nodes += getattr(node, "children", {}).values()
            proto = getattr(node, "proto", None)
            if proto is None or getattr(node, "type", "") == "html":
                continue
            if hasattr(proto, "ListFields"):
                found += strings_of(proto)
            if getattr(node, "type", "") == "bidi_component":
                found += component_strings(proto)
            if getattr(node, "type", "") == "plotly_chart":
                shown = {"text", "name", "hovertext", "hovertemplate", "ticktext"}
                found += strings_in(json.loads(proto.spec), shown)
    for frame in at.dataframe:
        found += [name for name in frame.value.columns if isinstance(name, str)]
        found += [cell for row in frame.value.to_numpy(object) for cell in row if isinstance(cell, str)]
    return found


def foreign(at, words: str = "") -> list[str]:
    """Return the strings with letters that went through no catalogue and are no data.

    ``words`` are the tokens of the text read, which may stand anywhere.
    """
    sentences = {part for example in EXAMPLES for part in (example.text, example.pair) if part}
    sentences |= {f"{example.text} / {example.pair}" for example in EXAMPLES}
    tokens = {*words.split(), "[CLS]", "[SEP]", "[MASK]", "[UNK]"}
    left = []
    for whole in seen(at):
        plain = whole.replace("\\", "")
        if plain in sentences or plain in PRESETS:
            continue
        bare = plain
        while (inner := re.sub(r"⟦[^⟦⟧]*⟧", " ", bare)) != bare:
            bare = inner
        rest = [word for word in DATA.sub(" ", bare).split() if word.strip("“”*:;,") not in tokens]
        if any(re.search(r"[A-Za-z]", word) for word in rest):
            left.append(whole)
    return left


NONSENSE = "zqxj vwkz zqxj"
PIECES = "z ##q ##x ##j v ##w ##k ##z ##wk ##xj zq vw ##kz"


def test_the_walk_finds_what_is_not_translated():
    """Without the pseudo catalogue nearly all is found: the walk itself is no stub."""
    found = " ".join(foreign(open_page()))
    for part in ("Sentence", "Add a second", "looks most at", "Which head links", "weight of", "key (looked at)",
                 "attention", "Numbers as a table", "Download", "Attention map of", "renormalise", "parameters",
                 "other …", "Words: choose the query", "Model", "[CLS], [SEP] and their like"):  # fmt: skip
        assert part in found


@pytest.mark.usefixtures("pseudo")
def test_home_speaks_through_the_catalogue():
    at = open_page(HOME)
    assert foreign(at, "it animal") == []
    assert len(seen(at)) > 100
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert foreign(at, "it animal") == []


@pytest.mark.usefixtures("pseudo")
@pytest.mark.parametrize("pair", [None, "zqxj vwkz"])
def test_attention_speaks_through_the_catalogue(pair):
    at = write(open_page(), NONSENSE, pair)
    assert foreign(at, f"{NONSENSE} {PIECES}") == []
    for choices in (
        {"view": "heads", "colour": "entropy", "specials": "hide"},
        {"scope": "model", "specials": "renormalise", "attention.table": True},
        {"view": "beside", "units": "pieces", "specials": "keep", "block": "AB"},
    ):
        put(at, **choices)
        assert foreign(at, f"{NONSENSE} {PIECES}") == []
    ran(at.selectbox(key="model.box.en").set_value("toy").run())
    assert foreign(at, NONSENSE) == []


@pytest.mark.usefixtures("pseudo")
@pytest.mark.parametrize(
    "odd",
    ["", "[SEP]", "\u200b", "zqxj [MASK]", "😀", LONG],
    ids=["empty", "special", "none", "flag", "unknown", "cut"],
)
def test_what_is_odd_is_said_through_the_catalogue(odd):
    at = write(open_page(), odd)
    assert foreign(at, odd + " ".join(set(f"{PIECES} {NONSENSE}".split()))) == []
    put(at, specials="hide")
    assert foreign(at, f"{odd} {PIECES} {NONSENSE}") == []


@pytest.mark.usefixtures("pseudo")
def test_models_and_their_errors_are_said_through_the_catalogue(tmp_path):
    at = write(open_page(model="/no/such/folder"), NONSENSE)  # asks
    assert any("This link asks" in line for line in seen(at))
    assert foreign(at, NONSENSE) == []
    folders = [
        str(save_tiny(tmp_path / kind, "bert", kind)) for kind in ("classification", "masked", "questions")
    ]
    for name in (str(tmp_path), "", "nobody/no-such-model", *folders):
        at = write(open_page(), NONSENSE)
        at.selectbox(key="model.box.en").set_value("other").run()
        assert foreign(at, " ".join([NONSENSE, *folders])) == []
        at.text_input(key="model.name").set_value(name)
        next(button for button in at.button if "Open" in button.label).click()
        ran(at.run())
        assert foreign(at, " ".join([NONSENSE, name, *folders])) == []


@pytest.mark.usefixtures("pseudo")
def test_files_speak_through_the_catalogue(monkeypatch):
    monkeypatch.setattr("dashboard.downloads.MOST_ROWS", 10)
    at = write(open_page(), NONSENSE)
    assert "too many for a table" in said(at)
    assert foreign(at, NONSENSE) == []


# Letters of the roles, by which a link names them too; and letters that stand as texts.
LETTERS = "P N S W O C B D"
NONSENSES = ("zqxj vwkz zqxj", "vwkz, zqxj", ("zqxj vwkz", "vwkz zqxj"), "zqxj / vwkz")


def foreign_heads(at) -> list[str]:
    """Return what went through no catalogue on the page Heads, the names along the axes of charts among it."""
    found = foreign(at, f"{NONSENSE} {LETTERS}")
    for chart in at.get("plotly_chart"):
        named = [trace.get("y") for trace in json.loads(chart.proto.spec)["data"]]
        for name in (name for names in named if isinstance(names, list) for name in names):
            if isinstance(name, str) and re.search("[A-Za-z]", DATA.sub("", re.sub(r"⟦[^⟦⟧]*⟧", "", name))):
                found.append(name)
    return found


def test_the_walk_over_heads_finds_what_is_not_translated():
    at = put(open_heads(NONSENSES), **{"heads.table": True, "heads.rules": True})
    found = " ".join(foreign_heads(at))
    for part in ("What is each head for?", "have a clear role", "entropy, share of maximum", "Colour: ", "this head",
                 "Nearest twin", "is most focused on", "Own texts", "Average over", "weight on [CLS]", "sink",
                 "All heads as a table", "The rules of the roles", "95% interval", "Threshold of", "no link carries",
                 "of 71 other heads", "English texts (shipped)", "One text a line", "Hidden, [CLS] and [SEP]",
                 "Normalised entropy", "against all 72 heads", "Back to the written rules", "own sentence"):  # fmt: skip
        assert part in found, part


@pytest.mark.usefixtures("pseudo", "few_sequences")
def test_heads_speaks_through_the_catalogue():
    at = put(open_heads(NONSENSES), **{"heads.table": True, "heads.rules": True})
    assert len(at.dataframe) == 1
    assert foreign_heads(at) == []
    assert len(seen(at)) > 400
    for panel in keys.PANEL.options:
        for measure in ("cls", "distance", "block_ab"):
            put(at, panel=panel, measure=measure, cells="numbers")
            assert len(at.get("plotly_chart")) == 1
            assert foreign_heads(at) == []
    at.session_state["measure"] = "induction"
    settled(ran(at.run()))
    assert foreign_heads(at) == []
    put(at, rules={"C": 0.05, "D": 0.05, "P": 0.05}, measure="induction_back")
    assert foreign_heads(at) == []
    for layer, head in ((0, 0), (2, 7), (5, 11)):
        put(at, layer=layer, head=head, rules={"C": 1.0, "D": 1.0}, panel="head")
        assert foreign_heads(at) == []


@pytest.mark.usefixtures("pseudo")
def test_the_toy_speaks_through_the_catalogue():
    at = open_heads(NONSENSES, model="toy", measure="induction")
    assert len(at.error) == 1
    for panel in keys.PANEL.options:
        put(at, panel=panel, **{"heads.table": True, "heads.rules": True})
        assert foreign_heads(at) == []


@pytest.mark.usefixtures("pseudo")
def test_own_texts_speak_through_the_catalogue():
    at = paste(open_heads(NONSENSES), "")
    assert len(at.error) == 1
    assert foreign_heads(at) == []
    paste(at, "zqxj\nvwkz")
    assert at.selectbox(key="texts.en").options[2] == "⟦⟦pasted⟧ (2 texts)⟧"
    assert foreign_heads(at) == []
    paste(at, "\u200b")
    assert len(at.error) == 1
    assert foreign_heads(at) == []
    upload(paste(at, "zqxj"), "1.txt", b"\xff\xfe")
    assert len(at.error) == 1
    assert [line for line in foreign_heads(at) if "1.txt" not in line] == []
    upload(at, "1.csv", b"1,2\n3,4\n")
    assert [line for line in foreign_heads(at) if "1.txt" not in line] == []
    fetch(at, "https://1.csv", "1")
    assert len(at.error) == 1
    assert [line for line in foreign_heads(at) if "1.csv" not in line] == []


@pytest.mark.usefixtures("pseudo")
def test_work_under_way_speaks_through_the_catalogue(slow):
    at = start((*NONSENSES, "zqxj"))
    assert slow.begun.wait(60)
    ran(at.run())
    assert foreign_heads(at) == []
    at.session_state["texts.own"] = own = corpus("", ["zqxj vwkz", "vwkz"])
    ran(at.run())
    assert foreign_heads(at) == []
    slow.error = ValueError("secret")
    slow.opened.set()
    settled(at)
    assert len(at.error) == 1
    assert foreign_heads(at) == []
    jobs.find(measuring.statistics_key("bundled", own, "keep", "queries")).state = "cancelled"
    ran(at.run())
    assert len(at.info) == 1
    assert foreign_heads(at) == []


# Two languages

PO = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "Attention"
msgstr "Atensi"

msgid "What does this head do with my sentence?"
msgstr "Apa yang dilakukan head ini?"

msgid "looks at the previous word for {count} of {all} words"
msgstr "dari {all} kata, {count} melihat kata sebelumnya"

msgid "map"
msgstr "peta"

msgid "There is no text to read. Type a sentence."
msgstr "Tidak ada teks."

msgid "They differ at {query}"
msgstr "Beda pada {query}"
"""


@pytest.fixture
def indonesian(tmp_path, monkeypatch):
    """A folder of catalogues with one small one in it."""
    (tmp_path / "id.po").write_text(PO, encoding="utf-8")
    monkeypatch.setattr(text, "LOCALE", tmp_path)
    text._catalogue.cache_clear()
    yield
    text._catalogue.cache_clear()


@pytest.mark.usefixtures("indonesian")
def test_two_sessions_speak_their_own_languages():
    english, other = open_page(), open_page(lang="id")
    for _ in range(2):
        assert english.subheader[0].value.startswith("Attention :")
        assert other.subheader[0].value.startswith("Atensi :")
        assert "Apa yang dilakukan head ini?" in other.subheader[0].value
        ran(english.run())
        ran(other.run())
    assert other.query_params["lang"] == "id"
    assert "lang" not in english.query_params
    write(other, "")
    write(english, "")
    assert other.info[0].value == "Tidak ada teks."
    assert english.info[0].value == "There is no text to read. Type a sentence."


@pytest.mark.usefixtures("indonesian")
def test_the_language_changes_and_all_else_stays():
    at = put(write(open_page(), "my own words"), layer=2, head=6, view="beside", units="pieces")
    ran(next(e for e in at.get("button_group") if e.key == "language.box").set_value("id").run())
    assert at.subheader[0].value.startswith("Atensi :")
    view = next(e for e in at.get("button_group") if e.key == "view.id")
    assert "peta" in [option.content for option in view.proto.options]
    assert view.value == "beside"
    assert len(at.get("plotly_chart")) == 3
    assert "**L2·H6**" in said(at)
    assert at.session_state["text"] == "my own words"
    ran(next(e for e in at.get("button_group") if e.key == "language.box").set_value("en").run())
    assert at.subheader[0].value.startswith("Attention :")
    assert "lang" not in at.query_params
    assert at.session_state["view"] == "beside"


@pytest.mark.usefixtures("indonesian")
@pytest.mark.parametrize(
    ("locale", "link", "name"),
    [
        ("id-ID", {}, "Atensi"),
        ("id", {}, "Atensi"),
        ("fr-FR", {}, "Attention"),
        ("id-ID", {"lang": "en"}, "Attention"),
        ("en-US", {"lang": "id"}, "Atensi"),
    ],
)
def test_the_browser_names_the_language_where_nobody_chose(locale, link, name):
    at = AppTest.from_file(APP, default_timeout=60)
    at.context = {"locale": locale}
    at.query_params.update(link)
    at.switch_page(ATTENTION)
    for _run in range(2):
        assert ran(at.run()).subheader[0].value.startswith(f"{name} :")


@pytest.mark.usefixtures("indonesian")
def test_only_languages_with_a_catalogue_are_offered(tmp_path):
    assert text.languages() == ["en", "id"]
    (tmp_path / "id.po").unlink()
    text._catalogues.cache_clear()
    assert text.languages() == ["en"]
    assert not [e for e in open_page().get("button_group") if e.key == "language.box"]


@pytest.mark.usefixtures("indonesian")
def test_values_are_filled_in_after_the_translation(monkeypatch):
    message = Message("looks at the previous word for {count} of {all} words", {"count": 3, "all": 7})
    monkeypatch.setattr(text, "language", lambda: "id")
    assert say(message) == "dari 7 kata, 3 melihat kata sebelumnya"
    assert say_markdown(message) == "dari 7 kata, 3 melihat kata sebelumnya"
    assert say(Message("not in the catalogue: {n:.2f}", {"n": 1.0})) == "not in the catalogue: 1,00"
    monkeypatch.setattr(text, "language", lambda: "en")
    assert say(message) == "looks at the previous word for 3 of 7 words"


@pytest.mark.parametrize("sign", [*"*_<>$`[]()#|~!\\:{}^=+-."])
def test_a_value_keeps_its_signs_literally(sign):
    shown = say_markdown(Message("They differ at {query}", {"query": f"a{sign}b{sign}"}))
    assert shown == f"They differ at a\\{sign}b\\{sign}"
    assert say(Message("They differ at {query}", {"query": f"a{sign}b"})) == f"They differ at a{sign}b"


def test_markdown_of_a_value_does_nothing():
    assert escape(":smile:") == "\\:smile\\:"
    assert escape("**x** [a](http://b)") == "\\*\\*x\\*\\* \\[a\\]\\(http\\:\\/\\/b\\)"
    assert escape("kata café 你好 1") == "kata café 你好 1"
    shown = say_markdown(Message("{a} {n:.1f}", {"a": "{n}", "n": 2.0}))
    assert shown == "\\{n\\} 2.0"


# The sources


def fields_of(template: str) -> set[str]:
    """Return the names of a template's placeholders."""
    return {
        name.split(".")[0].split("[")[0]
        for _, name, _, _ in string.Formatter().parse(template)
        if name is not None
    }


def calls(path) -> Iterator[ast.Call]:
    """Yield every call in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def is_underscore(node: ast.AST) -> bool:
    """Whether a call is one of ``_``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_"


@pytest.mark.parametrize("path", sorted((ROOT / "analysis").glob("*.py")), ids=lambda path: path.stem)
def test_a_message_fills_exactly_its_placeholders(path):
    """Of each ``message(...)`` and each error: the template is a literal and its values fit it."""
    for call in calls(path):
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        if name not in ("message", "ModelError", "TextError", "OptionError", "HeadroomError"):
            continue
        if path.stem == "messages":
            continue
        where = f"{path.name}:{call.lineno}"
        assert isinstance(call.args[0], ast.Constant), where
        given = {keyword.arg for keyword in call.keywords}
        if None in given:  # **values: what is written out must be there, the rest cannot be seen
            assert given - {None} <= fields_of(call.args[0].value), where
        else:
            assert given == fields_of(call.args[0].value), where


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_underscore_takes_a_literal_and_format_fills_it(path):
    """Else no tool could collect the sentences, and a value missing would show on the page only."""
    for call in calls(path):
        where = f"{path.name}:{call.lineno}"
        if is_underscore(call) and path.name != "text.py":
            assert len(call.args) == 1, where
            assert isinstance(call.args[0], ast.Constant), where
            assert isinstance(call.args[0].value, str), where
        formats = isinstance(call.func, ast.Attribute) and call.func.attr == "format"
        if formats and is_underscore(call.func.value) and path.name != "text.py":
            given = {keyword.arg for keyword in call.keywords}
            assert given == fields_of(call.func.value.args[0].value), where


NOT_SHOWN = {
    "key", "width", "height", "icon", "mime", "type", "on_change", "on_click", "on_select", "selection_mode", "url_path",
    "gap", "vertical_alignment", "horizontal_alignment", "autocomplete", "layout", "page_icon", "file_name", "css", "js",
    "bind", "format", "border", "show_spinner", "html", "placeholder", "config", "label_visibility", "default",
    "language", "page", "icon_position", "args", "query_params",
}  # fmt: skip
NO_DISPLAY = {
    "form",
    "Page",
    "html",
    "switch_page",
    "component",
    "cache_data",
    "cache_resource",
    "set_page_config",
}


def literals(node: ast.AST) -> Iterator[str]:
    """Yield the string literals of an expression that no function has been given to."""
    if isinstance(node, ast.Call | ast.Lambda):
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    if isinstance(node, ast.Subscript):  # the name of a key
        node = node.value
    for child in ast.iter_child_nodes(node):
        yield from literals(child)


def shown_literals(path) -> list[str]:
    """Return the literals with letters that a file hands to a function of Streamlit that draws."""
    found = []
    for call in calls(path):
        names = []
        node = call.func
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        is_chart = isinstance(node, ast.Name) and node.id == "chart" and not names
        is_drawn = isinstance(node, ast.Name) and node.id == "st" and len(names) == 1
        if not is_chart and (not is_drawn or names[0] in NO_DISPLAY):
            continue
        given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg not in NOT_SHOWN)]
        for literal in (literal for value in given for literal in literals(value)):
            if re.search(r"[A-Za-z]", DATA.sub("", literal)):
                found.append(f"{path.name}:{call.lineno}: {literal}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_literal_is_drawn(path):
    assert shown_literals(path) == []


def test_a_drawn_literal_would_be_found(tmp_path):
    path = tmp_path / "page.py"
    path.write_text(
        'st.markdown("Hello")\nst.button(label=f"Go {x}")\nst.caption(_("fine"))\nst.info("a" if x else _("b"))\n'
        'chart(f, alt="Map", key="map")\nst.markdown(f"**{x}**")\n',
        encoding="utf-8",
    )
    assert [line.split(": ")[1].strip() for line in shown_literals(path)] == ["Hello", "Go", "a", "Map"]


CATALOGUES = sorted((ROOT / "dashboard" / "locale").glob("*.po"))


def test_there_is_an_indonesian_catalogue():
    assert "id" in [path.stem for path in CATALOGUES]


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.stem)
def test_a_translation_keeps_the_placeholders(path):
    with open(path, "rb") as file:
        catalogue = read_po(file, locale=path.stem)
    wrong = [m.id for m in catalogue if m.id and m.string and fields_of(m.id) != fields_of(m.string)]
    assert wrong == []


@pytest.mark.parametrize("path", CATALOGUES, ids=lambda path: path.stem)
def test_every_sentence_has_a_translation_and_no_other_has(path):
    with open(path, "rb") as file:
        catalogue = read_po(file, locale=path.stem)
    there = {m.id for m in catalogue if m.id and m.string and not m.fuzzy}
    assert sorted(set(messages()) - there) == []
    assert sorted(there - set(messages())) == []


def test_a_translation_that_is_missing_would_be_found(tmp_path):
    path = tmp_path / "page.py"
    path.write_text('st.write(_("A sentence that no catalogue has"))\n', encoding="utf-8")
    assert [text for text, _line in sentences(path)] == ["A sentence that no catalogue has"]


def test_numbers_are_written_as_the_language_writes_them(monkeypatch):
    monkeypatch.setattr(text, "language", lambda: "id")
    said = text._("{a:,.2f} of {b:,}, {c:.0%} of {d}, L5·H8")
    assert said.format(a=1234.5, b=10_000, c=0.25, d="3.5") == "1.234,50 of 10.000, 25% of 3.5, L5·H8"
    assert text.decimals(0.125, 3) == "0,125"
    assert number(-1234.5) == "−1.234"
    assert text.separators("id") == ",."
    monkeypatch.setattr(text, "language", lambda: "en")
    assert text._("{a:,.2f}").format(a=1234.5) == "1,234.50"
    assert text.separators("en") == ".,"
