"""Cross-field validation of the settings of a run."""

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from types import SimpleNamespace
from typing import Any

from ...mechanisms.registry import declared_fields
from .._catalogue import SEMI_SUPERVISED
from ._checks import check_options, unknown
from ._document import Key
from ._fields import Problem, complain
from .labels import label_mechanism_rules, label_rules
from .mechanism import example_of
from .sections import (
    CLIPS,
    FILES,
    HAS_TEST_PART,
    LAYOUTS,
    SECTIONS,
    RunConfig,
    cluster_rules,
    personal_rules,
    protects,
)

_MANY = "multilabel_mixmatch"
_KIND, _MODEL = ("student", "kind"), ("student", "model")


def student_rules(run: Any) -> Iterator[Problem]:
    """Return what is wrong with the kind of a student, its model, and what else a run says."""
    student = run.student
    made_for_it = student.model in SEMI_SUPERVISED
    own = ":" in student.model
    if run.teachers.model in SEMI_SUPERVISED:
        yield Problem(
            ("teachers", "model"),
            f'Expected a model that learns from labels alone, got "{run.teachers.model}", which is for '
            "students: teachers have no unlabelled rows.",
        )
    if student.kind == "semi_supervised" and not (made_for_it or own):
        yield Problem(
            _MODEL,
            f'Expected one of {", ".join(SEMI_SUPERVISED)} with kind = "semi_supervised", got '
            f'"{student.model}". Any other model can teach itself: kind = "self_taught".',
            (_KIND,),
        )
    if made_for_it and student.kind != "semi_supervised":
        yield Problem(
            _KIND,
            f'Expected "semi_supervised" for the model "{student.model}", got "{student.kind}".',
            (_MODEL,),
        )
    if made_for_it and (student.model == _MANY) != bool(run.labels.names):
        wanted = f'"{_MANY}" for many labels' if run.labels.names else "another model for one class"
        yield Problem(_MODEL, f'Expected {wanted} per row, got "{student.model}".', (("labels", "names"),))
    if student.kind == "semi_supervised":
        for key, value, refused in (
            (("queries", "order"), run.queries.order, "active"),
            (("mechanism", "name"), run.mechanism.name, run.mechanism.hears_student),
        ):
            if refused is True or value == refused:
                yield Problem(
                    _KIND,
                    f'Expected "supervised" or "self_taught" with {key[1]} = "{value}" in [{key[0]}], where '
                    'the student is taught anew in every round, got "semi_supervised".',
                    (key,),
                )


# What the pipeline itself hands to a loader.
_NOT_OPTIONS = (
    "data_dir", "part", "path", "target", "person", "id", "site", "classes", "label_names", "need_labels",
)  # fmt: skip
_EXAMPLES = {
    "mulan": '"train.arff"',
    "voc": '"VOC2012/ImageSets/Main/train.txt"',
    "chexpert": '"CheXpert-v1.0-small/train.csv"',
    "clips": '"city"',
}
_WORDS = {"image": "file", "uncertain": "zeros"}
_WITH_PERSON = (FILES, "image_table")


def check_run(config: RunConfig) -> None:
    """Check that the sections of a run go together."""
    _, problems = check_options(RunConfig, {"seed": config.seed}, ())
    for name, kind in SECTIONS.items():
        if not isinstance(getattr(config, name), kind):
            problems.append(
                Problem((name,), f"Expected a {kind.__name__}, got {type(getattr(config, name)).__name__}.")
            )
    complain(problems or rules(config), config.source, config.lines)


def rules(run: RunConfig | SimpleNamespace) -> Iterator[Problem]:
    """Return what does not go together in settings whose options are right one by one."""
    yield from _data_rules(run)
    yield from label_rules(run)
    yield from _partition_rules(run)
    yield from cluster_rules(run)
    yield from mechanism_rules(run)
    yield from _queries_rules(run)
    budget, student = run.budget, run.student
    if (budget.stop == "private") != (budget.private_epsilon > 0):
        wanted = "above 0" if budget.stop == "private" else "0"
        yield Problem(
            ("budget", "private_epsilon"),
            f'Expected {wanted} with stop = "{budget.stop}", got {budget.private_epsilon:g}. '
            'It is the epsilon at which stop = "private" stops.',
            (("budget", "stop"),),
        )
    yield from _private_stop_rules(run)
    yield from personal_rules(run)
    if student.kind == "distilled" and not hasattr(run.mechanism.kind, "releases_counts"):
        yield Problem(
            ("student", "kind"),
            f'Expected "supervised" with mechanism "{run.mechanism.name}", got "distilled". '
            'Shares of votes are released by mechanism "histogram" alone.',
            (("mechanism", "name"),),
        )
    yield from student_rules(run)
    if student.kind != "distilled":
        for name, usual in (("temperature", 1.0), ("floor", 0.0)):
            if getattr(student, name) != usual:
                yield _only("student", name, 'kind = "distilled"', ("student", "kind"))


def _data_rules(run: Any) -> Iterator[Problem]:
    data, name_key = run.data, ("data", "name")
    is_files = data.name in (FILES, *LAYOUTS)
    if is_files:
        has_classes = not run.labels.names and data.name == FILES
        one_each = not run.labels.names and data.name == CLIPS and bool(data.classes)
        for name, example in (("private", '"private.csv"'), ("target", '"diagnosis"')):
            if not getattr(data, name) and (name == "private" or has_classes):
                yield Problem(
                    ("data", name),
                    f'Expected one with name = "{data.name}", got none. For example: {name} = '
                    f"{_EXAMPLES.get(data.name, example)}",
                    (name_key,),
                )
        if (has_classes or one_each) and len(data.classes) < 2:
            yield Problem(
                ("data", "classes"),
                f"Expected at least two declared classes, got {len(data.classes)}. They are never read off "
                'private labels; for example: classes = ["no", "yes"]',
                (name_key,),
            )
    for name in ("private", "public", "test", "target", "person", "id", "site", "classes"):
        if not getattr(data, name) or data.name == FILES:
            continue
        if name in ("private", "public", "test") and is_files:
            continue
        if name == "person" and data.name in _WITH_PERSON:
            continue
        if name == "classes" and data.name == CLIPS:
            continue
        yield _only("data", name, 'name = "files"', name_key)
    for name, count in (("public", "n_public"), ("test", "n_test")):
        path, n_rows = getattr(data, name), getattr(data, count)
        if is_files and path and n_rows:
            yield Problem(
                ("data", count),
                f"Expected 0 where {name} names a file, got {n_rows}. Keep one of the two.",
                (("data", name), name_key),
            )
        elif is_files and name == "public" and not path and not n_rows:
            yield Problem(
                ("data", name),
                "Expected a file of public rows, or n_public rows of the private file that are set aside and "
                f"not protected, got neither. For example: public = "
                f"""{_EXAMPLES.get(data.name, '"public.csv"').replace("train", "valid")}""",
                (("data", count), name_key),
            )
        elif not is_files and n_rows == 0 and not (count == "n_test" and data.name in HAS_TEST_PART):
            yield Problem(
                ("data", count),
                f'Expected at least 1 for the data set "{data.name}", got 0. '
                "Say how many rows are set aside.",
                (name_key,),
            )
    yield from _loader_rules(data, for_labels=bool(run.labels.names))


def _loader_rules(data: Any, *, for_labels: bool) -> Iterator[Problem]:
    from ...data._label_files import LABEL_LAYOUTS
    from ...data.embedded import LABEL_DATASETS, read_label_table
    from ...data.named import DATASETS
    from ...data.tables import read_table

    own_table: Any = read_label_table if for_labels else read_table
    loaders: Mapping[str, Any] = {**DATASETS, **LABEL_DATASETS, **LABEL_LAYOUTS}
    parameters = inspect.signature(loaders.get(data.name, own_table)).parameters.values()
    own = {p.name: p for p in parameters if p.name not in _NOT_OPTIONS}
    for name in data.options:
        if name not in own:
            yield Problem(
                ("data", "options", name),
                unknown(f'option of "{data.name}"', name, own),
                (("data", "name"),),
            )
    for name, parameter in own.items():
        if data.name in LAYOUTS and parameter.default is parameter.empty and name not in data.options:
            yield Problem(
                ("data", "options"),
                f'Expected {name} for "{data.name}", got none. For example: options = '
                f'{{{name} = "{_WORDS[name]}"}}',
                (("data", "name"),),
            )


def _partition_rules(run: Any) -> Iterator[Problem]:
    part, data, kind = run.partition, run.data, protects(run)
    by = ("partition", "by")
    if kind == "site" and part.n_teachers:
        yield Problem(
            ("partition", "n_teachers"),
            f'Expected 0 with by = "site", where every site is one teacher, got {part.n_teachers}. '
            "Set it to 0.",
            (by,),
        )
    if kind != "site" and not part.n_teachers:
        yield Problem(("partition", "n_teachers"), f'Expected at least 1 with by = "{kind}", got 0.', (by,))
    if kind == "site" and len(part.sites) < 2:
        yield Problem(
            ("partition", "sites"),
            f'Expected at least two declared sites with by = "site", got {len(part.sites)}. They are never '
            'read off private rows; for example: sites = ["north", "south"]',
            (by,),
        )
    if kind != "site" and part.sites:
        yield _only("partition", "sites", 'by = "site"', by)
    if part.stratified and (kind != "record" or data.id):
        yield _only("partition", "stratified", 'by = "record" and no id in [data]', by)
    if data.id and kind != "record":
        yield _only("data", "id", 'by = "record" in [partition]', by)
    named = {
        "person": data.name in ("chexpert", "clips", "diabetes130")
        or (data.name == "synthetic" and "n_persons" in data.options)
    }
    if kind != "record":
        with_column = data.name == FILES or (data.name in _WITH_PERSON and kind == "person")
        has_column = with_column and getattr(data, kind)
        if not has_column and not named.get(kind):
            advice = f'Name the column: {kind} = "..." in [data].' if with_column else 'Take by = "record".'
            yield Problem(
                by,
                f'Expected data that say the {kind} of each row, got none from "{data.name}". {advice}',
                (("data", kind), ("data", "name")),
            )


def mechanism_rules(run: Any) -> Iterator[Problem]:
    """Return what is wrong with the parameters of a mechanism: missing, foreign, or refused by itself."""
    mechanism, name_key = run.mechanism, ("mechanism", "name")
    own = [one for one in declared_fields(mechanism.kind) if not one.metadata.get("of_votes")]
    allowed, given = [one.name for one in own], mechanism.given
    wrong = False
    for one in own:
        if one.default is MISSING and one.name not in given:
            wrong = True
            yield Problem(
                ("mechanism", one.name),
                f'Expected {one.name} for mechanism "{mechanism.name}", got none. '
                f"For example: {one.name} = {example_of(mechanism.name, one.name)}",
                (name_key,),
            )
    for name in given:
        if name not in allowed:
            wrong = True
            yield Problem(
                ("mechanism", name),
                f'Expected only {", ".join(allowed)} for mechanism "{mechanism.name}", got {name} too. '
                "Drop it, or choose the mechanism it belongs to.",
                (name_key,),
            )
    if mechanism.is_for_labels:
        yield from () if wrong else label_mechanism_rules(run)
    elif not wrong:
        try:
            mechanism.build()
        except ValueError as error:  # what the mechanism itself refuses beyond the limits of each option
            about = [name for name in given if re.search(rf"\b{name}\b", str(error))]
            yield Problem(("mechanism", about[-1] if about else "name"), str(error), (name_key,))


def _queries_rules(run: Any) -> Iterator[Problem]:
    queries, mechanism = run.queries, ("mechanism", "name")
    is_interactive = run.mechanism.hears_student
    for name in ("warm_up", "warm_up_threshold"):
        value = getattr(queries, name)
        if is_interactive and not value:
            yield Problem(
                ("queries", name),
                'Expected a number above 0 with mechanism "interactive", got 0. A student that was taught '
                "nothing yet cannot speak: confident voting answers the first queries.",
                (mechanism,),
            )
        if value and not is_interactive:
            yield _only("queries", name, 'mechanism "interactive"', mechanism)
    if queries.first and (queries.order != "active" or is_interactive):
        if is_interactive:
            words = f'Expected 0 with mechanism "interactive", got {queries.first}. There warm_up says it.'
            yield Problem(("queries", "first"), words, (mechanism,))
        else:
            yield _only("queries", "first", 'order = "active"', ("queries", "order"))
    if queries.per_round and queries.order != "active" and not is_interactive:
        yield Problem(
            ("queries", "per_round"),
            'Expected it only with order = "active" or mechanism "interactive", where a student is taught in '
            f"rounds, got {queries.per_round}. Drop it.",
            (("queries", "order"), mechanism),
        )


def _private_stop_rules(run: Any) -> Iterator[Problem]:
    """A data-dependent cost is followed along a path that was fixed beforehand, query by query."""
    for key, value, refused in (
        (("queries", "order"), run.queries.order, ("active",)),
        (("mechanism", "name"), run.mechanism.name, () if run.mechanism.has_exact_cost else None),
    ):
        if run.budget.stop == "private" and (refused is None or value in refused):
            yield Problem(
                ("budget", "stop"),
                f'Expected "public" with {key[1]} = "{value}" in [{key[0]}], got "private".',
                (key,),
            )


def _only(section: str, name: str, condition: str, related: Key) -> Problem:
    return Problem(
        (section, name), f"Expected it only with {condition}, got it without. Drop it.", (related,)
    )
