"""Many labels per row in a settings file: the section, what goes with what, and the mechanism it makes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...mechanisms.registry import EVENTS, MECHANISMS, counts_parts, mechanism_named, names
from ._document import Key
from ._fields import Problem, Section, option, options_of, toml_value

if TYPE_CHECKING:
    from ...mechanisms.base import Mechanism


_NAMES: Key = ("labels", "names")


@dataclass(frozen=True, kw_only=True)
class LabelsConfig(Section):
    """Many labels per row: teachers say yes or no to each of them.

    >>> LabelsConfig(names=("rain", "wind"), thresholds=0.3).thresholds
    (0.3,)
    """

    names: tuple[str, ...] = option(
        (),
        "All labels, which makes it a run of many labels per row. files: the columns of 0 and 1; of voc, "
        "chexpert and mulan those that are wanted. [mechanism] "
        f"is then one of {', '.join(names('labels')[:-1])} or {names('labels')[-1]}.",
    )
    thresholds: tuple[float, ...] = option(
        (0.5,),
        "From which probability on a teacher says yes, one for all labels or one each; fixed beforehand, or "
        "on public rows.",
        form="numbers",
        above=0,
        most=1,
    )
    resolution: int = option(
        1,
        "binary, gnthreshold and their kin: teachers hand in probabilities, counted in so many parts of a "
        "vote; 1 = yes or no.",
        least=1,
        most=10_000,
    )
    implies: Mapping[str, Any] = option(
        dict,
        'binary: where a label is present, so are those, e.g. {pneumonia = ["opacity"]}; not asked then.',
    )
    implies_not: Mapping[str, Any] = option(
        dict, 'binary: where a label is absent, so are those, e.g. {opacity = ["pneumonia"]}; not asked then.'
    )


def label_mechanism(run: Any) -> "Mechanism":
    """Return the mechanism of a run with many labels."""
    labels, chosen = run.labels, run.mechanism
    given: dict[str, Any] = {**chosen.given, "n_labels": len(labels.names)}
    if counts_parts(chosen.kind):
        given["resolution"] = labels.resolution
    if len(given.get("share", ())) == 1:
        given["share"] = given["share"][0]
    if "groups" in given:
        given["groups"] = tuple(
            tuple(labels.names.index(name) for name in group) for group in given["groups"]
        )
    kind: Any = chosen.kind
    if labels.implies or labels.implies_not:
        kind = _with_implications()[kind]
        given |= {"positive": _pairs(run, "implies"), "negative": _pairs(run, "implies_not")}
    made: Mechanism = kind(**given)
    return made


def _with_implications() -> dict[type, type]:
    """Return which mechanisms may be told what labels follow from others, and those that they are then."""
    kinds = [kind for kind in EVENTS.values() if hasattr(kind, "adds_implications_to")]
    return {kind.adds_implications_to: kind for kind in kinds}


def label_rules(run: Any) -> Iterator[Problem]:
    """Return what does not go together in settings with many labels per row."""
    from ...data._label_files import LABEL_LAYOUTS
    from ...data.embedded import LABEL_DATASETS

    labels, data, chosen = run.labels, run.data, run.mechanism
    if not labels.names:
        yield from _without_names(run, {**LABEL_DATASETS, **LABEL_LAYOUTS})
        return
    if not chosen.is_for_labels:
        yield Problem(
            ("mechanism", "name"),
            f"Expected one of {', '.join(names('labels'))} where rows have many labels, got "
            f'"{chosen.name}". For example: name = "binary" and sigma = 8.0 in [mechanism]',
            (_NAMES,),
        )
    if data.name not in ("files", *LABEL_DATASETS, *LABEL_LAYOUTS):
        yield Problem(
            ("data", "name"),
            f'Expected "files", {", ".join(map(toml_value, LABEL_LAYOUTS))} or '
            f"{' or '.join(map(toml_value, LABEL_DATASETS))} where rows have many labels, got "
            f'"{data.name}", in which each has one class.',
            (_NAMES,),
        )
    for name in ("target", "classes"):
        if getattr(data, name) and data.name in (("files",) if name == "target" else ("files", "clips")):
            words = "Expected none where rows have many labels, got one. [labels] names says their columns."
            yield Problem(("data", name), words, (_NAMES,))
    for role in ("person", "site"):
        if getattr(data, role) in labels.names:
            words = f"Expected a column of its own, [data] {role} names one of them too."
            yield Problem(_NAMES, words, (("data", role),))
    yield from _refused(run)
    if len(labels.thresholds) not in (1, len(labels.names)):
        yield Problem(
            ("labels", "thresholds"),
            f"Expected one number, or one for each of {len(labels.names)} labels, got "
            f"{len(labels.thresholds)}.",
            (_NAMES,),
        )
    if chosen.is_for_labels:
        yield from _resolution_rules(run)
        yield from _name_rules(run)


def label_mechanism_rules(run: Any) -> Iterator[Problem]:
    """Return what the mechanism itself refuses, once its parameters are all there."""
    if not hasattr(run, "labels"):
        yield Problem(
            ("mechanism", "name"),
            f"Expected one of {', '.join(MECHANISMS)}, as one class per row is handed out here, "
            f'got "{run.mechanism.name}".',
        )
        return
    if not run.labels.names or any(_name_rules(run)) or any(_resolution_rules(run)):
        return
    try:
        label_mechanism(run)
    except ValueError as error:
        words = str(error)
        about = [name for name in run.mechanism.given if re.search(rf"\b{name}\b", words)]
        key: Key = ("mechanism", about[-1] if about else "name")
        if "implications" in words:
            key = ("labels", "implies_not" if run.labels.implies_not else "implies")
            # By name, where a mechanism that only knows numbers has none.
            words = re.sub(r"\blabel (\d+)\b", lambda found: run.labels.names[int(found[1])], words)
        yield Problem(key, words, (("mechanism", "name"), _NAMES))


def _without_names(run: Any, data_sets: Mapping[str, Any]) -> Iterator[Problem]:
    usual, example = LabelsConfig(), 'For example, in [labels]: names = ["rain", "wind"]'
    for one in options_of(LabelsConfig):
        if getattr(run.labels, one.name) != getattr(usual, one.name):
            yield Problem(
                ("labels", one.name), f"Expected it only with names, got it without. {example}", (_NAMES,)
            )
    if run.mechanism.is_for_labels:
        yield Problem(
            ("mechanism", "name"),
            f"Expected one of {', '.join(names('class'))} where each row has one class, got "
            f'"{run.mechanism.name}", which is for rows of many labels. {example}',
            (_NAMES,),
        )
    if run.data.name in data_sets and not (run.data.name == "clips" and run.data.classes):
        more = ' Or, where every clip has one, in [data]: classes = ["dog", "rain"]'
        words = f'Expected labels for "{run.data.name}", got none. {example}'
        yield Problem(("data", "name"), words + (more if run.data.name == "clips" else ""), (_NAMES,))


def _refused(run: Any) -> Iterator[Problem]:
    for key, value, wanted, why in (
        (
            ("partition", "stratified"),
            run.partition.stratified,
            False,
            "which have no classes to deal evenly",
        ),
        (("personal", "variant"), run.personal.variant, "", "whose price per group is not known yet"),
        (
            ("queries", "order"),
            run.queries.order,
            ("shuffled", "given", "typical"),
            "as a student is unsure per label",
        ),
        (
            ("student", "kind"),
            run.student.kind,
            ("supervised", "semi_supervised"),
            "of which no shares are released and none is guessed",
        ),
    ):
        choices = wanted if isinstance(wanted, tuple) else (wanted,)
        if value not in choices:
            listed = " or ".join(map(toml_value, choices))
            yield Problem(
                key, f"Expected {listed} for many labels per row, {why}, got {toml_value(value)}.", (_NAMES,)
            )


def _resolution_rules(run: Any) -> Iterator[Problem]:
    labels, key = run.labels, ("labels", "resolution")
    if labels.resolution == 1:
        return
    if not counts_parts(run.mechanism.kind):
        yield Problem(
            key,
            f'Expected 1 with mechanism "{run.mechanism.name}", which counts yes and no, got '
            f"{labels.resolution}.",
            (("mechanism", "name"),),
        )
    if labels.thresholds != LabelsConfig().thresholds:
        yield Problem(
            key,
            f"Expected 1 with thresholds, which turn probabilities into yes and no, got {labels.resolution}. "
            "Keep one of the two.",
            (("labels", "thresholds"),),
        )


def _name_rules(run: Any) -> Iterator[Problem]:
    """Return labels that are named and not there, in groups and in implications."""
    labels, chosen = run.labels, run.mechanism
    for group in chosen.groups or ():
        for name in group:
            if name not in labels.names:
                yield _unknown(("mechanism", "groups"), name, labels.names)
    if chosen.groups and len({n for g in chosen.groups for n in g}) < sum(map(len, chosen.groups)):
        yield Problem(("mechanism", "groups"), "Expected every label in one group at most, got one twice.")
    if chosen.share and len(chosen.share) not in (1, len(labels.names)):
        yield Problem(
            ("mechanism", "share"),
            f"Expected one number, or one for each of {len(labels.names)} labels, got {len(chosen.share)}.",
            (_NAMES,),
        )
    for kind in ("implies", "implies_not"):
        told: Mapping[str, Any] = getattr(labels, kind)
        if told and chosen.kind not in _with_implications():
            able = [name for name in names("labels") if mechanism_named(name) in _with_implications()]
            yield Problem(
                ("labels", kind),
                f'Expected it only with mechanism {" or ".join(map(toml_value, able))}, got "{chosen.name}".',
                (("mechanism", "name"),),
            )
        for cause, effects in told.items():
            if not isinstance(effects, (list, tuple)) or not all(isinstance(e, str) for e in effects):
                yield Problem(
                    ("labels", kind, cause),
                    f"Expected a list of labels, got {toml_value(effects)}. For example: "
                    f'{kind} = {{{cause} = ["wind"]}}',
                )
                continue
            for name in (cause, *effects):
                if name not in labels.names:
                    yield _unknown(("labels", kind), name, labels.names)


def _unknown(key: Key, name: str, known: tuple[str, ...]) -> Problem:
    from ._checks import meant  # which knows the sections, this one too

    guess = meant(name, known)
    return Problem(
        key, f"Expected labels of [labels] names, got {toml_value(name)}, which is none.{guess}", (_NAMES,)
    )


def _pairs(run: Any, kind: str) -> tuple[tuple[int, int], ...]:
    told: Mapping[str, Any] = getattr(run.labels, kind)
    at = run.labels.names.index
    return tuple((at(cause), at(effect)) for cause, effects in told.items() for effect in effects)
