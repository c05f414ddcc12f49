"""Many labels per row in a settings file: the section, what goes with what, and the mechanism it makes."""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from ...data._records import NAMED
from ...mechanisms.registry import EVENTS, counts_parts, mechanism_named, names
from ._document import toml_value
from .mechanism import MechanismConfig
from .schema import ONE_OR_MORE, Names, Options, Problem, Table, meant, option, wrong

if TYPE_CHECKING:
    from ...mechanisms.base import Mechanism


_NAMES = "labels.names"
_CHOSEN = "mechanism.name"
_EXAMPLE = 'For example, in [labels]: names = ["rain", "wind"]'


class LabelsConfig(Options, title="labels"):
    """Many labels per row: teachers say yes or no to each of them.

    >>> LabelsConfig(names=("rain", "wind"), thresholds=0.3).thresholds
    (0.3,)
    """

    names: Names = option(
        (),
        "All labels, which makes it a run of many labels per row. files: the columns of 0 and 1; of voc, "
        "chexpert and mulan those that are wanted. [mechanism] "
        f"is then one of {', '.join(names('labels')[:-1])} or {names('labels')[-1]}.",
    )
    thresholds: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], ONE_OR_MORE] = option(
        (0.5,),
        "From which probability on a teacher says yes, one for all labels or one each; fixed beforehand, or "
        "on public rows.",
        min_length=1,
    )
    resolution: int = option(
        1,
        "binary, gnthreshold and their kin: teachers hand in probabilities, counted in so many parts of a "
        "vote; 1 = yes or no.",
        ge=1,
        le=10_000,
    )
    implies: Table = option(
        dict,
        'binary: where a label is present, so are those, e.g. {pneumonia = ["opacity"]}; not asked then.',
    )
    implies_not: Table = option(
        dict, 'binary: where a label is absent, so are those, e.g. {opacity = ["pneumonia"]}; not asked then.'
    )

    def build(self, chosen: MechanismConfig) -> "Mechanism":
        """Return the mechanism for these labels.

        >>> LabelsConfig(names=("rain", "wind")).build(MechanismConfig(name="binary", sigma=9.0))
        Binary(sigma=9.0, n_labels=2, resolution=1)
        """
        more: dict[str, Any] = {"n_labels": len(self.names)}
        if counts_parts(chosen.kind):
            more["resolution"] = self.resolution
        if chosen.groups:
            more["groups"] = tuple(tuple(map(self.names.index, group)) for group in chosen.groups)
        if not self.implies and not self.implies_not:
            return chosen.build(**more)
        more |= {"positive": self._pairs(self.implies), "negative": self._pairs(self.implies_not)}
        return chosen.build(_with_implications()[chosen.kind], **more)

    def _pairs(self, told: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
        at = self.names.index
        return tuple((at(cause), at(effect)) for cause, effects in told.items() for effect in effects)

    def _rules(self, whole: Any) -> Iterator[Problem]:
        data, chosen = whole.data, whole.mechanism
        if not self.names:
            yield from self._without_names(whole)
            return
        if not chosen.is_for_labels:
            yield wrong(
                _CHOSEN,
                f"Expected one of {', '.join(names('labels'))} where rows have many labels, got "
                f'"{chosen.name}". For example: name = "binary" and sigma = 8.0 in [mechanism]',
                _NAMES,
            )
        if not data.record.load_labels:
            able = [toml_value(name) for name, one in NAMED.items() if one.load_labels]
            yield wrong(
                "data.name",
                f"Expected {', '.join(able[:-1])} or {able[-1]} where rows have many labels, got "
                f'"{data.name}", in which each has one class.',
                _NAMES,
            )
        for name, those in (("target", ("files",)), ("classes", ("files", "clips"))):
            if getattr(data, name) and data.name in those:
                words = "Expected none where rows have many labels, got one."
                yield wrong(f"data.{name}", f"{words} [labels] names says their columns.", _NAMES)
        for role in ("person", "site"):
            if getattr(data, role) in self.names:
                words = f"Expected a column of its own, [data] {role} names one of them too."
                yield wrong(_NAMES, words, f"data.{role}")
        for key, wanted, why in (
            ("partition.stratified", (False,), "which have no classes to deal evenly"),
            ("personal.variant", ("",), "whose price per group is not known yet"),
            ("queries.order", ("shuffled", "given", "typical"), "as a student is unsure per label"),
            (
                "student.kind",
                ("supervised", "semi_supervised"),
                "of which no shares are released and none is guessed",
            ),
        ):
            yield from whole.expect(key, wanted, f"for many labels per row, {why}", _NAMES)
        yield from self._one_for_each("labels.thresholds", self.thresholds)
        if chosen.is_for_labels:
            yield from self._mechanism_rules(whole)

    def _without_names(self, whole: Any) -> Iterator[Problem]:
        for name in self.changed():
            words = f"Expected it only with names, got it without. {_EXAMPLE}"
            yield wrong(f"labels.{name}", words, _NAMES)
        if whole.mechanism.is_for_labels:
            yield wrong(
                _CHOSEN,
                f"Expected one of {', '.join(names('class'))} where each row has one class, got "
                f'"{whole.mechanism.name}", which is for rows of many labels. {_EXAMPLE}',
                _NAMES,
            )
        named, is_clips = whole.data.name, whole.data.name == "clips"
        if not whole.data.record.load and not (is_clips and whole.data.classes):
            more = ' Or, where every clip has one, in [data]: classes = ["dog", "rain"]' if is_clips else ""
            yield wrong("data.name", f'Expected labels for "{named}", got none. {_EXAMPLE}{more}', _NAMES)

    def _mechanism_rules(self, whole: Any) -> Iterator[Problem]:
        """Return what of a mechanism does not fit these labels."""
        chosen = whole.mechanism
        if not counts_parts(chosen.kind):
            when = f'with mechanism "{chosen.name}", which counts yes and no'
            yield from whole.expect("labels.resolution", (1,), when, _CHOSEN)
        if "thresholds" in self.changed():
            when = "with thresholds, which turn probabilities into yes and no"
            advice = "Keep one of the two."
            yield from whole.expect("labels.resolution", (1,), when, "labels.thresholds", advice=advice)
        in_groups = [name for group in chosen.groups or () for name in group]
        yield from self._known("mechanism.groups", in_groups)
        if len(set(in_groups)) < len(in_groups):
            yield wrong("mechanism.groups", "Expected every label in one group at most, got one twice.")
        yield from self._one_for_each("mechanism.share", chosen.share or (0.5,))
        for key, told in (("labels.implies", self.implies), ("labels.implies_not", self.implies_not)):
            if told and chosen.kind not in _with_implications():
                able = [name for name in names("labels") if mechanism_named(name) in _with_implications()]
                listed = " or ".join(map(toml_value, able))
                yield wrong(key, f'Expected it only with mechanism {listed}, got "{chosen.name}".', _CHOSEN)
            for cause, effects in told.items():
                if isinstance(effects, (list, tuple)) and all(isinstance(e, str) for e in effects):
                    yield from self._known(key, (cause, *effects))
                    continue
                table, name = key.split(".")
                words = f"Expected a list of labels, got {toml_value(effects)}. For example: "
                yield wrong((table, name, cause), f'{words}{name} = {{{cause} = ["wind"]}}')

    def _known(self, key: str, said: "list[str] | tuple[str, ...]") -> Iterator[Problem]:
        for name in said:
            if name not in self.names:
                words = f"Expected labels of [labels] names, got {toml_value(name)}, which is none."
                yield wrong(key, words + meant(name, self.names), _NAMES)

    def _one_for_each(self, key: str, numbers: tuple[float, ...]) -> Iterator[Problem]:
        n_labels, n_given = len(self.names), len(numbers)
        if n_given not in (1, n_labels):
            words = f"Expected one number, or one for each of {n_labels} labels, got {n_given}."
            yield wrong(key, words, _NAMES)

    def _refusals(self, whole: Any) -> Iterator[Problem]:
        """Return what the mechanism itself refuses, once its parameters are all there."""
        if not self.names or any(self._mechanism_rules(whole)):
            return
        try:
            self.build(whole.mechanism)
        except ValueError as error:
            words = str(error)
            if "implications" not in words:
                yield whole.mechanism._refusal(error)
                return
            # By name, where a mechanism that only knows numbers has none.
            words = re.sub(r"\blabel (\d+)\b", lambda found: self.names[int(found[1])], words)
            yield wrong(f"labels.{'implies_not' if self.implies_not else 'implies'}", words, _CHOSEN, _NAMES)


def _with_implications() -> dict[type, type]:
    """Return which mechanisms may be told what labels follow from others, and those that they are then."""
    kinds = [kind for kind in EVENTS.values() if hasattr(kind, "adds_implications_to")]
    return {kind.adds_implications_to: kind for kind in kinds}
