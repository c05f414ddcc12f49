"""Make the golden files: `python tests/golden/make.py STEP...`, where a step is a function `make_STEP`.

`inputs` writes the tables, votes and settings that commands are tried on. `old` makes what a later version
must still read: ledgers, runs, students, teachers. Both are made once and kept; making them again with a
later version would pin nothing. `record` writes down what commands say of them, and is run again where a
change of behaviour is meant; the difference of the golden files then shows what changed.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import numpy as np  # noqa: E402
from golden_files import INPUTS, OLD, call, documented, inputs, layout, outcome, pack, write  # noqa: E402

CLASSES = ["ill", "well", "unsure"]
LABELS = ["fever", "cough", "rash"]

# Sections of run settings. Classes lie far apart and noise is small beside twelve equal votes, so what a run
# releases does not hang on what is drawn.
FILES = """
[data]
name = "files"
private = "private.csv"
public = "public.csv"
test = "test.csv"
target = "outcome"
classes = ["ill", "well", "unsure"]
person = "who"
"""
LABEL_FILES = """
[data]
name = "files"
private = "labels.csv"
public = "public.csv"
test = "labels_test.csv"

[labels]
names = ["fever", "cough", "rash"]
"""
BUDGET = """
[budget]
epsilon = 400.0
delta = 1e-4
"""
USUAL = """
[partition]
n_teachers = 12

[teachers]
model = "naive_bayes"
n_jobs = 1
"""
STUDENT = """
[student]
model = "naive_bayes"
"""
QUERIES = """
[queries]
n_queries = 12
batch = 5
"""
GNMAX = """
[mechanism]
name = "gnmax"
sigma = 1.0
"""
LEVELS = """
[personal]
variant = "{}"
levels = {{low = 60.0, high = 120.0}}
file = "consent.csv"
"""


def _mechanism(**parameters):
    lines = [f"{name} = {json.dumps(value)}" for name, value in parameters.items()]
    return "\n[mechanism]\n" + "\n".join(lines) + "\n"


def _run(data=FILES, mechanism=GNMAX, queries=QUERIES, student=STUDENT, usual=USUAL, budget=BUDGET, more=""):
    return (data + usual + mechanism + budget + queries + student + more).lstrip()


PRIVATE = "\n[report]\nprivate = true\n"
RUNS = {
    "gnmax": _run(more=PRIVATE),
    "record": _run(FILES.replace('person = "who"\n', 'id = "who"\n').replace("private.csv", "records.csv")),
    "lnmax": _run(mechanism=_mechanism(name="lnmax", gamma=2.0)),
    "confident": _run(
        mechanism=_mechanism(name="confident", sigma=1.0, threshold=6.0, sigma_threshold=0.7), more=PRIVATE
    ),
    "interactive": _run(
        mechanism=_mechanism(
            name="interactive", sigma=1.0, threshold=3.0, sigma_threshold=0.5, student_confidence=0.9
        ),
        queries="\n[queries]\nn_queries = 14\nwarm_up = 9\nwarm_up_threshold = 6.0\nper_round = 5\n",
    ),
    "histogram": _run(
        mechanism=_mechanism(name="histogram", sigma=0.3),
        student='\n[student]\nkind = "distilled"\nmodel = "naive_bayes"\nfloor = 4.0\n',
        budget=BUDGET.replace("400.0", "4000.0"),
    ),
    "active": _run(queries='\n[queries]\norder = "active"\nn_queries = 12\nfirst = 6\nper_round = 3\n'),
    "typical": _run(queries='\n[queries]\norder = "typical"\nn_labels = 9\n'),
    "self-taught": _run(student='\n[student]\nkind = "self_taught"\nmodel = "naive_bayes"\n'),
    "budget-ends": _run(queries="", budget=BUDGET.replace("400.0", "20.0")),
    "stop-private": _run(
        queries="", budget=BUDGET + 'stop = "private"\nprivate_epsilon = 0.5\n'
    ),
    "sites": _run(
        FILES.replace("private.csv", "clinics.csv").replace('person = "who"', 'site = "clinic"').replace(
            'test = "test.csv"\n', ""
        ),
        usual='\n[partition]\nby = "site"\nsites = ["east", "north", "south", "west"]\nn_teachers = 0\n'
        '\n[teachers]\nmodel = "tree"\nn_jobs = 1\n',
        mechanism=_mechanism(name="gnmax", sigma=0.3),
        budget=BUDGET.replace("400.0", "4000.0"),
    ),
    "networks": _run(
        usual=USUAL.replace(
            '"naive_bayes"',
            '"torch_mlp"\nparameters = {epochs = 40, batch_size = 8, learning_rate = 0.05, device = "cpu"}',
        ),
    ),
    "binary": _run(LABEL_FILES, _mechanism(name="binary", sigma=1.0), more=PRIVATE),
    "implications": _run(
        LABEL_FILES + 'implies = {fever = ["cough"]}\nimplies_not = {cough = ["rash"]}\n',
        _mechanism(name="binary", sigma=1.0),
    ),
    "parts-of-votes": _run(LABEL_FILES + "resolution = 10\n", _mechanism(name="binary", sigma=1.0)),
    "confident-binary": _run(
        LABEL_FILES, _mechanism(name="confident-binary", sigma=1.0, threshold=6, sigma_threshold=0.7)
    ),
    "tau": _run(LABEL_FILES, _mechanism(name="tau", sigma=0.7, max_norm=1.5)),
    "confident-tau": _run(
        LABEL_FILES,
        _mechanism(name="confident-tau", sigma=0.7, max_norm=1.5, threshold=6, sigma_threshold=0.7),
    ),
    "powerset": _run(LABEL_FILES, _mechanism(name="powerset", sigma=1.0)),
    "confident-powerset": _run(
        LABEL_FILES, _mechanism(name="confident-powerset", sigma=1.0, threshold=6, sigma_threshold=0.7)
    ),
    "partial-powerset": _run(
        LABEL_FILES, _mechanism(name="partial-powerset", sigma=1.0, groups=[["fever", "cough"], ["rash"]])
    ),
    "gnthreshold": _run(LABEL_FILES, _mechanism(name="gnthreshold", sigma=1.0, share=0.5)),
    "confident-gnthreshold": _run(
        LABEL_FILES,
        _mechanism(
            name="confident-gnthreshold", sigma=1.0, share=0.5, n_top=1, confident_share=0.5, sigma_gate=0.7
        ),
    ),
    "adaptive-gnthreshold": _run(
        LABEL_FILES, _mechanism(name="adaptive-gnthreshold", sigma=1.0, scale=2.0, shares=[0.6, 0.7])
    ),
    "weighting": _run(more=LEVELS.format("weighting") + PRIVATE),
    "vanishing": _run(more=LEVELS.format("vanishing"), mechanism=_mechanism(name="gnmax", sigma=0.6)),
    "upsampling": _run(more=LEVELS.format("upsampling")),
    # The stricter group leaves after six queries, the other one ends the run.
    "leaving": _run(
        queries="\n[queries]\nn_queries = 24\nbatch = 3\n",
        more=LEVELS.format("vanishing").replace("60.0", "20.0").replace("120.0", "50.0") + "leave = true\n",
    ),
    # The generous group leaves after nine queries, and teachers are trained anew without it.
    "leaving-rounds": _run(
        queries="\n[queries]\nn_queries = 24\nbatch = 3\n",
        more=LEVELS.format("upsampling").replace("60.0", "20.0").replace("120.0", "40.0") + "leave = true\n",
    ),
}  # fmt: skip


def _table(path, n_rows, seed, columns=()):
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3
    X = (np.array([[0, 0], [10, 0], [0, 10]])[y] + rng.uniform(-1, 1, (n_rows, 2))).round(2)
    more = {
        "who": [f"p{i // 2}" for i in range(n_rows)],
        "clinic": rng.choice(["east", "north", "south", "west"], n_rows).tolist(),
        "outcome": [CLASSES[k] for k in y],
        "fever": (y == 1).astype(int).tolist(),
        "cough": (y != 0).astype(int).tolist(),
        "rash": (y == 2).astype(int).tolist(),
    }
    lines = [",".join(["dose", "weight", *columns])]
    for i in range(n_rows):
        lines.append(",".join(map(str, [*X[i].tolist(), *(more[name][i] for name in columns)])))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def make_inputs():
    """Write tables, votes and settings."""
    shutil.rmtree(INPUTS, ignore_errors=True)
    INPUTS.mkdir()
    _table(INPUTS / "private.csv", 240, 1, ["who", "outcome"])
    _table(INPUTS / "clinics.csv", 120, 1, ["clinic", "outcome"])
    _table(INPUTS / "public.csv", 24, 2)
    _table(INPUTS / "test.csv", 30, 3, ["outcome"])
    _table(INPUTS / "labels.csv", 240, 1, LABELS)
    _table(INPUTS / "labels_test.csv", 30, 3, LABELS)
    text = (INPUTS / "private.csv").read_text().splitlines()
    numbered = [line.replace(f",p{i // 2},", f",r{i},") for i, line in enumerate(text[1:])]
    (INPUTS / "records.csv").write_text("\n".join([text[0], *numbered]) + "\n")
    people = [f"p{i},{'high' if i % 2 else 'low'}" for i in range(120)]
    (INPUTS / "consent.csv").write_text("\n".join(["person,level", *people]) + "\n")
    for name, settings in RUNS.items():
        (INPUTS / f"run-{name}.toml").write_text(settings, encoding="utf-8")
    (INPUTS / "votes-service.toml").write_text(_service("plain.npz", n_classes=3))
    sure = _service("sure.npz", n_classes=3).replace("9.0", "60.0").replace("sigma = 2.0", "sigma = 1.0")
    (INPUTS / "sure-service.toml").write_text(sure)
    (INPUTS / "tags-service.toml").write_text(_service("tags.npz", n_classes=3))
    (INPUTS / "parts-service.toml").write_text(_service("parts", n_classes=3))
    _votes()
    _wrong_votes()


def _votes():
    """Write every kind of vote file: by the library, as a run does, and by NumPy, as a stranger does."""
    from tellers import LabelVotes, Votes

    save_votes = documented("tellers.teachers", "save_votes")
    save_label_votes = documented("tellers.teachers", "save_label_votes")
    rng = np.random.default_rng(7)
    truth = np.arange(14) % 3
    ballots = np.where(rng.random((20, 14)) < 0.85, truth, rng.integers(3, size=(20, 14)))
    votes = Votes.from_ballots(ballots, n_classes=3)
    student = np.full((14, 3), 0.1)
    student[np.arange(14), truth] = 0.8
    answered = np.arange(14) % 4 != 0
    save_votes(INPUTS / "votes.npz", votes, student=student, answered=answered, truth=truth)
    save_votes(INPUTS / "plain.npz", votes)
    save_votes(INPUTS / "counts.npz", Votes.from_counts(votes.counts, n_teachers=20))
    save_votes(
        INPUTS / "sure.npz", Votes.from_ballots(np.repeat([np.arange(6) % 3], 20, axis=0), n_classes=3)
    )
    np.save(INPUTS / "ballots.npy", ballots.astype(np.uint8))
    with documented("tellers.teachers", "VoteWriter")(INPUTS / "parts") as writer:
        writer.append(votes[:8])
        writer.append(votes[8:])
    (INPUTS / "parts" / ".lock").unlink(missing_ok=True)
    tags = rng.random((20, 10, 4)) < np.where(rng.random((10, 4)) < 0.3, 0.9, 0.05)
    asked = np.arange(40).reshape(10, 4) % 5 != 0
    known = tags.mean(axis=0) > 0.5
    many = LabelVotes.from_ballots(tags, n_labels=4)
    save_label_votes(INPUTS / "tags.npz", many, answered=asked, truth=known)
    save_label_votes(INPUTS / "tag_sums.npz", LabelVotes.from_sums(many.sums, n_teachers=20))
    from scipy import sparse

    rows = sparse.csr_matrix(tags.reshape(200, 4).astype(np.uint8))
    np.savez(
        INPUTS / "tags_sparse.npz", label_data=rows.data, label_indices=rows.indices,
        label_indptr=rows.indptr, label_shape=np.array([20, 10, 4]),
    )  # fmt: skip
    shares = np.clip(0.7 * tags + 0.3 * rng.random(tags.shape), 0, 1).round(2)
    np.savez(INPUTS / "tag_chances.npz", label_ballots=shares)
    parts = LabelVotes.from_ballots(shares, n_labels=4, resolution=10)
    save_label_votes(INPUTS / "tag_parts.npz", parts)


def _wrong_votes():
    """Write vote files that are refused."""
    place = INPUTS / "wrong"
    place.mkdir()
    np.savez(place / "nothing.npz")
    np.savez(place / "both.npz", ballots=np.zeros((3, 2), int), counts=np.array([[3, 0], [3, 0]]))
    np.savez(place / "uneven.npz", counts=np.array([[3, 0], [2, 0]]))
    np.savez(place / "negative.npz", ballots=np.array([[0, -1], [1, 0]]))
    np.savez(place / "masks.npz", ballots=np.zeros((3, 2), int), answered=np.array([True]))
    np.savez(place / "tags.npz", label_ballots=np.full((2, 3, 4), 2))
    np.save(place / "objects.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (place / "text.npz").write_text("no votes here\n")


D = "--delta 1e-5 --json"
GN = "--mechanism gnmax --sigma 4 --classes 3"
CONFIDENT = "--mechanism confident --sigma 4 --threshold 12 --sigma-threshold 8 --classes 3"
MANY = {
    "binary": "--sigma 5",
    "confident-binary": "--sigma 5 --threshold 12 --sigma-threshold 6",
    "tau": "--sigma 5 --max-norm 1.5",
    "confident-tau": "--sigma 5 --max-norm 1.5 --norm l1 --threshold 12 --sigma-threshold 6",
    "powerset": "--sigma 5 --max-labels 2",
    "confident-powerset": "--sigma 5 --threshold 12 --sigma-threshold 6",
    "partial-powerset": "--sigma 5 --groups 0,2;1,3",
    "gnthreshold": "--sigma 5 --share 0.4 --max-labels 3",
    "confident-gnthreshold": "--sigma 5 --n-top 2 --confident-share 0.6 --sigma-gate 6",
    "adaptive-gnthreshold": "--sigma 5 --scale 6 --shares 0.3,0.5",
}
TWENTY = "--delta 0.01 --teachers 20 --classes 3"
LEDGER = "ledger init spend.db --epsilon 3 --delta 1e-5"
SERVICE = "serve --init service.toml --json"
# Commands one after another in a folder with all inputs: what each prints and how it ends is kept.
JOURNEYS = {
    "help": ["--version", "", "nothing", "run", "run --no-such-option", "ledger", "account --help --json"],
    "account": [
        f"account votes.npz {GN} {D}",
        f"account votes.npz {GN} {D} --show-private",
        f"account votes.npz {GN} {D} --budget 3",
        f"account votes.npz {GN} {D} --show-private --orders 2:20",
        f"account votes.npz --mechanism lnmax --gamma 0.2 --classes 3 {D} --show-private",
        f"account votes.npz {CONFIDENT} {D} --show-private",
        f"account votes.npz --mechanism interactive --sigma 4 --threshold 4 --sigma-threshold 8 "
        f"--student-confidence 0.9 --classes 3 {D} --show-private",
        f"account plain.npz {GN} {D} --show-private",
        f"account counts.npz {GN} {D} --show-private",
        f"account ballots.npy {GN} {D} --show-private",
        f"account ballots.npy --mechanism gnmax --sigma 4 {D}",
        f"account parts {GN} {D} --show-private",
    ],
    "account mistakes": [
        f"account votes.npz --mechanism gnmax {D}",
        f"account votes.npz {GN} --gamma 1 {D}",
        f"account votes.npz {GN} --json",
        "account votes.npz --mechanism gnmax --sigma 4 --delta 2",
        f"account votes.npz --mechanism gnmax --sigma -4 {D}",
        f"account votes.npz --mechanism gnmx --sigma 4 {D}",
        f"account votes.npz --mechanism gnmax --sigma 4 --classes 2 {D}",
        f"account votes.npz {GN} --orders 9:2 {D}",
        f"account votes.npz {GN} --budget -1 {D}",
        f"account plain.npz --mechanism interactive --sigma 4 --threshold 4 --sigma-threshold 8 "
        f"--student-confidence 0.9 --classes 3 {D}",
        f"account tags.npz {GN} {D}",
        f"account tags.npz --mechanism tau --sigma 4 {D}",
        f"account tags.npz --mechanism partial-powerset --sigma 4 --groups 0,9 {D}",
        f"account votes.npz --mechanism binary --sigma 4 {D}",
        f"account gone.npz {GN} {D}",
        f"account private.csv {GN} {D}",
        *(f"account wrong/{name} {GN} {D}" for name in (
            "nothing.npz", "both.npz", "negative.npz", "masks.npz", "objects.npy", "text.npz"
        )),
        f"account wrong/uneven.npz --mechanism gnmax --sigma 4 --classes 2 {D}",
        f"account wrong/tags.npz --mechanism binary --sigma 4 {D}",
        f"account . {D}",
    ],
    "account labels": [
        *(f"account tags.npz --mechanism {name} {given} {D} --show-private" for name, given in MANY.items()),
        f"account tags_sparse.npz --mechanism binary --sigma 5 {D} --show-private",
        f"account tag_sums.npz --mechanism binary --sigma 5 {D} --show-private",
        f"account tag_chances.npz --mechanism binary --sigma 5 --resolution 10 {D} --show-private",
        f"account tag_chances.npz --mechanism binary --sigma 5 --label-threshold 0.6 {D} --show-private",
        f"account tag_parts.npz --mechanism gnthreshold --sigma 5 --resolution 10 {D} --show-private",
    ],
    "plan": [
        f"plan --teachers 20 --classes 3 --queries 100 --epsilon 2 --top 3 {D}",
        f"plan --teachers 20 --classes 3 --queries 100 --epsilon 4 --labels 20 {D}",
        f"plan --proxy votes.npz --classes 3 --epsilon 4 --against exact --top 2 {D}",
        f"plan --epsilon 2 {D}",
        f"plan --teachers 0 --classes 3 --epsilon 2 {D}",
        f"plan --teachers 40 --classes 3 --epsilon -2 {D}",
        f"plan --teachers 40 --classes 3 --epsilon 2 --yes-rate 0.1 {D}",
        f"plan --proxy gone.npz --epsilon 2 {D}",
        "plan --teachers 40 --classes 3",
    ],
    "plan labels": [
        f"plan --multilabel --teachers 20 --labels 4 --queries 100 --epsilon 8 --top 4 {D}",
        f"plan --multilabel --proxy tags.npz --epsilon 8 --groups 0,1;2,3 --top 3 {D}",
        f"plan --multilabel --epsilon 8 {D}",
        f"plan --multilabel --teachers 20 --labels 4 --classes 3 --epsilon 8 {D}",
        f"plan --multilabel --teachers 20 --labels 4 --agreement 0.2 --epsilon 8 {D}",
        f"plan --multilabel --proxy tags.npz --labels 5 --epsilon 8 {D}",
    ],
    "publish": [
        f"publish votes.npz {GN} {D} --yes --method envelope",
        f"publish votes.npz {GN} {D} --yes",
        f"publish counts.npz {GN} {D} --yes --method gnss --confidence 0.9",
        f"publish plain.npz {GN} {D} --yes --method independent",
        f"publish tags.npz --mechanism binary --sigma 5 {D} --yes --proxy tags.npz --method envelope",
        f"publish tag_sums.npz --mechanism tau --sigma 5 --max-norm 1.5 {D} --yes",
        f"publish votes.npz {GN} {D}",
        f"publish ballots.npy {GN} {D} --yes --confidence 1.5",
        f"publish votes.npz {GN} {D} --yes --method guess",
        f"publish votes.npz --mechanism gnmax --sigma 5 --classes 3 {D} --yes",
        f"publish gone.npz {GN} {D} --yes",
        f"publish tags_sparse.npz --mechanism powerset --sigma 5 {D} --yes --method envelope",
        f"publish . {D} --yes",
    ],
    "audit": [
        f"audit --mechanism gnmax --sigma 3 {TWENTY} --samples 300 --json",
        f"audit --mechanism gnmax --sigma 3 {TWENTY} --samples 300 --method events --json",
        f"audit --mechanism confident --sigma 3 --threshold 12 --sigma-threshold 5 {TWENTY} --samples 300 "
        "--method queries --json",
        "audit --mechanism tau --sigma 3 --max-norm 1 --labels 2 --teachers 20 --delta 0.01 --samples 200 "
        "--published --json",
        "audit --json",
        "audit gone --json",
        "audit --mechanism gnmax --sigma 3 --json",
        "audit --mechanism gnmax --sigma 3 --delta 0.01 --shadows 9 --json",
        "audit --mechanism gnmax --sigma 3 --delta 0.01 --samples 0 --json",
        "audit --mechanism tau --sigma 3 --max-norm 1 --delta 0.01 --json",
    ],
    "ledger": [
        f"{LEDGER} --account student/alice=0.5 --account group/low=1 --json",
        f"{LEDGER} --json",
        "ledger status spend.db --json",
        "ledger list spend.db --json",
        "ledger list spend.db --account student/alice --json",
        "ledger verify spend.db --json",
        "ledger export spend.db spend.jsonl --json",
        "ledger import spend.jsonl copy.db --json",
        "ledger status copy.db --json",
        "ledger reprice spend.db --json",
        "ledger vault-key vault.key --json",
        "ledger init spend.db --epsilon 4 --delta 1e-5 --json",
        "ledger init x.db --epsilon 2 --json",
        "ledger init x.db --epsilon -2 --delta 1e-5 --json",
        "ledger init x.db --epsilon 2 --delta 1e-5 --account alice --json",
        "ledger status x.db --json",
        "ledger status private.csv --json",
        "ledger list spend.db --account bob --json",
        f"ledger verify spend.db --head {'0' * 64} --json",
        "ledger import spend.jsonl copy.db --json",
        "ledger import private.csv y.db --json",
        "ledger import gone.jsonl y.db --json",
        "ledger vault spend.db --vault gone.sealed --key-file vault.key --json",
        "ledger vault-key vault.key --json",
        "ledger forget spend.db",
    ],
    "init": [
        *(f"init {name}.toml --data {name} --json" for name in (
            "adult", "breast_cancer", "diabetes130", "digits", "fashion_mnist", "made_multilabel", "mnist",
            "svhn", "synthetic", "files", "voc", "chexpert", "clips", "image_table", "mulan",
        )),
        "init digits.toml --json",
        "init digits.toml --force --json",
        "init gone/digits.toml --json",
        "init wrong --json",
        "init x.toml --data mnst --json",
    ],
    "run mistakes": [
        "run gone.toml --json",
        "run private.csv --json",
        "report gone --json",
        "report . --json",
        "account . --json",
        "ask --url http://127.0.0.1:9 --json",
        "ask --pool 0-3 --json",
        "demo --no-such-option",
        "collaborate --parties 3 --askers 9 --json",
        "collaborate --mechanism binary --json",
        "collaborate --mechanism confident --json",
        "collaborate --data gone --json",
    ],
    "collaborate": [
        "collaborate --parties 10 --rows-each 20 --askers 2 --epsilon 10 --epsilon 20 --json --out together",
        "collaborate --data made --parties 10 --rows-each 60 --askers 1 --mechanism binary --sigma 3 "
        "--labels-each 3 --json",
    ],
    "service": [
        SERVICE,
        SERVICE,
        "serve --config service.toml --check --json",
        "serve --config gone.toml --json",
        "serve --config votes-service.toml --check --json",
        "serve --config tags-service.toml --check --json",
        "serve --config parts-service.toml --check --json",
        "keys list --config votes-service.toml --json",
        "keys create --name alice --epsilon 1 --config votes-service.toml --json",
        "keys create --name otto --role operator --config votes-service.toml --json",
        "keys list --config votes-service.toml --json",
        "keys revoke abcdefghijkl --config votes-service.toml --json",
        "keys create --name alice --role king --config votes-service.toml --json",
        "keys create --name ada --role auditor --epsilon 1 --config votes-service.toml --json",
        "keys create --name bob --delta 1e-6 --config votes-service.toml --json",
        "keys create --config votes-service.toml --json",
        "ledger status service.db --json",
    ],
    "party": [
        "party certs certs --party asker:ann --party guardian:guard --party answerer:north --party "
        "answerer:south --json",
        "party init certs --features 4 --classes 3 --json",
        "party price --config certs/guard/party.toml --queries 100 --json",
        "party price --config certs/north/party.toml --epsilon 2 --delta 1e-6 --json",
        "party init certs --features 4 --classes 3 --json",
        "party init certs --features 4 --labels 5 --sigma 12 --force --json",
        "party price --config certs/ann/party.toml --epsilon 2 --delta 1e-6 --json",
        "party init certs --features 4 --json",
        "party init gone --features 4 --classes 3 --json",
        "party certs certs --party asker:ann --json",
        "party certs more --party teacher:ann --json",
        "party price --config gone.toml --json",
        "party ask --config certs/ann/party.toml --rows gone.csv --out labels.csv --json",
    ],
    "audio mistakes": [
        "audio prepare gone --layout esc --json",
        "audio prepare --made 3 --rate 0 --json",
        "audio prepare --made 3 --seconds 0 --json",
        "audio deal gone --json",
        "audio train gone --json",
        "audio sweep gone --json",
        "audio student gone --json",
        "audio tag gone.wav --student gone --json",
    ],
}  # fmt: skip
STEADY = ("publish", "audit")  # what they draw is shown


def _service(source, **more):
    lines = [
        f"{name} = {json.dumps(value)}" for name, value in {"source": "votes", "path": source, **more}.items()
    ]
    return (
        "[data]\n" + "\n".join(lines) + '\n\n[mechanism]\nname = "gnmax"\nsigma = 2.0\n\n[ledger]\n'
        'url = "service.db"\nepsilon = 9.0\ndelta = 1e-5\n\n[server]\nport = 0\n'
    )


def make_commands():
    """Write down what commands print."""
    from golden_files import read_words

    told = {}
    for name, lines in JOURNEYS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = inputs(Path(temporary) / "place")
            steps = []
            for line in lines:
                done = call(read_words(line), folder, steady=name in STEADY)
                steps.append({"command": line, **outcome(done, folder)})
            told[name] = {"steady": name in STEADY, "steps": steps}
    write("commands.json", told)


def make_runs():
    """Write down what runs release, state and leave behind."""
    from golden_files import finished_run

    told = {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = inputs(Path(temporary) / "place")
            told[name] = finished_run(folder, name)
    write("runs.json", told, share=True)


DATA = (
    "adult", "breast_cancer", "diabetes130", "digits", "fashion_mnist", "made_multilabel", "mnist", "svhn",
    "synthetic", "files", "voc", "chexpert", "clips", "image_table", "mulan",
)  # fmt: skip
CHANGES = {
    "cluster": ("digits", [
        ('address = ""', 'address = "tls://scheduler:8786"'), ('folder = ""', 'folder = "s3://bucket/parts"'),
        ('ca = ""', 'ca = "ca.pem"'), ('certificate = ""', 'certificate = "own.pem"'),
        ('key = ""', 'key = "key.pem"'), ("batch = 0", "batch = 4"),
    ]),
    "personal": ("digits", [
        ('variant = ""', 'variant = "upsampling"'), ("levels = {}", "levels = {low = 4.0, high = 8.0}"),
        ("shares = {}", "shares = {low = 0.5, high = 0.5}"), ("leave = false", "leave = true"),
        ("max_groups = 20", "max_groups = 5"),
    ]),
    "implications": ("made_multilabel", [
        ("implies = {}", 'implies = {snow = ["wind"]}'),
        ("implies_not = {}", 'implies_not = {rain = ["fog"]}'),
    ]),
}  # fmt: skip


def make_settings():
    """Keep settings files as `tellers init`, `serve --init` and `party init` write them."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "settings"
        for part in ("run", "service"):
            (folder / part).mkdir(parents=True)
        for name in DATA:
            assert call(["init", f"run/{name}.toml", "--data", name], folder)[0] == 0
        for name, (begun, changes) in CHANGES.items():
            text = (folder / "run" / f"{begun}.toml").read_text()
            for old, new in changes:
                assert f"\n{old}\n" in text, (name, old)
                text = text.replace(f"\n{old}\n", f"\n{new}\n", 1)
            (folder / "run" / f"{name}.toml").write_text(text)
        assert call(["serve", "--init", "service/service.toml"], folder)[0] == 0
        text = (folder / "service" / "service.toml").read_text()
        for old, new in (
            ('source = "run"', 'source = "votes"'), ('path = "study"', 'path = "plain.npz"'),
            ("n_classes = 0", "n_classes = 3"), ('url = ""', 'url = "service.db"'),
            ("epsilon = 0.0", "epsilon = 9.0"), ("delta = 0.0", "delta = 1e-5"),
        ):  # fmt: skip
            assert old in text, old
            text = text.replace(old, new, 1)
        text = text.replace("\n[ledger]\n", '\n[mechanism]\nname = "gnmax"\nsigma = 2.0\n\n[ledger]\n', 1)
        (folder / "service" / "votes.toml").write_text(text)
        names = ["asker:ann", "guardian:guard", "answerer:north", "answerer:south"]
        given = [word for name in names for word in ("--party", name)]
        # Valid for a lifetime: what is kept must be readable for long.
        for kind, more in (("classes", ["--classes", 3]), ("labels", ["--labels", 5, "--sigma", 12])):
            place = f"party-{kind}"
            assert call(["party", "certs", place, *given, "--days", 36500], folder)[0] == 0
            assert call(["party", "init", place, "--features", 4, *more], folder)[0] == 0
        for path in folder.rglob("*key*"):
            path.unlink()  # keys are nobody's to keep
        pack(folder, "settings")
    make_settings_read()


def make_settings_read():
    """Write down how kept settings are read, and what is said of wrong ones."""
    from golden_files import settings_read, unpack, wrong_settings

    with tempfile.TemporaryDirectory() as temporary:
        write(
            "settings.json", settings_read(unpack("settings", Path(temporary)), Path(temporary)), share=True
        )
    told = {}
    for name, (command, text) in MISTAKES.items():
        with tempfile.TemporaryDirectory() as temporary:
            kept = {"command": command, "text": text}
            told[name] = {**kept, **wrong_settings(kept, inputs(Path(temporary) / "place"))}
    write("mistakes.json", told)


def _edited(base, *pairs):
    text = RUNS[base]
    for old, new in pairs:
        assert old in text, (base, old)
        text = text.replace(old, new, 1)
    return ("run wrong.toml --json", text)


def _served(*pairs):
    text = _service("plain.npz", n_classes=3)
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new, 1)
    return ("serve --config wrong.toml --check --json", text)


MISTAKES = {
    "no TOML": ("run wrong.toml", "[data\nname = \"digits\"\n"),
    "a word without quotes": ("run wrong.toml", "[data]\nname = digits\n"),
    "twice": ("run wrong.toml", "[data]\nname = \"digits\"\nname = \"digits\"\n"),
    "an unknown section": ("run wrong.toml", "[dat]\nname = \"digits\"\n"),
    "several at once": (
        "run wrong.toml",
        "seed = -1\n\n[partition]\nn_teacher = 5\n\n"
        "[budget]\nepsilon = 0\ndelta = 2\n\n[mechanism]\nname = \"gnmax\"\n",
    ),
    "an unknown option": _edited("gnmax", ("n_jobs = 1", "jobs = 1")),
    "a wrong type": _edited("gnmax", ("n_teachers = 12", 'n_teachers = "12"')),
    "true is no number": _edited("gnmax", ("n_teachers = 12", "n_teachers = true")),
    "no finite number": _edited("gnmax", ("sigma = 1.0", "sigma = inf")),
    "an unknown data set": _edited("gnmax", ('name = "files"', 'name = "filse"')),
    "an unknown mechanism": _edited("gnmax", ('name = "gnmax"', 'name = "gnmx"')),
    "an unknown model": _edited("gnmax", ('model = "naive_bayes"', 'model = "naive"')),
    "an unknown parameter": _edited("gnmax", ("n_jobs = 1", "parameters = {depth = 3}")),
    "a model that cannot be imported": _edited("gnmax", ('model = "naive_bayes"', 'model = "nowhere:Model"')),
    "a parameter is missing": _edited("gnmax", ("sigma = 1.0\n", "")),
    "a parameter of another": _edited("gnmax", ("sigma = 1.0\n", "sigma = 1.0\ngamma = 0.1\n")),
    "no classes": _edited("gnmax", ('classes = ["ill", "well", "unsure"]\n', "")),
    "one class": _edited("gnmax", ('["ill", "well", "unsure"]', '["ill"]')),
    "no target": _edited("gnmax", ('target = "outcome"\n', "")),
    "an unknown target": _edited("gnmax", ('target = "outcome"', 'target = "result"')),
    "no such file": _edited("gnmax", ("private.csv", "privat.csv")),
    "an undeclared class": _edited("gnmax", ('"unsure"]', '"sure"]')),
    "an unknown person": _edited("gnmax", ('person = "who"', 'person = "whom"')),
    "too small a budget": _edited("gnmax", ("epsilon = 400.0", "epsilon = 0.1")),
    "a password in the ledger": _edited("gnmax", ("delta = 1e-4", 'delta = 1e-4\nledger = "postgresql://a:b@c/d"')),
    "private stop without its epsilon": _edited("gnmax", ("delta = 1e-4", 'delta = 1e-4\nstop = "private"')),
    "no order": _edited("gnmax", ("n_queries = 12", 'n_queries = 12\norder = "random"')),
    "warm-up of another": _edited("gnmax", ("n_queries = 12", "n_queries = 12\nwarm_up = 3")),
    "a distilled student of labels": _edited("gnmax", ("[student]", '[student]\nkind = "distilled"')),
    "a semi-supervised student of trees": _edited(
        "gnmax", ("[student]", '[student]\nkind = "semi_supervised"')),
    "labels with classes": _edited(
        "binary", ('private = "labels.csv"', 'private = "labels.csv"\nclasses = ["a", "b"]')),
    "labels with a vote of classes": _edited("binary", ('name = "binary"', 'name = "gnmax"')),
    "classes with a vote of labels": _edited("gnmax", ('name = "gnmax"', 'name = "binary"')),
    "an unknown label": _edited("binary", ('"rash"]', '"rush"]')),
    "a label twice": _edited("binary", ('"rash"]', '"fever"]')),
    "implications in a circle": _edited(
        "implications", ('implies_not = {cough = ["rash"]}', 'implies_not = {fever = ["fever"]}')
    ),
    "groups of unknown labels": _edited("partial-powerset", ('["rash"]', '["rush"]')),
    "an unknown variant": _edited("weighting", ('"weighting"', '"waiting"')),
    "levels without a source": _edited("weighting", ('file = "consent.csv"\n', "")),
    "two sources of levels": _edited(
        "weighting", ('file = "consent.csv"', 'file = "consent.csv"\ncolumn = "c"')),
    "levels with lnmax": _edited("weighting", ('name = "gnmax"\nsigma = 1.0', 'name = "lnmax"\ngamma = 1.0')),
    "levels with labels": (
        "run wrong.toml --json", RUNS["binary"] + LEVELS.format("weighting")
    ),
    "sites without names": _edited("sites", ('sites = ["east", "north", "south", "west"]\n', "")),
    "a cluster without keys": _edited("gnmax", ("[report]", '[cluster]\naddress = "tls://a:1"\n\n[report]')),
    "a cluster nowhere": _edited("gnmax", ("[report]", '[cluster]\naddress = "nowhere"\n\n[report]')),
    "served: an unknown option": _served(("n_classes = 3", "classes = 3")),
    "served: no votes": _served(("plain.npz", "gone.npz")),
    "served: no budget": _served(("epsilon = 9.0\n", "")),
    "served: an unknown source": _served(('source = "votes"', 'source = "vote"')),
    "served: a port too far": _served(("port = 0", "port = 99999")),
    "served: a mechanism without noise": _served(("sigma = 2.0\n", "")),
    "served: too few classes": _served(("n_classes = 3", "n_classes = 2")),
    "party: nothing": ("party price --config wrong.toml --json", ""),
    "party: an unknown role": (
        "party price --config wrong.toml --json", '[party]\nname = "ann"\nrole = "king"\n'),
}  # fmt: skip


BREAST = """
[data]
name = "breast_cancer"
n_public = 24
n_test = 30
"""
MADE = """
[data]
name = "made_multilabel"
n_public = 20
n_test = 30
options = {n_rows = 240, n_features = 6}

[labels]
names = ["rain", "wind", "snow"]
"""
SYNTHETIC = """
[data]
name = "synthetic"
n_public = 24
n_test = 30
options = {n_rows = 130, n_classes = 3, n_features = 3, difficulty = 0.3}
"""
TEN = USUAL.replace("12", "8")
THREE = USUAL.replace("12", "3").replace(
    '"naive_bayes"', '"torch_mlp"\nparameters = {epochs = 5, device = "cpu"}'
)
NETWORK = """
[student]
kind = "semi_supervised"
model = "{}"
parameters = {{network = "mlp", width = 4, steps = 30, batch_size = 8, pool_batch_size = 8, device = "cpu"}}
"""
# Data that lie in the library, so that a run can be gone on with wherever its folder is.
OLD_RUNS = {
    "classes": _run(BREAST, _mechanism(name="gnmax", sigma=3.0), usual=TEN, more=PRIVATE),
    "confident": _run(
        SYNTHETIC, _mechanism(name="confident", sigma=2.0, threshold=5.0, sigma_threshold=3.0), usual=TEN
    ),
    "labels": _run(MADE, _mechanism(name="binary", sigma=3.0), usual=TEN, more=PRIVATE),
    "groups": _run(
        SYNTHETIC, _mechanism(name="gnmax", sigma=2.0), usual=TEN,
        more=LEVELS.format("weighting").replace('file = "consent.csv"', "shares = {low = 0.5, high = 0.5}"),
    ),
    # A group leaves, and teachers are trained anew without it.
    "rounds": _run(
        SYNTHETIC, usual=TEN, queries="\n[queries]\nn_queries = 24\nbatch = 3\n",
        mechanism=_mechanism(name="gnmax", sigma=1.0),
        more=LEVELS.format("upsampling").replace('file = "consent.csv"', "shares = {low = 0.5, high = 0.5}")
        .replace("60.0", "20.0").replace("120.0", "40.0") + "leave = true\n",
    ),
    "networks": _run(
        SYNTHETIC, _mechanism(name="gnmax", sigma=2.0), student=NETWORK.format("mean_teacher"),
        usual=THREE,
    ),
    "label-networks": _run(
        MADE, _mechanism(name="binary", sigma=2.0), student=NETWORK.format("multilabel_mixmatch"),
        usual=THREE,
    ),
    # So few rows that some teachers have none, and some a single class.
    "few-rows": _run(
        SYNTHETIC.replace("130", "80"), _mechanism(name="gnmax", sigma=3.0), usual=TEN.replace("8", "16")
    ),
    "few-label-rows": _run(
        MADE.replace("240", "72"), _mechanism(name="binary", sigma=3.0), usual=TEN.replace("8", "16")
    ),
}  # fmt: skip
PUBLISHED = ("classes", "labels", "groups")


def make_old():
    """Make what a later version must still read. The names of modules are those of the day it was made."""
    shutil.rmtree(OLD, ignore_errors=True)
    make_settings()
    make_old_runs()
    make_old_books()
    make_old_teachers()
    make_old_students()
    make_old_read()


def make_old_runs():
    """Keep finished runs, without their reports, which are written again."""
    for name, settings in OLD_RUNS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            (folder / "a.toml").write_text(settings)
            code, _, err = call(["run", "a.toml", "--out", name, "--json"], folder)
            assert code == 0, (name, err)
            if name in PUBLISHED:
                words = ["publish", name, "--method", "envelope", "--confidence", 0.9, "--yes", "--json"]
                code, _, err = call(words, folder)
                assert code == 0, (name, err)
            for path in (folder / name).rglob("*.html"):
                path.unlink()
            pack(folder / name, name)


def make_old_books():
    """Keep ledgers, a vault, keys of a service and the record of a publication."""
    from golden_files import VAULT_KEY

    from tellers import (
        Accountant,
        Budget,
        ConfidentGNMax,
        GNMax,
        NoisyHistogram,
        Room,
        SqliteLedger,
        Votes,
        describe,
        noise,
    )

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "books"
        folder.mkdir()
        vault = documented("tellers.ledger", "Vault")(folder / "costs.sealed", VAULT_KEY)
        votes = Votes.from_counts([[240, 6, 4], [130, 118, 2], [250, 0, 0]], n_teachers=250)

        class Pool:
            def vote(self, ids):
                return votes[np.asarray(ids)]

        with SqliteLedger(folder / "spend.db", Accountant(Budget(9.0, 1e-5)), vault=vault) as ledger:
            ledger.open_account("student/alice", Budget(2.0, 1e-5))
            confident = ConfidentGNMax(sigma=20.0, threshold=150.0, sigma_threshold=60.0)
            for key, mechanism in (("a", GNMax(40.0)), ("b", confident), ("c", NoisyHistogram(90.0))):
                Room(Pool(), mechanism, ledger, noise.secure()).ask([0, 1, 2], key=key)
            Room(Pool(), GNMax(60.0), ledger, noise.secure()).ask([0], key="d", account="student/alice")
            ledger.reserve(
                "lost",
                GNMax(60.0).price(votes.unit),
                event={**describe(GNMax(60.0), noise.secure()), "n_queries": 1},
            )
        assert call(["ledger", "export", "spend.db", "spend.jsonl"], folder)[0] == 0
        shutil.copy(INPUTS / "plain.npz", folder / "plain.npz")
        (folder / "service.toml").write_text(_service("plain.npz", n_classes=3))
        for more in (["alice", "--epsilon", 1], ["otto", "--role", "operator"], ["ada", "--role", "auditor"]):
            assert call(["keys", "create", "--config", "service.toml", "--name", *more], folder)[0] == 0
        words = f"publish plain.npz {GN} --method envelope --delta 1e-5 --yes --json"
        assert call(words.split(), folder)[0] == 0
        pack(folder, "books")


def _rounded(model):
    """Make weights of a network few numbers, so that they take little room."""
    model.state_ = {
        name: (np.round(value * 8) / 8).astype(value.dtype) if value.dtype.kind == "f" else value
        for name, value in model.state_.items()
    }
    return model


def _corner(seed=7, n_rows=36):
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3
    X = (np.array([[0, 0], [10, 0], [0, 10]])[y] + rng.uniform(-1, 1, (n_rows, 2))).round(2)
    return X, y, np.stack([y == 1, y != 0, y == 2], axis=1).astype(int)


def make_old_teachers():
    """Keep trained teachers of every kind: those of a library, networks, and those that could not learn."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier
    from tellers.audio.classifier import AudioClassifier
    from tellers.audio.tagger import AudioTagger
    from tellers.teachers.partition import Partition

    from tellers.teachers import (
        TorchClassifier,
        train_ensemble,
        train_label_ensemble,
        train_torch_ensemble,
        train_torch_label_ensemble,
    )  # fmt: skip
    from tellers.teachers.models import save_teacher

    X, y, Y = _corner()
    few = np.flatnonzero(y == 1)
    # Two that learn, one that knows a single class, one without rows.
    rest = np.setdiff1d(np.arange(36), few[:3])
    parts = Partition((rest[::2], rest[1::2], few[:3], np.array([], dtype=int)), unit="one record")
    two = Partition((rest[::2], rest[1::2]), unit="one record")
    many = {
        "tree": DecisionTreeClassifier(), "forest": RandomForestClassifier(n_estimators=2),
        "boosting": HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=2),
        "mlp": MLPClassifier((2,), max_iter=30, solver="adam"),
        "neighbours": KNeighborsClassifier(3, algorithm="brute"),
        "scaled_logistic": make_pipeline(StandardScaler(), LogisticRegression()),
    }  # fmt: skip
    labels = {"labels_logistic": LogisticRegression(), "labels_tree": DecisionTreeClassifier()}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "teachers"
        for name, model in many.items():
            train_ensemble(model, X, y, parts, n_classes=3, seed=7, folder=folder / name, n_jobs=1)
        for name, model in labels.items():
            train_label_ensemble(model, X, Y, parts, n_labels=3, seed=7, folder=folder / name, n_jobs=1)
        network = TorchClassifier("mlp", epochs=2, device="cpu")
        for train, y_or_Y, given, name in (
            (train_torch_ensemble, y, {"n_classes": 3}, "networks"),
            (train_torch_label_ensemble, Y, {"n_labels": 3}, "labels_networks"),
        ):  # fmt: skip
            train(network, X, y_or_Y, two, seed=7, folder=folder / name, n_jobs=1, engine="loop", **given)
        for name in ("sounds", "labels_sounds"):
            (folder / name).mkdir()
        sounds = np.random.default_rng(7).normal(size=(12, 16 * 16)).round(1)
        tagger = AudioTagger(shape=(16, 16), iterations=1, batch_size=4, device="cpu", random_state=7)
        heard = _rounded(tagger.fit(sounds, np.eye(3)[np.arange(12) % 3]))
        save_teacher(folder / "labels_sounds", 0, model=heard, made_of={"n_labels": 3})
        model = AudioClassifier(
            AudioTagger(shape=(16, 16), iterations=1, batch_size=4, device="cpu", random_state=7), n_classes=3
        ).fit(sounds, np.arange(12) % 3)
        inner = next(one for one in vars(model).values() if hasattr(one, "state_"))
        _rounded(inner)
        save_teacher(folder / "sounds", 0, model=model, made_of={"n_classes": 3})
        np.save(folder / "rows.npy", X)
        np.save(folder / "sounds.npy", sounds)
        pack(folder, "teachers")


def make_old_students():
    """Keep exported students with their cards: of estimators, of other models, and one that hears."""
    import hashlib

    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB

    from tellers import Binary, Budget, GNMax, PateClassifier, PateMultilabelClassifier

    X, y, Y = _corner(n_rows=120)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "students"
        given = {"teacher": GaussianNB(), "n_teachers": 6, "budget": Budget(60.0, 1e-3), "random_state": 7}
        one = PateClassifier(
            student=LogisticRegression(), mechanism=GNMax(1.0), n_classes=3, n_queries=9, **given
        )
        one.fit(X[:90], y[:90], public=X[90:]).export(folder / "estimator", name="corners", accuracy=0.9)
        some = PateMultilabelClassifier(
            student=LogisticRegression(), mechanism=Binary(1.0, 3), n_queries=9, **given
        )
        some.fit(X[:90], Y[:90], public=X[90:]).export(folder / "labels_estimator", name="corners")
        np.save(folder / "rows.npy", X[:9])
        around = Path(temporary)
        for words in (
            "audio prepare --made 30 --seconds 0.4 --out city --json",
            "audio train city --out ears --teachers 3 --iterations 2 --jobs 1 --device cpu --json",
            "audio student ears --out study --epsilon 400 --delta 1e-3 --sigma 0.5 --iterations 2 "
            "--device cpu --json",
        ):
            code, _, err = call(words.split(), around)
            assert code == 0, err
        place = folder / "hearing"
        shutil.copytree(around / "study" / "student", place)
        content = _rounded(documented("tellers.card", "load_student")(place)).to_bytes()
        (place / "student.safetensors").write_bytes(content)
        manifest = json.loads((place / "manifest.json").read_text())
        manifest["files"]["student.safetensors"] = hashlib.sha256(content).hexdigest()
        (place / "manifest.json").write_text(json.dumps(manifest, indent=1))
        shutil.copy(around / "city" / "sounds" / "city-000000.wav", folder / "city.wav")
        pack(folder, "students")


def make_old_read():
    """Write down what is read from old files."""
    from golden_files import old_books, old_run, old_students, old_teachers, unpack

    told = {}
    for name, look in (("books", old_books), ("teachers", old_teachers), ("students", old_students)):
        with tempfile.TemporaryDirectory() as temporary:
            told[name] = look(unpack(name, Path(temporary)))
    for name in OLD_RUNS:
        with tempfile.TemporaryDirectory() as temporary:
            told[name] = old_run(unpack(name, Path(temporary)))
    write("old.json", told, share=True)


def make_served():
    """Write down what a service says over HTTP."""
    from golden_files import served

    with tempfile.TemporaryDirectory() as temporary:
        write("served.json", served(inputs(Path(temporary) / "place")))


TAUGHT = "audio student ears --delta 1e-3 --iterations 2 --device cpu --json"
SOUND = [
    "audio prepare --made 30 --seconds 0.4 --out city --json",
    "audio deal city --teachers 1,3 --json",
    "audio deal city --teachers 1,3 --show-private --json",
    "audio train city --out ears --teachers 3 --iterations 2 --jobs 1 --device cpu --json",
    "audio sweep ears --sigma 0.2,0.5 --json",
    f"{TAUGHT} --out study --epsilon 4000 --sigma 0.1",
    f"{TAUGHT} --out study --epsilon 4000 --sigma 0.1",
    f"{TAUGHT} --out second --epsilon 60",
    "account study --json",
    "audio tag city/sounds/city-000000.wav gone.wav --student study --json",
    "audio train city --out ears --teachers 4 --json",
    "demo --out demo --json",
]


def make_sound():
    """Write down what the verbs on sounds print, and the demo: keys, kinds of values, files."""
    from golden_files import shape_of

    told = {"steps": []}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for line in SOUND:
            code, out, err = call(line.split(), folder)
            told["steps"].append(
                {"command": line, "code": code, "shape": shape_of(json.loads(out)) if out else None}
            )
            if code:
                told["steps"][-1] |= {"err": outcome((code, "", err), folder)["err"]}
        told["files"] = {name: layout(folder / name) for name in ("ears", "study", "demo")}
        told["files"]["city"] = {name: "" for name in layout(folder / "city") if "/" not in name}
    write("sound.json", told)


ROOT = HERE.parents[1]


def make_surface():
    """Write down public names, their parameters, commands with their options, and what pages import."""
    from golden_files import command_tree, parameters_of

    import tellers

    names = {name: parameters_of(getattr(tellers, name)) for name in tellers.__all__}
    write("names.json", names)
    write("options.json", command_tree())
    write("imports.json", _imports())


def _imports():
    """Return every name that pages, examples and experiments import, and where."""
    import ast
    import re

    found = {}
    places = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for folder in ("examples", "experiments"):
        places += (ROOT / folder).rglob("*.py")
    for path in sorted(places):
        text = path.read_text(encoding="utf-8")
        blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL) if path.suffix == ".md" else [text]
        for block in blocks:
            typed = [line[4:] for line in block.splitlines() if line.startswith((">>> ", "... "))]
            for node in ast.walk(ast.parse("\n".join(typed) if typed else block)):
                if isinstance(node, ast.ImportFrom) and not node.level:
                    pairs = [(node.module, one.name) for one in node.names]
                elif isinstance(node, ast.Import):
                    pairs = [(one.name, None) for one in node.names]
                else:
                    continue
                for module, name in pairs:
                    if module.split(".")[0] == "tellers":
                        where = found.setdefault(f"{module}:{name}" if name else module, set())
                        where.add(str(path.relative_to(ROOT)))
    for name in (
        "tellers.config:config_as_dict", "tellers.config:read_config", "tellers.config:with_absolute_paths",
        "tellers.teachers:load_ensemble", "tellers.teachers:load_label_ensemble",
        "tellers.teachers:load_torch_ensemble",
    ):  # fmt: skip
        found.setdefault(name, {"named on a page"})
    return {name: sorted(where) for name, where in sorted(found.items())}


def make_record():
    """Write down everything that is said of what is kept."""
    for record in (
        make_commands,
        make_settings_read,
        make_runs,
        make_surface,
        make_old_read,
        make_served,
        make_sound,
    ):
        record()


if __name__ == "__main__":
    for step in sys.argv[1:]:
        globals()[f"make_{step}"]()
