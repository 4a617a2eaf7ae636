"""Numbers into pictures: nothing lost, nothing read as markup, the same colours everywhere."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest

from analysis.maps import AttentionMaps, Head, pool
from analysis.tokens import Tokens
from dashboard import downloads, pictures
from dashboard.colours import (
    attention_scale,
    attention_stops,
    colour,
    difference_scale,
    difference_stops,
    ink,
)
from dashboard.downloads import to_html
from dashboard.figures import MOST_TICKS, difference_map, head_map
from dashboard.tiles import all_heads

REPEATED = ["the", "cat", "and", "the", "dog", "and", "the", "bird"]
MARKUP = ["<s>", "</s>", "<b>x</b>", "&amp;", "</script>", '"', "'", "%{x}", "$y$", "<br>", "{0}"]


def tokens_of(labels: list[str]) -> Tokens:
    """Return tokens with these labels, none of them special."""
    n = len(labels)
    return Tokens(
        ids=np.arange(n),
        labels=tuple(labels),
        spans=np.zeros((n, 2), dtype=np.int64),
        special=np.zeros(n, dtype=bool),
        segment=np.zeros(n, dtype=np.int64),
        word=np.arange(n),
        texts=(" ".join(labels),),
    )


def maps_of(
    queries: list[str], keys: list[str] | None = None, *, layers: int = 1, heads: int = 1, seed: int = 0
):
    """Return random maps whose rows sum to 1."""
    keys = queries if keys is None else keys
    scores = np.random.default_rng(seed).exponential(size=(layers, heads, len(queries), len(keys))) ** 3
    weights = (scores / scores.sum(axis=-1, keepdims=True)).astype(np.float32)
    return AttentionMaps(tokens_of(queries), tokens_of(keys), weights, "a model")


def many(n: int) -> list[str]:
    """Return n tokens, all equal."""
    return ["word"] * n


def traces(figure: go.Figure, kind: type) -> list:
    """Return the figure's traces of one kind."""
    return [trace for trace in figure.data if isinstance(trace, kind)]


def markers(figure: go.Figure) -> list:
    """Return the traces that can be clicked."""
    return [trace for trace in traces(figure, go.Scatter) if list(trace.x) != [None]]


def rgb(text: str) -> np.ndarray:
    """Return the three parts of ``rgb(r, g, b)`` or ``#rrggbb``."""
    if text.startswith("#"):
        return np.array([int(text[i : i + 2], 16) for i in (1, 3, 5)], dtype=float)
    return np.array([float(part) for part in re.findall(r"[\d.]+", text)[:3]])


def at(stops: list, share: float) -> np.ndarray:
    """Return the colour that Plotly draws at ``share`` of a scale: a straight line between two stops."""
    for (low, first), (high, second) in pairwise(stops):
        if low <= share <= high:
            part = 0.0 if high == low else (share - low) / (high - low)
            return rgb(first) * (1 - part) + rgb(second) * part
    raise AssertionError(f"{share} is outside the scale")


def contrast(first: str, second: str) -> float:
    """Return the contrast of two colours, 1 to 21 (WCAG 2.2)."""

    def light(text: str) -> float:
        parts = rgb(text) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((light(first), light(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


# One head


@pytest.mark.parametrize(
    ("queries", "keys"),
    [(REPEATED, None), (["one"], None), (REPEATED, ["a", "b", "a"]), (["x"], REPEATED), (MARKUP, None)],
)
def test_every_row_and_column_is_there(queries, keys):
    one = maps_of(queries, keys)
    figure = head_map(one)
    (heat,) = traces(figure, go.Heatmap)
    z = np.asarray(heat.z)
    assert z.dtype == np.float32
    np.testing.assert_array_equal(z, one.weights[0, 0])
    assert (len(set(heat.y)), len(set(heat.x))) == one.weights.shape[2:]
    assert list(figure.layout.xaxis.categoryarray) == list(heat.x)
    assert list(figure.layout.yaxis.categoryarray) == list(heat.y)
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "category"
    assert len(figure.layout.xaxis.ticktext) == len(one.keys)
    assert len(figure.layout.yaxis.ticktext) == len(one.queries)
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]  # the first query is on top


def test_the_ranges_are_fixed():
    pale = maps_of(many(20))
    (heat,) = traces(head_map(pale), go.Heatmap)
    assert (heat.zmin, heat.zmax) == (0, 1)
    (heat,) = traces(difference_map(pale, maps_of(many(20), seed=1)), go.Heatmap)
    assert (heat.zmin, heat.zmax) == (-1, 1)


def test_a_difference_is_the_first_minus_the_second():
    first, second = maps_of(REPEATED, seed=1), maps_of(REPEATED, seed=2)
    (heat,) = traces(difference_map(first, second), go.Heatmap)
    np.testing.assert_array_equal(np.asarray(heat.z), first.weights[0, 0] - second.weights[0, 0])
    assert len(set(heat.x)) == len(set(heat.y)) == len(REPEATED)


def test_tokens_are_no_markup():
    figure = head_map(maps_of(MARKUP))
    shown = [
        *figure.layout.xaxis.ticktext,
        *figure.layout.yaxis.ticktext,
        *traces(figure, go.Heatmap)[0].x,
        *markers(figure)[0].x,
        *markers(figure)[0].y,
    ]
    assert not [text for text in shown if "<" in text or ">" in text]
    assert "&lt;s&gt;" in figure.layout.xaxis.ticktext
    assert "&amp;amp;" in figure.layout.yaxis.ticktext
    assert [name.split(" ", 1)[1] for name in traces(figure, go.Heatmap)[0].x][3] == "&amp;amp;"
    long = head_map(maps_of(["<" * 40, "b"])).layout.xaxis.ticktext[0]
    assert long == "&lt;" * 13 + "…"  # cut before it is escaped


def test_the_chosen_cell_and_row_are_outlined():
    one = maps_of(REPEATED, ["a", "b", "c"])
    row, cell = head_map(one, query=4, key=2).layout.shapes
    assert (row.x0, row.x1, row.y0, row.y1) == (-0.5, 2.5, 3.5, 4.5)
    assert (cell.x0, cell.x1, cell.y0, cell.y1) == (1.5, 2.5, 3.5, 4.5)
    assert len(head_map(one, query=0).layout.shapes) == 1
    assert len(head_map(one, query=0, key=0).layout.shapes) == 2
    assert len(head_map(one).layout.shapes) == 0


def test_every_cell_can_be_clicked_and_is_numbered_row_by_row():
    one = maps_of(REPEATED, ["a", "b", "a"])
    figure = head_map(one)
    (points,), (heat,) = markers(figure), traces(figure, go.Heatmap)
    cells = [(query, key) for query in range(len(one.queries)) for key in range(len(one.keys))]
    for (query, key), weight, x, y in zip(cells, points.customdata, points.x, points.y, strict=True):
        assert (y, x) == (heat.y[query], heat.x[key])
        assert weight == one.weights[0, 0, query, key]
    assert points.marker.opacity == 0
    assert points.hoverinfo is None  # "skip" would take the clicks with it


@pytest.mark.parametrize(("rows", "columns", "there"), [(40, 40, 1), (41, 40, 0), (1600, 1, 1), (1601, 1, 0)])
def test_a_large_map_has_no_points_to_click(rows, columns, there):
    assert len(markers(head_map(maps_of(many(rows), many(columns))))) == there


def test_a_long_text_has_few_ticks_and_a_light_message():
    one = maps_of(many(512))
    figure = head_map(one, query=511, key=0)
    assert len(figure.layout.xaxis.ticktext) <= MOST_TICKS
    assert len(figure.layout.xaxis.tickvals) == len(figure.layout.xaxis.ticktext)
    np.testing.assert_array_equal(np.asarray(traces(figure, go.Heatmap)[0].z), one.weights[0, 0])
    assert len(figure.to_json()) < 3_000_000
    assert len(difference_map(one, one).to_json()) < 3_000_000


def test_nothing_left_to_draw_is_drawn():
    empty = maps_of(["a"], ["a"])
    empty = AttentionMaps(tokens_of([]), tokens_of(["a"]), empty.weights[:, :, :0], "a model")
    for figure in (head_map(empty), difference_map(empty, empty)):
        assert np.asarray(traces(figure, go.Heatmap)[0].z).size == 0
        assert markers(figure) == []
        figure.to_json()


# All heads


def tiles_of(layers: int, heads: int, n: int, m: int, seed: int = 0) -> np.ndarray:
    """Return random small maps [layer, head, query, key], 0 to 254."""
    values = np.random.default_rng(seed).integers(0, 255, size=(layers, heads, n, m))
    return values.astype(np.uint8)


def of_model(layers: int, heads: int) -> list[list[Head]]:
    """Return the names of all heads, a row a layer."""
    return [[Head(layer, head) for head in range(heads)] for layer in range(layers)]


def of_layer(layer: int, heads: int, across: int) -> list[list[Head]]:
    """Return the names of one layer's heads, ``across`` in a row."""
    return [[Head(layer, i) for i in range(s, s + across)] for s in range(0, heads, across)]


NAMES = {
    "model": of_model(3, 4),
    "one head": of_model(1, 1),
    "24 x 16": of_model(24, 16),
    "layer in rows": of_layer(5, 12, 6),
    "layer in one row": of_layer(2, 4, 4),
    "layer in one column": of_layer(1, 7, 1),
}


@pytest.mark.parametrize(("n", "m"), [(9, 9), (1, 1), (3, 8)])
@pytest.mark.parametrize("name", NAMES)
def test_a_tile_lands_where_its_head_is_named(name, n, m):
    names = NAMES[name]
    tiles = tiles_of(len(names), len(names[0]), n, m)
    notes = [[f"note <{head}>" for head in row] for row in names]
    chosen = names[-1][-1]
    figure = all_heads(tiles, names, notes, chosen)
    (heat,) = traces(figure, go.Heatmap)
    picture = np.asarray(heat.z)
    assert picture.dtype == np.uint8
    assert (heat.zmin, heat.zmax) == (0, 255)
    (points,) = markers(figure)
    flat = [(head, tiles[r, c], notes[r][c]) for r, row in enumerate(names) for c, head in enumerate(row)]
    drawn = np.zeros(picture.shape, dtype=bool)
    for i, (head, tile, note) in enumerate(flat):
        top, left = round(points.y[i] - (n - 1) / 2), round(points.x[i] - (m - 1) / 2)
        assert str(head) in note
        assert points.hovertext[i] == note.replace("<", "&lt;").replace(">", "&gt;")
        np.testing.assert_array_equal(picture[top : top + n, left : left + m], tile)
        assert not drawn[top : top + n, left : left + m].any()
        drawn[top : top + n, left : left + m] = True
    assert (picture[~drawn] == 255).all()
    (outline,) = figure.layout.shapes
    assert outline.x0 < points.x[-1] < outline.x1
    assert outline.y0 < points.y[-1] < outline.y1
    assert outline.x1 - outline.x0 < m + 1


@pytest.mark.parametrize("name", NAMES)
def test_every_small_map_is_named(name):
    names = NAMES[name]
    tiles = tiles_of(len(names), len(names[0]), 5, 5)
    figure = all_heads(tiles, names, [[str(head) for head in row] for row in names], names[0][0])
    (points,) = markers(figure)
    for i, head in enumerate(head for row in names for head in row):
        if figure.layout.annotations:
            note = figure.layout.annotations[i]
            assert (note.text, note.x) == (str(head), points.x[i])
            assert note.y < points.y[i]
        else:
            columns = dict(zip(figure.layout.xaxis.tickvals, figure.layout.xaxis.ticktext, strict=True))
            rows = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
            assert (rows[points.y[i]], columns[points.x[i]]) == (f"L{head.layer}", f"H{head.index}")


def test_the_gutter_is_no_colour_and_the_largest_weight_is():
    figure = all_heads(tiles_of(2, 2, 4, 4), of_model(2, 2), [["", ""]] * 2, Head(0, 0))
    scale = traces(figure, go.Heatmap)[0].colorscale
    assert scale[-1] == (1.0, "rgba(0,0,0,0)")
    solid = [stop for stop in scale if "rgba" not in stop[1]]
    assert solid[-1][0] == pytest.approx(254 / 255)
    assert solid[-1][0] < min(share for share, shade in scale if "rgba" in shade) < 1.0
    for value in (0, 60, 127, 254):
        np.testing.assert_allclose(at(solid, value / 255), rgb(colour("Viridis", value / 254)), atol=6)


def test_many_heads_of_a_long_text_are_a_light_message():
    weights = np.random.default_rng(0).random((12, 12, 48, 48))
    tiles = np.rint(np.sqrt(weights) * 254).astype(np.uint8)
    names = of_model(12, 12)
    figure = all_heads(tiles, names, [[str(head) for head in row] for row in names], Head(11, 0))
    assert len(figure.to_json()) < 2_000_000


def test_pooling_keeps_a_single_strong_link():
    weights = np.zeros((1, 1, 512, 512), dtype=np.float32)
    weights[0, 0, 300, 17] = 0.9
    small = pool(weights, 48)
    assert small.shape == (1, 1, 48, 48)
    assert (small > 0).sum() == 1
    assert small.max() == np.float32(0.9)


# Colours


@pytest.mark.parametrize("name", ["Viridis", "RdBu"])
def test_ink_can_be_read_on_every_colour(name):
    assert min(contrast(ink(fill), fill) for fill in (colour(name, i / 1000) for i in range(1001))) >= 4.5


def test_the_bent_scale_gives_a_weight_the_colour_of_its_root():
    stops = attention_scale()
    assert [stops[0][0], stops[-1][0]] == [0, 1]
    assert [share for share, _ in stops] == sorted({share for share, _ in stops})
    for weight in np.linspace(0, 1, 501):
        np.testing.assert_allclose(at(stops, weight), rgb(colour("Viridis", math.sqrt(weight))), atol=4)
    assert np.abs(at(stops, 0.1) - rgb(colour("Viridis", 0.1))).max() > 20  # it is bent


def test_the_scale_of_differences_is_bent_around_nothing():
    stops = difference_scale()
    assert [stops[0][0], stops[-1][0]] == [0, 1]
    assert [share for share, _ in stops] == sorted({share for share, _ in stops})
    for value in np.linspace(-1, 1, 401):
        root = math.copysign(math.sqrt(abs(value)), value)
        np.testing.assert_allclose(at(stops, (value + 1) / 2), rgb(colour("RdBu", (root + 1) / 2)), atol=8)
    red, blue = at(stops, 0.2), at(stops, 0.8)
    assert red[0] > red[2]  # less is red
    assert blue[2] > blue[0]  # more is blue
    assert at(stops, 0.5).min() > 230  # nothing is nearly white


@pytest.mark.parametrize(
    ("draw", "stops", "name"),
    [
        (lambda one: head_map(one), attention_stops(), "Viridis"),
        (lambda one: difference_map(one, one), difference_stops(), "RdBu"),
    ],
)
def test_the_bar_stands_for_the_colours_of_the_map(draw, stops, name):
    """A tick lies where the bar has the colour that the map gives to the tick's number."""
    figure = draw(maps_of(REPEATED))
    bar = next(trace for trace in traces(figure, go.Scatter) if trace.marker.showscale)
    scale = list(traces(figure, go.Heatmap)[0].colorscale)
    low, high = bar.marker.cmin, bar.marker.cmax
    assert list(bar.marker.colorscale) == [(share, shade) for share, shade in stops]
    for place, text in zip(bar.marker.colorbar.tickvals, bar.marker.colorbar.ticktext, strict=True):
        value = float(text.replace("−", "-"))
        on_bar = at(list(bar.marker.colorscale), (place - low) / (high - low))
        np.testing.assert_allclose(on_bar, at(scale, (value - low) / (high - low)), atol=10)
    assert name in ("Viridis", "RdBu")


@pytest.mark.parametrize("name", ["Viridis", "RdBu"])
def test_shares_outside_the_scale_take_its_ends(name):
    assert colour(name, -0.5) == colour(name, 0.0)
    assert colour(name, 1.0000001) == colour(name, 1.0)


def test_figures_are_deterministic():
    one, other = maps_of(REPEATED), maps_of(REPEATED, seed=3)
    names, tiles = of_model(2, 3), tiles_of(2, 3, 8, 8)
    for draw in (
        lambda: head_map(one, query=1, key=2),
        lambda: difference_map(one, other),
        lambda: all_heads(tiles, names, [["a"] * 3] * 2, Head(1, 1)),
    ):
        before = one.weights.tobytes()
        assert draw().to_json() == draw().to_json()
        assert one.weights.tobytes() == before


# Files


class Page(HTMLParser):
    """What a browser makes of a page: its elements and the text outside of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict]] = []
        self.words = ""
        self.open = ""

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open = tag

    def handle_endtag(self, tag):
        self.open = ""

    def handle_data(self, data):
        if self.open not in ("script", "style"):
            self.words += data


def test_the_html_needs_no_network_and_no_cloud():
    one = maps_of(MARKUP)
    name = 'a <b>model</b> & "more" </title>'
    page = to_html(
        [("L0·H0 <b>", head_map(one, query=1, key=2)), ("−", difference_map(one, one))], name
    ).decode("utf-8")
    assert len(re.findall(r"plotly\.js v\d", page)) == 1  # the library once, for two figures
    assert len(re.findall(r"Plotly\.newPlot\(", page)) >= 2
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", page[:2000] + page[-200_000:])
    parsed = Page()
    parsed.feed(page)
    assert [
        attrs for tag, attrs in parsed.elements if tag in ("link", "iframe", "img") or "src" in attrs
    ] == []
    assert [tag for tag, _ in parsed.elements].count("b") == 0
    assert parsed.words.count(name) == 2  # the title and the heading, literally
    assert '"showSendToCloud": false' in page
    assert not re.search(r'"?showSendToCloud"?\s*:\s*(true|!0)\s*[,}]', page[-200_000:])
    assert page.index("<script") < page.index("</script>")
    assert parsed.words.split() == f"{name}{name}L0·H0 <b> −".split()  # no token closed a script early


def test_the_html_does_not_change_the_figure_on_the_page():
    figure = head_map(maps_of(REPEATED))
    before = figure.to_json()
    to_html([("L0·H0", figure)], "x")
    assert figure.to_json() == before


@pytest.fixture
def files(monkeypatch):
    """Return a function that offers the files of maps and returns them: {(name, suffix): builder}."""

    def offer(every: AttentionMaps, head: Head) -> dict:
        found = {}
        monkeypatch.setattr(
            downloads, "file_button", lambda suffix, data, name: found.setdefault(name + suffix, data)
        )
        one = every.at(head)
        downloads.attention_menu([one], every, [(str(head), head_map(one))])
        return found

    return offer


def test_every_file_can_be_read_back(files):
    labels = [*REPEATED, "<s>", 'a "b", c', "😀"]
    every = maps_of(labels, layers=2, heads=3)
    built = {name: data() for name, data in files(every, Head(1, 2)).items()}
    assert sorted(built) == sorted(
        [f"attention-a-model-L1-H2{suffix}" for suffix in (".csv", ".json", ".npz", ".html")]
        + [f"attention-a-model-all{suffix}" for suffix in (".csv", ".json", ".npz")]
    )
    for part, weights, first in (("L1-H2", every.weights[1:, 2:], (1, 2)), ("all", every.weights, (0, 0))):
        name = f"attention-a-model-{part}"
        with np.load(io.BytesIO(built[name + ".npz"]), allow_pickle=False) as data:
            np.testing.assert_array_equal(data["weights"], weights)
            assert data["tokens"].tolist() == labels
        rows = list(csv.DictReader(io.StringIO(built[name + ".csv"].decode("utf-8"))))
        assert len(rows) == weights.size
        assert (int(rows[0]["layer"]), int(rows[0]["head"])) == first
        np.testing.assert_array_equal(np.array([row["weight"] for row in rows], np.float32), weights.ravel())
        assert rows[9]["key_token"] == labels[9]
        data = json.loads(built[name + ".json"])
        assert [token["token"] for token in data["tokens"]] == labels
        np.testing.assert_allclose([row["weight"] for row in data["rows"]], weights.ravel(), atol=1e-8)
        assert (data["rows"][0]["layer"], data["rows"][0]["head"]) == first
    assert b"Plotly.newPlot" in built["attention-a-model-L1-H2.html"]


def test_too_many_weights_are_offered_as_npz_only(files, monkeypatch):
    every = maps_of(REPEATED, layers=2, heads=3)
    monkeypatch.setattr(downloads, "MOST_ROWS", every.weights.size)
    assert sum("all" in name for name in files(every, Head(0, 0))) == 3
    monkeypatch.setattr(downloads, "MOST_ROWS", every.weights.size - 1)
    assert [name for name in files(every, Head(0, 0)) if "all" in name] == ["attention-a-model-all.npz"]


@pytest.mark.parametrize("source", ["a/b c", "../../etc/passwd", "/home/me/x", 'a"b<c>'])
def test_a_file_name_holds_no_path(source, files):
    every = maps_of(REPEATED)
    every = AttentionMaps(every.queries, every.keys, every.weights, source)
    for name in files(every, Head(0, 0)):
        assert re.fullmatch(r"attention-[\w.-]+", name)
        assert "/" not in name


@pytest.mark.parametrize(
    ("heads", "across"),
    [(1, 1), (2, 2), (4, 4), (7, 7), (8, 4), (10, 5), (11, 11), (12, 6), (14, 14), (16, 4)],
)
def test_the_heads_of_a_layer_fill_their_rows(heads, across):
    assert pictures._even_split(heads) == across
