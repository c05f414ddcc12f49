"""Folders that are no runs, unfinished runs and broken files: what is wrong, and what to do."""

import pytest

from tellers.runs import write_report


def refused(folder, **options):
    with pytest.raises(ValueError, match="Expected") as error:
        write_report(folder, **options)
    return str(error.value)


def test_a_folder_that_is_not_there(tmp_path):
    assert "found none at" in refused(tmp_path / "nowhere")


def test_a_file_in_place_of_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    assert "found a file at" in refused(tmp_path / "file")


def test_a_folder_that_is_no_run(tmp_path):
    words = refused(tmp_path)
    assert "neither result.json nor config.toml" in words
    assert "`tellers run`" in words


def test_a_run_that_is_not_finished(folder):
    (folder / "result.json").unlink()
    words = refused(folder)
    assert "not finished" in words
    assert f"tellers run {folder / 'config.toml'} --out {folder} --resume" in words


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"[1, 2]", b'"text"'])
def test_a_broken_result(folder, content):
    (folder / "result.json").write_bytes(content)
    words = refused(folder)
    assert "result.json" in words
    assert "--resume" in words


def test_a_result_with_a_wrong_entry(folder, change):
    change(folder / "result.json", spent__epsilon="4.2 secret")
    words = refused(folder)
    assert "at spent.epsilon, got a str" in words
    assert "--resume" in words
    assert "secret" not in words


def test_a_result_of_another_format(folder, change):
    change(folder / "result.json", format=2)
    assert "format 1, got format 2" in refused(folder)


def test_private_numbers_that_are_not_there(folder):
    (folder / "private" / "summary.json").unlink()
    words = refused(folder, private=True)
    assert "Write the public report" in words
    assert "`private = true` under [report]" in words


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"gaps": [0.42424]}', b'{"plurality_accuracy": 42424}'])
def test_broken_private_numbers_are_not_quoted(folder, content):
    (folder / "private" / "summary.json").write_bytes(content)
    words = refused(folder, private=True)
    assert "summary.json" in words
    assert "42424" not in words
