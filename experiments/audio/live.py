"""A small run from clips to a student, here and now, on a CPU: ESC-10 where it is, or the city."""

from pathlib import Path

import numpy as np
from asking import class_votes, percent
from common.measure import Measure, Section, measure
from plan import DELTA
from sounds import deal_sources_evenly, draw_pictures, make_city, read_waves

from tellers import Binary, GNMax, LabelVotes, exact_cost, noise
from tellers.data.metrics import micro_f1
from tellers.nn.tagger import AudioClassifier, AudioTagger
from tellers.runs.sound import deal_clips
from tellers.students import fit_labels, fit_supervised

N_TEACHERS = 5


def tagger(iterations: int) -> AudioTagger:
    """Return a teacher or student that a CPU can train."""
    return AudioTagger(
        "small", iterations=iterations, batch_size=16, learning_rate=5e-3, device="cpu", random_state=7
    )


def esc10(folder: Path, *, iterations: int) -> Section:
    """ESC-10, one label, the first fold judging: 5 teachers, GNMax, a student."""
    waves = read_waves(folder)
    clips = waves.clips
    assert clips.folds is not None
    deal = deal_sources_evenly(clips, N_TEACHERS, seed=1, student=0.25, test=clips.folds == 1)
    alone = np.arange(len(clips))
    heard = np.stack([alone, alone], axis=1), np.tile([1.0, 0.0], (len(clips), 1))
    X, y = draw_pictures(waves.samples, heard, n_jobs=1)[:, ::2], clips.Y.argmax(axis=1)
    model = AudioClassifier(tagger(iterations), n_classes=10)
    said = []
    for rows in deal.teachers:
        model.fit(X[rows], y[rows])
        said.append(percent(model.predict_proba(X[deal.student])))
    votes = class_votes(np.stack(said))
    mechanism = GNMax(0.2 * N_TEACHERS)
    labels = mechanism.release(votes, noise.seeded(7)).labels
    student = fit_supervised(
        AudioClassifier(tagger(iterations), n_classes=10), X[deal.student], labels, seed=7
    )
    truth = y[deal.student]
    return _section(
        "esc10",
        f"ESC-10 here and now: {N_TEACHERS} teachers, GNMax, {len(labels)} labels",
        np.mean([(one.argmax(axis=1) == truth).mean() for one in said]),
        (votes.counts.argmax(axis=1) == truth).mean(),
        (labels == truth).mean(),
        student.score(X[deal.test], y[deal.test]),
        exact_cost(mechanism, votes).cost.reveal().epsilon(DELTA["single"]),
    )


def city(*, iterations: int, n_clips: int = 480) -> Section:
    """The city, up to three labels: 5 teachers, Binary voting, a student."""
    X, Y = make_city(n_clips, seed=7, n_jobs=1)
    X, Y = X[:, ::2], Y.astype(np.int64)
    deal = deal_clips(n_clips, N_TEACHERS, seed=1, student=0.25, test=0.2)
    said = np.stack(
        [tagger(iterations).fit(X[rows], Y[rows]).predict(X[deal.student]) for rows in deal.teachers]
    )
    votes = LabelVotes.from_ballots(said, n_labels=Y.shape[1])
    mechanism = Binary(0.2 * N_TEACHERS, Y.shape[1])
    release = mechanism.release(votes, noise.seeded(7))
    student = fit_labels(tagger(iterations), X[deal.student], release.labels, seed=7)
    truth = Y[deal.student]
    return _section(
        "city",
        f"The city here and now: {N_TEACHERS} teachers, Binary voting, {len(truth)} queries",
        np.mean([micro_f1(truth, one) for one in said]),
        micro_f1(truth, (said.mean(axis=0) > 0.5).astype(int)),
        micro_f1(truth, release.labels),
        micro_f1(Y[deal.test], student.predict(X[deal.test])),
        exact_cost(mechanism, votes).cost.reveal().epsilon(DELTA["single"]),
    )


def _section(key: str, title: str, *numbers: float) -> Section:
    words = (
        "one teacher",
        "the ensemble, no noise",
        "labels told",
        "student, test",
        "epsilon, exact (private)",
    )
    found: list[Measure] = [
        measure(f"live/{key}/{word}", word, float(value)) for word, value in zip(words, numbers, strict=True)
    ]
    return Section(title, tuple(found), (f"delta {DELTA['single']:g}; seeded, so no release.",))
