"""Commands in this process: what a shell would see of them, without the time to start one."""

from types import SimpleNamespace

import pytest

from tellers.cli import main


@pytest.fixture
def tellers(capsys):
    """Call `tellers` with these words, and return its exit code and what it wrote."""

    def call(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=out, stderr=err)

    return call
