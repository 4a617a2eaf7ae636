"""A Learn page as one HTML file: all its steps with their figures, for a classroom without a network, or to print."""

from __future__ import annotations

import html

import pandas as pd
import plotly.graph_objects as go
from markdown_it import MarkdownIt

from dashboard.downloads import EXPORT_CONFIG
from dashboard.learn.lesson import Page, Shown, Step, look
from dashboard.learn.prose import Prose, Section, further
from dashboard.learn.source import code_of
from dashboard.text import _, say_markdown, separators, written

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
pre { background: #f3f4f6; padding: 1rem; overflow-x: auto; font-size: .85rem; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .9rem; }
td, th { border: 1px solid #c6cad0; padding: .15rem .5rem; text-align: right; }
figure { margin: 1rem 0; }
figcaption { font-weight: 600; }
@media print { section { break-before: page; } pre { white-space: pre-wrap; } details { display: block; } }
"""
MARKDOWN = MarkdownIt("commonmark", {"html": False})
ICONS = {":material/check_circle:": "✓", ":material/cancel:": "✗"}


def to_file(page: Page, words: Prose, language: str) -> bytes:
    """Return a page as its HTML file, with the steps as the session has them set."""
    sections, first = [], True
    for step in page.steps:
        section, drew = _section(step, words.sections[step.name], language, first)
        sections.append(section)
        first = first and not drew
    for name in further(page, words):
        said = words.sections[name]
        sections.append(f"<section><h2>{html.escape(said.title)}</h2>{MARKDOWN.render(said.text)}</section>")
    return (
        f'<!doctype html><html lang="{language}"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(words.title)} · Headroom</title>'
        f"<style>{STYLE}</style></head><body><h1>{html.escape(words.title)}</h1><p>{html.escape(words.question)}</p>"
        f"{''.join(sections)}</body></html>"
    ).encode()


def _section(step: Step, section: Section, language: str, first: bool) -> tuple[str, bool]:
    """Return a step, and whether it holds a figure: with the first comes the library that draws them."""
    seen = look(step)
    parts = [f"<section><h2>{html.escape(section.title)}</h2>", MARKDOWN.render(section.text)]
    if isinstance(seen, Shown):
        parts += [_rendered(line) for line in seen.says]
        parts += [_table(name, table, index=False) for name, table in seen.tables.items()]
        for place, picture in enumerate(seen.pictures):
            figure = go.Figure(picture.figure)
            figure.update_layout(template="plotly_white", separators=separators(language))
            drawn = figure.to_html(
                include_plotlyjs=first and place == 0, full_html=False, config=EXPORT_CONFIG
            )
            parts.append(
                f'<figure role="group" aria-label="{html.escape(picture.alt)}">'
                f"<figcaption>{html.escape(picture.title)}</figcaption>{drawn}</figure>"
            )
    else:
        parts.append(MARKDOWN.render(say_markdown(seen.message)))
    if section.tasks:
        parts.append(f"<h3>{html.escape(_('Check yourself'))}</h3>")
    for task in section.tasks.values():
        asks = MARKDOWN.renderInline(task.asks)
        parts.append(f"<details><summary>{asks}</summary>{MARKDOWN.render(task.explains)}</details>")
    if isinstance(seen, Shown):
        parts += [_table(name, table, index=True) for name, table in seen.numbers.items()]
    parts += [f"<pre><code>{html.escape(code_of(thing))}</code></pre>" for thing in step.code]
    return "".join([*parts, "</section>"]), isinstance(seen, Shown) and bool(seen.pictures)


def _rendered(line: str) -> str:
    for icon, sign in ICONS.items():
        line = line.replace(icon, sign)
    return str(MARKDOWN.render(line))


def _table(name: str, table: pd.DataFrame, *, index: bool) -> str:
    shown = table.to_html(index=index, border=0, float_format=lambda value: written(f"{value:.4g}"))
    opened = "" if index else " open"  # the small ones stand open on the page too
    return f"<details{opened}><summary>{html.escape(name)}</summary>{shown}</details>"
