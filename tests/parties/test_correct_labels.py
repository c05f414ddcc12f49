"""Labels of answering parties, a guardian and an asker, all processes: those of the clear computation."""

import numpy as np
import pytest

pytest.importorskip("cryptography")

from tellers.parties import AskRole, clear_votes
from tellers.parties._policy import PartyContext

from .model_network import ModelNetwork

SESSIONS = [
    pytest.param(task, kind, n_batches, id=f"{task}-{kind}")
    for task, n_batches in (("single", 4), ("multi", 1))
    for kind in ("linear", "network", "forest")
]


@pytest.mark.campaign
@pytest.mark.parametrize(("task", "kind", "n_batches"), SESSIONS)
def test_released_labels_are_those_of_the_clear_with_the_noise_drawn(tmp_path, engine, task, kind, n_batches):
    """400 labels of each session, 2,400 in all, of random models and rows: none differs.

    Against the estimators themselves, whose numbers are not rounded, votes may differ where scores nearly
    tie, and nowhere else; how many did is shown.
    """
    n_outputs, batch = 4, 100
    network = ModelNetwork(tmp_path, kind=kind, task=task, n_outputs=n_outputs, n_answerers=5, seed=len(kind))
    n_labels = n_near = n_turned = 0
    try:
        network.start_all()
        with AskRole(network.settings("ann")) as asker:
            for _ in range(n_batches):
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
    finally:
        network.close()
    assert n_labels == 400
    n_votes = 5 * n_batches * batch
    print(
        f"{task}, {kind}: {n_labels} labels, 0 mismatches; of {n_votes} votes {n_near} are near ties, "
        f"and {n_turned} of those differ from the estimator's own"
    )
