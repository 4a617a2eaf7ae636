"""The Learn pages: multi-head attention by hand, a step at a time.

A page is a list of steps. Each has a little prose (Markdown, one file a page and language), computes from the
session's choices what is to be seen, draws its controls and pictures, and asks for something that can only be
answered by moving them. The code that is shown is read from the functions that computed it.

    keys        what the pages remember, and what of it a link says
    lesson      what a step and what it shows are
    prose       the Markdown files: titles, texts, tasks
    controls    sliders and words that follow the session's choices
    source      a function as it is read on a page
    figures     numbers into Plotly figures
    sentence    the six words, and what heads look at from one of them
    by_hand, shapes, six_steps, mixing, two_layers, variations, measured, questions    the steps
    saved       a page as one HTML file for a classroom without a network
    heading     the title, which stands first
    page        the frame around all of it
"""
