"""The statistics of deals: counted by hand, equal to what is trained on, and for nobody who did not ask."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tellers.cli import main
from tellers.runs.sound import deal_clips, deal_experiments, deal_statistics
from tellers.runs.sound.splitting import statistics_rows


@given(
    n_clips=st.integers(20, 90), n_labels=st.integers(1, 5), share=st.floats(0, 0.9),
    seed=st.integers(0, 2**31),
)  # fmt: skip
def test_it_counts_what_every_teacher_has(n_clips, n_labels, share, seed):
    draw = np.random.default_rng(seed)
    Y, usable = (draw.random((n_clips, n_labels)) < 0.4).astype(int), draw.random(n_clips) >= share
    deals = deal_experiments(n_clips, (1, 3), seed=seed, test=0.1)
    found = deal_statistics(deals, Y, usable=usable).reveal()
    for name, deal in deals.items():
        counts = [
            [sum(Y[i, j] for i in rows if usable[i]) for j in range(n_labels)] for rows in deal.teachers
        ]
        every = [n for one in counts for n in one]
        assert found[name]["with_a_label"] == (min(every), max(every))
        n_without = [one.count(0) for one in counts]
        assert found[name]["without"] == (min(n_without), max(n_without))
        heard = [i for rows in deal.teachers for i in rows if usable[i]]
        mean = sum(Y[i].sum() for i in heard) / len(heard) if heard else 0.0
        assert found[name]["labels_per_clip"] == pytest.approx(mean)
        assert found[name]["usable"][1] <= found[name]["clips"][1]
    assert len(statistics_rows(found)) == len(found["baseline"])


def test_the_command_shows_what_train_would_deal(made_clips, made_ears, tmp_path, capsys):
    lost = deal_clips(60, 5, seed=7, student=0.15, test=0.1).teachers[2][:2]
    collection = made_clips(tmp_path / "clips", unusable=lost)
    taught = made_ears(collection, tmp_path / "ears", student=0.15, test=0.1)
    sizes = [len(part) for part in taught.partition()]

    def call(*words):
        with pytest.raises(SystemExit) as stop:
            main(["audio", "deal", str(tmp_path / "clips"), *words])
        printed = capsys.readouterr()
        return stop.value.code, printed.out, " ".join(printed.err.split())

    code, out, _ = call("--teachers", "1,5", "--show-private", "--json")
    told = json.loads(out)
    assert (code, told["private"]) == (0, True)
    five = told["deals"]["5 teachers"]
    assert five["usable"] == [min(sizes), max(sizes)] == [five["clips"][0] - 2, five["clips"][0]]
    assert (five["student"], five["overall"], five["labels"]) == (len(taught.pool), 60 - len(taught.test), 3)
    code, out, _ = call("--teachers", "1,5", "--show-private")
    assert (code, "private: do not publish" in out, "labels per clip" in out) == (0, True, True)
    # Without the word, no number.
    code, out, err = call("--teachers", "1,5")
    assert (code, out, "Expected --show-private" in err) == (2, "", True)
    code, _, err = call("--teachers", "many", "--show-private")
    assert (code, "Expected numbers such as 1,10,20" in err) == (2, True)
    code, _, err = call("--test-fold", "9", "--teachers", "1", "--show-private")
    assert (code, "a fold among 1, 2, 3, 4, 5, got '9'" in err) == (2, True)
