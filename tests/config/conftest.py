"""Settings drawn at random, all of them valid: what a property of reading and writing is tried on."""

import pytest
from hypothesis import strategies as st

from tellers.runs import (
    BudgetConfig,
    DataConfig,
    LabelsConfig,
    MechanismConfig,
    PartitionConfig,
    PersonalConfig,
    QueriesConfig,
    ReportConfig,
    RunConfig,
    StudentConfig,
    SumConfig,
    TeachersConfig,
)

texts = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12)
names = texts.filter(str.strip)
numbers = st.floats(min_value=1e-12, max_value=1e12)
plain = st.recursive(
    st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
parameters = st.dictionaries(texts, plain, max_size=3)
models = st.sampled_from(["logistic", "forest", "scaled_svm", "cnn", "package.module:Name"])


@st.composite
def data_sections(draw):
    """Return one of files, of a data set with a test part, or of one without."""
    if draw(st.booleans()):
        aside = draw(st.booleans())
        return DataConfig(
            name="files",
            private=draw(names),
            public="" if aside else draw(names),
            test=draw(st.just("") | names),
            target=draw(names),
            person=draw(names),
            site=draw(names),
            n_public=draw(st.integers(1, 900)) if aside else 0,
            classes=tuple(draw(st.lists(names, min_size=2, max_size=4, unique=True))),
            directory=draw(texts),
            options=draw(
                st.sampled_from([{}, {"features": ["a"], "categories": {"blood type": ["0", "A"]}}])
            ),
        )
    name = draw(st.sampled_from(["digits", "mnist", "diabetes130", "synthetic"]))
    options = {"synthetic": {"n_persons": 50, "difficulty": 0.5}, "diabetes130": {"balanced": True}}
    return DataConfig(
        name=name, n_public=draw(st.integers(1, 10**6)), n_test=draw(st.integers(name != "mnist", 10**6)),
        options=options.get(name, {}),
    )  # fmt: skip


@st.composite
def personal_sections(draw):
    """Return budgets per group, dealt at random, by any variant with its own options."""
    levels = draw(st.dictionaries(names, st.floats(1e-3, 1e3), min_size=1, max_size=3))
    variant = draw(st.sampled_from(["weighting", "vanishing", "upsampling"]))
    own = {
        "weighting": {"weights": draw(st.sampled_from(["epsilon", "price"])), "precision": 0.05},
        "vanishing": {"power": draw(st.floats(0.1, 9)), "min_persons": draw(st.integers(0, 99))},
        "upsampling": {
            "grow": draw(st.sampled_from(["teachers", "shares"])),
            "most": draw(st.integers(1, 99)),
        },
    }
    return PersonalConfig(
        variant=variant, levels=levels, shares=dict.fromkeys(levels, 1 / len(levels)),
        leave=draw(st.booleans()), max_groups=draw(st.integers(1, 99)),
        **own[variant],
    )  # fmt: skip


@st.composite
def runs(draw):
    """Return settings in which every option goes with every other."""
    data = draw(data_sections())
    has_persons = data.name in ("files", "diabetes130", "synthetic")
    by = draw(st.sampled_from(["record", *["person"] * has_persons, *["site"] * (data.name == "files")]))
    partition = PartitionConfig(
        n_teachers=0 if by == "site" else draw(st.integers(1, 10**5)),
        by=by,
        stratified=by == "record" and draw(st.booleans()),
        sites=tuple(draw(st.lists(names, min_size=2, max_size=4, unique=True))) if by == "site" else (),
    )
    name = draw(st.sampled_from(["lnmax", "gnmax", "confident", "interactive", "histogram"]))
    own = {"gamma"} if name == "lnmax" else {"sigma"}
    own |= {"threshold", "sigma_threshold"} if name in ("confident", "interactive") else set()
    values = {p: draw(st.floats(0.01, 1e4)) for p in sorted(own)}
    if name == "interactive":
        values["student_confidence"] = draw(st.floats(0, 1))
    order = draw(st.sampled_from(["shuffled", "given", "active"]))
    listens, active = name == "interactive", order == "active"
    stops = not active and name in ("lnmax", "gnmax", "confident") and draw(st.booleans())
    even = by != "site" and not partition.stratified and not stops
    has_groups = even and name in ("gnmax", "confident", "interactive") and draw(st.booleans())
    counts = st.integers(0, 10**6)
    distilled = name == "histogram" and draw(st.booleans())
    return RunConfig(
        seed=draw(st.integers(0, 2**63 - 1)),
        data=data,
        partition=partition,
        teachers=TeachersConfig(
            model=draw(models), parameters=draw(parameters), n_jobs=draw(counts), retries=draw(counts),
            timeout=draw(st.floats(0, 1e9)),
        ),
        mechanism=MechanismConfig(name=name, **values),
        budget=BudgetConfig(
            epsilon=draw(numbers), delta=draw(st.floats(1e-300, 1, exclude_max=True)), ledger=draw(names),
            stop="private" if stops else "public", private_epsilon=draw(numbers) if stops else 0.0,
        ),
        personal=draw(personal_sections()) if has_groups else PersonalConfig(),
        queries=QueriesConfig(
            order=order, n_queries=draw(counts), n_labels=draw(counts), batch=draw(st.integers(1, 999)),
            warm_up=draw(st.integers(1, 999)) if listens else 0,
            warm_up_threshold=draw(numbers) if listens else 0.0,
            first=draw(counts) if active and not listens else 0,
            per_round=draw(counts) if active or listens else 0,
        ),
        student=StudentConfig(
            kind="distilled" if distilled else "supervised", model=draw(models), parameters=draw(parameters),
            temperature=draw(numbers) if distilled else 1.0, floor=draw(numbers) if distilled else 0.0,
        ),
        report=ReportConfig(private=draw(st.booleans())),
    )  # fmt: skip


LABEL_PARAMETERS = {
    "binary": {},
    "confident-binary": {"threshold": 30.0, "sigma_threshold": 9.0},
    "tau": {"max_norm": 1.5, "norm": "l1"},
    "confident-tau": {"max_norm": 1.5, "threshold": 30.0, "sigma_threshold": 9.0},
    "powerset": {"max_labels": 1},
    "confident-powerset": {"threshold": 30.0, "sigma_threshold": 9.0},
    "partial-powerset": {},
    "gnthreshold": {"share": 0.3},
    "confident-gnthreshold": {"n_top": 1, "confident_share": 0.7, "sigma_gate": 12.0},
    "adaptive-gnthreshold": {"scale": 20.0, "shares": (0.3, 0.5)},
}


@st.composite
def label_runs(draw):
    """Return settings of a run with many labels per row, by any mechanism for those."""
    labels = tuple(draw(st.lists(names, min_size=1, max_size=4, unique=True)))
    name = draw(st.sampled_from(sorted(LABEL_PARAMETERS)))
    own = dict(LABEL_PARAMETERS[name])
    if name == "partial-powerset":
        own["groups"] = (labels[:2],)
    implied = name.endswith("binary") and len(labels) > 1 and draw(st.booleans())
    in_parts = name.endswith(("binary", "gnthreshold")) and draw(st.booleans())
    n_limits = draw(st.sampled_from([1, len(labels)]))
    limits = draw(st.lists(st.floats(0.01, 1), min_size=n_limits, max_size=n_limits))
    made = draw(st.booleans())
    return RunConfig(
        seed=draw(st.integers(0, 2**63 - 1)),
        data=DataConfig(name="made_multilabel", n_public=draw(st.integers(1, 900)))
        if made
        else DataConfig(name="files", private=draw(names), public=draw(names)),
        labels=LabelsConfig(
            names=labels,
            thresholds=(0.5,) if in_parts else tuple(limits),
            resolution=100 if in_parts else 1,
            implies={labels[0]: [labels[1]]} if implied else {},
        ),
        mechanism=MechanismConfig(name=name, sigma=draw(st.floats(0.01, 1e4)), **own),
        queries=QueriesConfig(order=draw(st.sampled_from(["shuffled", "given"]))),
        report=ReportConfig(private=draw(st.booleans())),
    )


@st.composite
def sum_runs(draw):
    """Return settings of a run that asks one Gaussian sum, of classes or of many labels."""
    many, declared = draw(st.booleans()), draw(st.booleans())
    shares = draw(st.lists(st.floats(0.001, 0.999), min_size=2, max_size=2))
    own = {"prior": tuple(shares)} if declared else {"prior_share": draw(st.floats(0.01, 0.5))}
    return RunConfig(
        data=DataConfig(name="made_multilabel" if many else "digits"),
        labels=LabelsConfig(names=("sun", "rain") if many else ()),
        teachers=TeachersConfig(model=draw(st.sampled_from(["auto", "logistic", "my.own:Teacher"]))),
        mechanism=MechanismConfig(name="gaussian-sum"),
        sum=SumConfig(
            sigma=draw(st.sampled_from([0.0, 3.0, 90.0])), n_directions=draw(st.integers(1, 900)),
            balance=draw(st.floats(0, 1)), **own,
        ),
        budget=BudgetConfig(rule=draw(st.sampled_from(["renyi", "clock"]))),
        student=StudentConfig(model=draw(st.sampled_from(["auto", "my.own:Student"]))),
    )  # fmt: skip


@pytest.fixture(scope="session")
def any_run():
    """Return the strategy that draws valid settings."""
    return runs() | label_runs() | sum_runs()
