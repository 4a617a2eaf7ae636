"""What is measured of a model's heads over a collection, as jobs: statistics, distances, induction.

Each is known by the model, the texts and the settings; a page asks for it and gets None until it is there.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from analysis.findings import HeadStatistics
from analysis.messages import Message, message
from dashboard import cache, jobs
from dashboard.corpus import Corpus
from dashboard.text import _, say_markdown

if TYPE_CHECKING:
    from analysis.distance import HeadDistances
    from analysis.induction import Induction
    from analysis.maps import Specials
    from analysis.models import Model
    from analysis.toy import Toy

SEQUENCES = 64  # of repeated random tokens
MOST_QUERIES = 5_000  # that the distances between all heads are averaged over


def statistics_key(model: str, texts: Corpus, specials: Specials, weighting: str) -> tuple[str, ...]:
    """Return the key of the job that `statistics` starts."""
    return ("statistics", model, texts.key, specials, weighting)


def statistics(model: str, texts: Corpus, specials: Specials, weighting: str) -> HeadStatistics | None:
    """Return the measures of every head over ``texts``, or None until they are there."""

    def work(source: Model | Toy, report: jobs.Report) -> HeadStatistics:
        from analysis.collection import summarise

        return summarise(source, texts.texts, specials=specials, weighting=weighting, on_progress=report)

    key = statistics_key(model, texts, specials, weighting)
    title = message("Measuring every head on {count:,} texts", count=len(texts.texts))
    found = _ask(key, title, len(texts.texts), model, work)
    assert found is None or isinstance(found, HeadStatistics)
    return found


def distances(model: str, texts: Corpus, specials: Specials) -> HeadDistances | None:
    """Return how far every two heads are apart over ``texts``, or None until that is there."""

    def work(source: Model | Toy, report: jobs.Report) -> HeadDistances:
        from analysis.distance import distances

        return distances(
            source, texts.texts, specials=specials, most_queries=MOST_QUERIES, on_progress=report
        )

    title = message("Comparing every two heads")
    return _ask(("distances", model, texts.key, specials), title, len(texts.texts), model, work)  # type: ignore[return-value]


def induction(model: str) -> Induction | None:
    """Return the induction scores of every head, or None until they are there."""

    def work(source: Model | Toy, report: jobs.Report) -> Induction:
        from analysis.induction import induction

        return induction(source, sequences=SEQUENCES, on_progress=report)

    title = message("Measuring induction on random tokens")
    return _ask(("induction", model), title, SEQUENCES, model, work)  # type: ignore[return-value]


def say_state(key: tuple[str, ...]) -> None:
    """Say why the result of a job is not there: still running, cancelled, failed; offer to try again."""
    job = jobs.find(key)
    if job is None or not job.is_over:
        st.caption(_("Not there yet: it is being measured."))
        return
    if job.state == "failed" and job.error is not None:
        st.error(say_markdown(job.error))
    else:
        st.info(
            _("Cancelled after {done:,} of {total:,}. Nothing was kept.").format(
                done=job.done, total=job.total
            )
        )
    st.button(_("Measure again"), key=f"again.{key[0]}.{key[1]}", on_click=jobs.forget, args=(key,))


def shape(model: str) -> tuple[int, int]:
    """Return how many layers a model has, and how many heads a layer."""
    from analysis.stream import shape_of

    return shape_of(cache.source(*cache.parts_of(model)))


def _ask(
    key: tuple[str, ...],
    title: Message,
    total: int,
    model: str,
    work: Callable[[Model | Toy, jobs.Report], object],
) -> object:
    """Return the result of a job, begun now if it is not known yet; None where there is none."""
    job = jobs.find(key)
    if job is None:
        source = cache.source(*cache.parts_of(model))
        job = jobs.start(key, title, total, lambda report: _with_threads(work, source, report))
    return jobs.result(job)


def _with_threads(
    work: Callable[[Model | Toy, jobs.Report], object], source: Model | Toy, report: jobs.Report
) -> object:
    import torch

    torch.set_num_threads(max((os.cpu_count() or 2) - 1, 1))  # one core stays for the pages
    return work(source, report)
