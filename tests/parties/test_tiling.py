"""One ciphertext per product: blocks cover the product once; what the engine was seen to do is foretold."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellers.errors import LinkFailed
from tellers.parties._circuits import (
    answers_in_log,
    padded_rows,
    plan_product,
    require_single_answers,
    single_answer_blocks,
)

# What the engine logged, as rows, inner, columns -> tile, MiB back, packing; and the number of ciphertexts.
SEEN = [
    ((1, 64, 10), (1, 64, 10), 0.122, "none", 1),
    ((12, 64, 10), (12, 64, 10), 0.123, "none", 1),
    ((13, 64, 10), (13, 64, 9), 0.243, "interleave", 1),
    ((100, 64, 10), (12, 64, 10), 0.243, "interleave", 1),
    ((400, 64, 10), (12, 64, 10), 0.243, "interleave", 1),
    ((800, 64, 10), (25, 32, 10), 0.243, "interleave", 1),
    ((900, 64, 10), (12, 64, 10), 0.485, "interleave", 2),
    ((250, 64, 32), (4, 64, 32), 0.243, "interleave", 1),
    ((300, 64, 32), (4, 64, 32), 0.485, "interleave", 2),
    ((100, 784, 10), (1, 512, 10), 0.243, "interleave", 1),
    ((100, 784, 128), (1, 64, 128), 0.485, "interleave", 2),
    ((1, 4096, 10), (1, 2048, 4), 0.243, "pack_lwes", 1),
    ((100, 13, 2), (100, 13, 2), 0.125, "none", 1),
    ((1000, 3, 3), (1000, 3, 2), 0.29, "none", 2),
    ((30, 20, 16), (30, 20, 13), 0.251, "none", 2),
    ((60, 20, 16), (60, 16, 8), 0.243, "interleave", 1),
    ((9, 100, 10), (9, 100, 9), 0.244, "none", 2),
    ((100, 20, 5), (100, 20, 4), 0.251, "none", 2),
    ((400, 12, 16), (64, 8, 16), 0.243, "interleave", 1),
    ((1000, 17, 3), (170, 16, 3), 0.243, "interleave", 1),
    ((5000, 2, 2), (2048, 2, 2), 0.485, "interleave", 2),
]


def line(shape, tile, size, packing):
    rows, height = "x".join(map(str, shape)), "x".join(map(str, tile))
    return f"[info] 1@{rows} => {height} Recv 0.176 MiB, Response {size} MiB Pack 8.9 ms ({packing})\n"


@pytest.mark.parametrize(("shape", "tile", "size", "packing", "n_answers"), SEEN)
def test_the_log_is_read_and_foretold(shape, tile, size, packing, n_answers):
    assert answers_in_log(line(shape, tile, size, packing)) == [n_answers]
    assert plan_product(*shape)[0] == n_answers


def test_every_product_of_a_log_is_counted():
    text = "".join(line(*seen[:4]) for seen in SEEN) + "[info] something else\n"
    assert answers_in_log(text) == [seen[4] for seen in SEEN]
    assert answers_in_log("") == []


@given(st.integers(1, 800), st.integers(32, 900), st.integers(1, 130))
@settings(max_examples=40)
def test_blocks_cover_a_product_once_and_are_answered_once(rows, inner, columns):
    down, across = single_answer_blocks(rows, inner, columns)
    for cuts, length in ((down, rows), (across, columns)):
        assert [cut.start for cut in cuts] == [0, *(cut.stop for cut in cuts[:-1])]
        assert all(cut.start < cut.stop for cut in cuts)
        assert cuts[-1].stop == length
    for top, left in itertools.product(down, across):
        height, width = top.stop - top.start, left.stop - left.start
        filled = padded_rows(height, inner, width)
        assert filled >= height
        assert plan_product(filled, inner, width) == (1, True)


# Which matrix the engine encrypted, seen by which side logged that it had answered.
ENCRYPTED = [
    ((1, 64, 10), False), ((5, 64, 10), False), ((13, 64, 10), False), ((48, 64, 10), True),
    ((100, 64, 10), True), ((1, 64, 128), False), ((20, 64, 32), True), ((20, 32, 5), False),
    ((96, 32, 5), True), ((20, 64, 7), False), ((384, 8, 10), True), ((192, 20, 39), True),
    ((96, 784, 64), True), ((12, 320, 10), True),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "is_right"), ENCRYPTED)
def test_which_side_is_encrypted_is_foretold(shape, is_right):
    assert plan_product(*shape)[1] == is_right


def test_each_side_trusts_its_own_log_alone():
    require_single_answers([1, 1], multiplies=True)
    require_single_answers([], multiplies=False)
    with pytest.raises(LinkFailed, match="logged none"):
        require_single_answers([], multiplies=True)
    with pytest.raises(LinkFailed, match="got more"):
        require_single_answers([1, 2], multiplies=True)
    with pytest.raises(LinkFailed, match="answered on this side"):
        require_single_answers([1], multiplies=False)
