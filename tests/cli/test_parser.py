"""Selections, chunks and options as people write them; nothing is evaluated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import zellige
from zellige.cli.commands import plain
from zellige.cli.parser import COMMANDS, parse, parse_chunks, parse_options, parse_selection

BOUND = st.none() | st.integers(-9, 9)
PART = st.integers(-3, 2) | st.builds(slice, BOUND, BOUND, st.sampled_from([None, 1, 2, -1, -3]))


def spelt(part) -> str:
    if isinstance(part, int):
        return str(part)
    start, stop, step = ("" if bound is None else str(bound) for bound in (part.start, part.stop, part.step))
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


@given(st.lists(PART, min_size=1, max_size=3), st.sampled_from([",", ", "]), st.booleans())
def test_a_selection_means_what_numpy_means(parts, comma, brackets):
    model = np.arange(3 * 6 * 3).reshape(3, 6, 3)
    parts = [part if not isinstance(part, int) or axis != 1 else part + 1 for axis, part in enumerate(parts)]
    text = comma.join(map(spelt, parts))
    found = parse_selection(f"[{text}]" if brackets else text)
    assert np.array_equal(model[found], model[tuple(parts)])


def test_an_ellipsis_is_a_part():
    assert parse_selection("...,0") == (..., 0)


@pytest.mark.parametrize("text", ["", "a", "1.5", "0:1:2:3", "1,,2", "__import__('os')", "0 1", "None"])
def test_what_is_no_selection_is_refused(text):
    with pytest.raises(ValueError, match="write it as 0:10,::2,-1"):
        parse_selection(text)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("31+28+31,100,-1", ((31, 28, 31), (100,), (7,))),
        ("30*3,50", ((30, 30, 30), (50, 50))),
        ("45*2,100,3+4", ((45, 45), (100,), (3, 4))),
        ("31+28+31,50*2,1*3+4", ((31, 28, 31), (50, 50), (1, 1, 1, 4))),
        ("45", ((45, 45), (45, 45, 10))),
        ("-1", ((90,), (100,))),
        ("time=60,lat=-1,lon=7", ((60, 30), (100,), (7,))),
    ],
)
def test_chunks_become_those_of_the_array(text, sizes):
    shape = (90, 100, 7)[: len(sizes)]
    names = ["time", "lat", "lon"][: len(sizes)]
    made = zellige.create_array(shape=shape, chunks=parse_chunks(text), dtype="i1", dimension_names=names)
    assert tuple(map(tuple, made.write_chunk_sizes)) == sizes


@pytest.mark.parametrize("text", ["", "a", "1.5", "-2", "31+", "3*", "*3", "time=3,5", "31+-28"])
def test_what_are_no_chunks_is_refused(text):
    with pytest.raises(ValueError, match=r"write it as 31\+28\+31,100,-1"):
        parse_chunks(text)


def test_options_are_json_or_words():
    found = parse_options(["a=1", "b=eu-west-1", "c=true", 'd={"x": null}', "e=x=y"])
    assert found == {"a": 1, "b": "eu-west-1", "c": True, "d": {"x": None}, "e": "x=y"}
    assert parse_options([]) is None
    for wrong in ("a", "=1"):
        with pytest.raises(ValueError, match="key=value"):
            parse_options([wrong])


@pytest.mark.parametrize("text", ["-1", "-1,0:5", "-3:,2", "-1,-1"])
def test_what_begins_with_a_negative_number_is_no_option(text):
    found = parse(["head", "a", text])
    assert parse_selection(found.selection) == parse_selection(text)
    assert parse(["rechunk", "a", "b", "--chunks", text]).chunks.strip() == text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32("nan"), "NaN"),
        (-np.inf, "-Infinity"),
        (np.array([1, 2], "i1"), [1, 2]),
        (np.array(["2024-01-02", "NaT"], "M8[D]"), ["2024-01-02", "NaT"]),
        (np.timedelta64(3, "s"), "3 seconds"),
        (np.array([(1, b"ab")], [("x", "i4"), ("y", "S2")]), [[1, "YWI="]]),
        (np.complex64(1 + 2j), [1.0, 2.0]),
        ({1: {2}}, {"1": [2]}),
    ],
)
def test_any_value_becomes_json(value, expected):
    assert plain(value) == expected


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_each_command_is_one_that_it_takes(name):
    words = COMMANDS[name].example.split()
    assert words[0] == "zellige"
    assert parse(words[1:]).command == name
