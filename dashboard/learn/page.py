"""The frame of a Learn page: one step at a time, its words and controls beside its picture, and what to try with it."""

from __future__ import annotations

import streamlit as st

from dashboard import boxes, state
from dashboard.chart import chart
from dashboard.learn import keys, saved
from dashboard.learn.lesson import Page, Seen, Shown, Step, look
from dashboard.learn.prose import Prose, Section, further, prose
from dashboard.learn.source import code_of
from dashboard.pictures import CHART
from dashboard.text import _, language, say_markdown


def draw(page: Page) -> None:
    """Draw a page at the step that is chosen."""
    words = prose(page.name, language())
    step = _stepper(page, words)
    section = words.sections[step.name]
    seen = look(step)
    with st.container(horizontal=True, gap="large"):
        with st.container(width=440):
            st.markdown(section.text)
            step.controls(seen)
            _say(seen)
        with st.container(width="stretch"):
            if isinstance(seen, Shown):
                _pictures(step, seen)
            else:
                st.info(say_markdown(seen.message))
            if step.after is not None:
                step.after(seen)
            _tasks(page, step, section, seen)
            _tables(seen)
            _numbers(seen)
            _code(step)
            real = step.real()
            st.page_link(
                page=f"views/{real.page}.py",
                label=real.label,
                icon=":material/arrow_forward:",
                query_params=dict(real.choices),
            )
    _answers(page, words)
    _footer(page, step, words)
    state.write_link(keys.LINKS[page.name])


def _stepper(page: Page, words: Prose) -> Step:
    """Let a step be chosen, and return it; those whose tasks are all done carry a mark."""
    if len(page.steps) == 1:
        return page.steps[0]
    names = {}
    for number, step in enumerate(page.steps, start=1):
        section = words.sections[step.name]
        done = all(_is_done(page, step, task) for task in section.tasks)
        names[step.name] = f"{number} {section.title}" + (" ✓" if done else "")
    chosen = boxes.choose(keys.PART, _("Step"), names)
    return next(step for step in page.steps if step.name == chosen)


def _say(seen: Seen) -> None:
    if isinstance(seen, Shown):
        for line in seen.says:
            st.markdown(line)


def _tables(seen: Seen) -> None:
    if isinstance(seen, Shown):
        for name, table in seen.tables.items():
            st.markdown(f"**{name}**")
            st.table(table, hide_index=True)


def _pictures(step: Step, seen: Shown) -> None:
    for place, picture in enumerate(seen.pictures):
        st.markdown(f"**{picture.title}**")
        chart(picture.figure, key=f"learn.{step.name}.{place}", config=CHART, alt=picture.alt)


def _tasks(page: Page, step: Step, section: Section, seen: Seen) -> None:
    """Ask for what the figure answers when it is moved, and explain what was seen once it was."""
    done = st.session_state.setdefault(keys.DONE, set())
    for name, solved in step.tasks.items():
        if solved(seen):
            done.add(f"{page.name}.{step.name}.{name}")
    if not section.tasks:
        return
    with st.container(border=True):
        st.markdown(
            _(
                "**Check yourself**: change the controls until a circle is ticked; the explanation then appears."
            )
        )
        for name, task in section.tasks.items():
            if _is_done(page, step, name):
                st.markdown(f":material/check_circle: **{task.asks}**")
                st.markdown(task.explains)
            else:
                st.markdown(f":material/radio_button_unchecked: {task.asks}")


def _is_done(page: Page, step: Step, task: str) -> bool:
    return f"{page.name}.{step.name}.{task}" in st.session_state.get(keys.DONE, ())


def _numbers(seen: Seen) -> None:
    if not isinstance(seen, Shown) or not seen.numbers:
        return
    box = st.expander(_("Numbers as a table"), key="learn.numbers", on_change="rerun")
    if box.open:
        for name, table in seen.numbers.items():
            box.markdown(f"**{name}**")
            box.dataframe(table, width="stretch")


def _code(step: Step) -> None:
    box = st.expander(_("The code that computed this"), key="learn.code", on_change="rerun")
    if box.open:
        for thing in step.code:
            box.code(code_of(thing), language="python")


def _answers(page: Page, words: Prose) -> None:
    """Draw what the prose says beside the steps: questions, each with the step that shows the answer."""
    for name in further(page, words):
        with st.expander(words.sections[name].title):
            st.markdown(words.sections[name].text)
            if name in page.answers:
                where, step = page.answers[name]
                title = prose(where, language()).sections[step].title
                st.page_link(
                    page=f"views/{where}.py",
                    label=_("See it: {title}").format(title=title),
                    icon=":material/arrow_forward:",
                    query_params={} if len(keys.STEPS[where]) == 1 else {keys.PART.key: step},
                )


def _footer(page: Page, step: Step, words: Prose) -> None:
    """Lead to the step before and after, and offer the page as a file."""
    steps = [one.name for one in page.steps]
    at = steps.index(step.name)
    with st.container(horizontal=True, vertical_alignment="center"):
        for place, icon in ((at - 1, ":material/arrow_back:"), (at + 1, ":material/arrow_forward:")):
            if 0 <= place < len(steps):
                st.button(
                    words.sections[steps[place]].title,
                    key=f"learn.to.{'before' if place < at else 'after'}",
                    icon=icon,
                    icon_position="left" if place < at else "right",
                    on_click=_go,
                    args=(steps[place],),
                )
        _save(page, words)


def _save(page: Page, words: Prose) -> None:
    """Offer the page as a file, which is built once the box is open: it holds all steps."""
    box = st.popover(
        _("Save or print this page"), icon=":material/download:", key="learn.save", on_change="rerun"
    )
    if not box.open:
        return
    with box:
        st.markdown(
            _("All steps with their figures, as they are set now, for a classroom without a network.")
        )
        spoken = language()
        st.download_button(
            "HTML",
            data=saved.to_file(page, words, spoken),
            file_name=f"headroom-{page.name}-{spoken}.html",
            mime="text/html",
            key="learn.save.file",
            on_click="ignore",
        )


def _go(step: str) -> None:
    state.acted()
    st.session_state[keys.PART.key] = step
