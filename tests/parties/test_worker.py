"""What a worker reads of its engine's log: all of it, or the link fails."""

import tempfile

import pytest

from tellers.errors import LinkFailed
from tellers.parties._worker import LOG_BYTES, read_new


def test_a_log_is_read_once():
    with tempfile.TemporaryFile("w+b", buffering=0) as log:
        log.write(b"one")
        assert read_new(log.fileno()) == "one"
        log.write(b"two")
        assert read_new(log.fileno()) == "two"
        assert read_new(log.fileno()) == ""


@pytest.mark.parametrize(("n_more", "fails"), [(-1, False), (0, True), (1, True)])
def test_a_log_that_may_be_longer_than_what_was_read_fails_the_link(n_more, fails):
    with tempfile.TemporaryFile("w+b", buffering=0) as log:
        log.write(b"x" * (LOG_BYTES + n_more))
        if not fails:
            assert len(read_new(log.fileno())) == LOG_BYTES - 1
        else:
            with pytest.raises(LinkFailed, match="less than 4 MiB of log"):
                read_new(log.fileno())
        assert read_new(log.fileno()) == ""  # the next command begins anew
