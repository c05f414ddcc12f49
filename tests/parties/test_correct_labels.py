"""Labels of answering parties, a guardian and an asker, all processes: those of the clear computation."""

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.parties import AskRole, clear_votes
from tellers.parties._policy import PartyContext

from .model_network import ModelNetwork
from .process_network import charged

# Rows of each batch: 400 labels of every session, one row by itself among them.
SESSIONS = [
    pytest.param(task, kind, (*sizes[:-1], 99, 1) if kind == "linear" else sizes, id=f"{task}-{kind}")
    for task, sizes in (("single", (100,) * 4), ("multi", (100,)))
    for kind in ("linear", "network", "forest")
]


@pytest.mark.campaign
@pytest.mark.parametrize(("task", "kind", "sizes"), SESSIONS)
def test_released_labels_are_those_of_the_clear_with_the_noise_drawn(tmp_path, engine, task, kind, sizes):
    """400 labels of each session, 2,400 in all, of random models and rows: none differs.

    Against the estimators themselves, whose numbers are not rounded, votes may differ where scores nearly
    tie, and nowhere else; how many did is shown.
    """
    n_outputs, n_answerers = 4, 3
    network = ModelNetwork(
        tmp_path, kind=kind, task=task, n_outputs=n_outputs, n_answerers=n_answerers, seed=len(kind)
    )
    n_labels = n_near = n_turned = 0
    try:
        network.start_all()
        with AskRole(network.settings("ann")) as asker:
            for batch in sizes:
                rows = network.rows(batch)
                found = asker.ask(rows)
                assert found.parties == network.names
                np.testing.assert_array_equal(found.labels, network.clear(rows, found.qid, found.parties))
                n_labels += found.labels.size
                for name in network.names:
                    context = PartyContext(network.settings(name))
                    program = context.vote_program(batch)
                    whole = clear_votes(program, context.model(), program.encode(rows))
                    said, near = network.float_votes(rows, name, n_outputs)
                    turned = (whole != said).any(axis=1)
                    assert not (turned & ~near).any(), "a vote differs where nothing ties"
                    n_near, n_turned = n_near + int(near.sum()), n_turned + int(turned.sum())
        assert charged(network) == charged(network, "north") == list(sizes)
    finally:
        network.close()
    assert n_labels == 400
    n_votes = n_answerers * sum(sizes)
    print(
        f"{task}, {kind}: {n_labels} labels, 0 mismatches; of {n_votes} votes {n_near} are near ties, "
        f"and {n_turned} of those differ from the estimator's own"
    )
