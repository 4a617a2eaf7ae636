"""The router: the pages and the sidebar. Runs before every page, so it stays cheap."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # `streamlit run dashboard/app.py` puts only dashboard/ there
    sys.path.insert(0, str(ROOT))

from dashboard import jobs, sidebar, state  # noqa: E402
from dashboard.learn import keys as learn  # noqa: E402
from dashboard.text import _  # noqa: E402

VIEWS = Path(__file__).parent / "views"

st.set_page_config(page_title="Headroom", page_icon=str(VIEWS.parent / "icon.png"), layout="wide")
pages = {
    "home": st.Page(VIEWS / "home.py", title=_("Home"), default=True),
    "attention": st.Page(VIEWS / "attention.py", title=_("Attention"), url_path="attention"),
    "heads": st.Page(VIEWS / "heads.py", title=_("Heads"), url_path="heads"),
    "compare": st.Page(VIEWS / "compare.py", title=_("Compare"), url_path="compare"),
    "live": st.Page(VIEWS / "live.py", title=_("Ablate live"), url_path="live"),
    "ablation": st.Page(VIEWS / "ablation.py", title=_("Ablation"), url_path="ablation"),
    "pruning": st.Page(VIEWS / "pruning.py", title=_("Pruning"), url_path="pruning"),
    "by_hand": st.Page(VIEWS / "by_hand.py", title=_("By hand"), url_path="by_hand"),
    "shapes": st.Page(VIEWS / "shapes.py", title=_("Shapes"), url_path="shapes"),
    "six_steps": st.Page(VIEWS / "six_steps.py", title=_("Six steps"), url_path="six_steps"),
    "variations": st.Page(
        VIEWS / "variations.py", title=_("Masks, crossing, scale, order, cost"), url_path="variations"
    ),
    "questions": st.Page(VIEWS / "questions.py", title=_("Questions"), url_path="questions"),
}
lessons = [pages[name] for name in learn.LINKS]
page = st.navigation(
    {
        "": [pages["home"]],
        _("Look"): [pages["attention"], pages["heads"], pages["compare"]],
        _("Switch off"): [pages["live"], pages["ablation"], pages["pruning"]],
        _("Learn"): lessons,
    }
)
state.start(page.url_path)
sidebar.draw()
with suppress(state.PageEnd):  # what a page started is told also where it ended early
    page.run()
jobs.banner()
