"""Models by name, for files and command lines; code passes estimators."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

_SCALED = "scaled_"
_NETWORKS = ("cnn", "torch_mlp")
_SOUND = ("tellers.runs.sound:", "tellers.audio.")
# Learn from unlabelled rows too, and are students alone.
SEMI_SUPERVISED: dict[str, str] = {
    "gan": "GanStudent",
    "mean_teacher": "MeanTeacherStudent",
    "mixmatch": "MixMatchStudent",
    "multilabel_mixmatch": "MultilabelMixMatchStudent",
    "vat": "VatStudent",
}


def _make(place: str, *first: Any, **parameters: Any) -> Any:
    """Return a model by where its class is, "package.module:Name", which is imported for it."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)(*first, **parameters)


_TORCH = "tellers.nn.classifier:TorchClassifier"
MODELS: dict[str, Callable[..., Any]] = {
    "boosting": partial(_make, "sklearn.ensemble:HistGradientBoostingClassifier"),
    "cnn": partial(_make, _TORCH, "cnn"),
    "extra_trees": partial(_make, "sklearn.ensemble:ExtraTreesClassifier"),
    "forest": partial(_make, "sklearn.ensemble:RandomForestClassifier"),
    "logistic": partial(_make, "sklearn.linear_model:LogisticRegression", max_iter=1000),
    "mlp": partial(_make, "sklearn.neural_network:MLPClassifier", max_iter=500),
    "naive_bayes": partial(_make, "sklearn.naive_bayes:GaussianNB"),
    "neighbours": partial(_make, "sklearn.neighbors:KNeighborsClassifier"),
    "svm": partial(_make, "sklearn.svm:SVC"),
    "torch_mlp": partial(_make, _TORCH, "mlp"),
    "tree": partial(_make, "sklearn.tree:DecisionTreeClassifier"),
    **{name: partial(_make, f"tellers.students.torch:{kind}") for name, kind in SEMI_SUPERVISED.items()},
}


def model_names() -> list[str]:
    """Return every name that `make_model` knows."""
    alone = (*_NETWORKS, *SEMI_SUPERVISED)
    return [*MODELS, *(_SCALED + name for name in MODELS if name not in alone)]


def uses_torch(name: str) -> bool:
    """Say whether a model by its name is a torch network."""
    return name in _NETWORKS or name in SEMI_SUPERVISED or name.startswith(_SOUND)


def model_name(model: Any) -> str:
    """Return the name of an estimator's class, of a pipeline's last step."""
    steps = getattr(model, "steps", None)
    return type(steps[-1][1] if isinstance(steps, list) else model).__name__


def make_model(
    name: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    n_classes: int | None = None,
    image_shape: tuple[int, ...] | None = None,
) -> Any:
    """Return an unfitted model by its name, or by where it is: "package.module:Name".

    `scaled_` before a name of scikit-learn's standardises the features first, by the rows it is fitted on.
    What `package.module:Name` names is imported and called with the parameters: only take settings from
    people whose code you would run. Networks are told the classes and the shape of images.
    """
    given = dict(parameters or {})
    try:
        if ":" in name:
            return _make(name, **given)
        if name == "multilabel_mixmatch":  # as many outputs as there are labels, which the labels say
            return MODELS[name](image_shape=image_shape, **given)
        if uses_torch(name):
            return MODELS[name](n_classes=n_classes, image_shape=image_shape, **given)
        if name in model_names():
            model = MODELS[name.removeprefix(_SCALED)](**given)
            return _scaled(model) if name.startswith(_SCALED) else model
    except (ImportError, AttributeError) as error:
        if ":" not in name:
            raise
        raise ValueError(f"Expected a model at {name!r}, found none: {error}.") from error
    except TypeError as error:
        raise ValueError(f"Expected parameters of the model {name!r}, got others: {error}.") from error
    known = ", ".join(MODELS)
    raise ValueError(f"Expected a model: {known} (or scaled_...), or package.module:Name, got {name!r}.")


def _scaled(model: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), model)
