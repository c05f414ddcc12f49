"""Numbers for Prometheus, public ones alone: requests, released outcomes, prices that hold for any votes."""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .books import Standing


class Metrics:
    """What a service counts.

    >>> metrics = Metrics()
    >>> metrics.count_labels(n_answered=3, n_silent=1)
    >>> metrics.count_request("POST", "/v1/labels", 200, seconds=0.01)
    >>> text = metrics.text(Standing(1.0, 1e-5, 0.25, 0.75, 30)).decode()
    >>> 'tellers_labels_total{outcome="silent"} 1.0' in text, "tellers_queries_left 30.0" in text
    (True, True)
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "tellers_requests_total",
            "Requests, by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "tellers_request_seconds", "How long requests took.", ["route"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10), registry=self.registry,
        )  # fmt: skip
        self._labels = Counter(
            "tellers_labels_total", "Labels released, and silences.", ["outcome"], registry=self.registry
        )
        self._refused = Counter(
            "tellers_refused_total", "Questions refused for want of budget.", registry=self.registry
        )
        self._gauges = {
            name: Gauge(f"tellers_{name}", words, registry=self.registry)
            for name, words in {
                "epsilon": "The budget of the data.",
                "epsilon_spent": "What was spent of it, reservations included.",
                "queries_left": "Queries that are still paid for at the present setting.",
            }.items()
        }
        self._groups = {
            name: Gauge(f"tellers_group_{name}", words, ["group"], registry=self.registry)
            for name, words in {
                "epsilon": "The budget of a group of people.",
                "epsilon_spent": "What was spent of it, reservations included.",
                "queries_left": "Queries that it still pays for at the present setting.",
            }.items()
        }

    def count_request(self, method: str, route: str, status: int, *, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def count_labels(self, *, n_answered: int, n_silent: int) -> None:
        """Count released outcomes."""
        self._labels.labels("answered").inc(n_answered)
        self._labels.labels("silent").inc(n_silent)

    def count_refused(self) -> None:
        """Count a question that no budget paid for.

        >>> Metrics().count_refused()
        """
        self._refused.inc()

    def text(self, standing: Standing, groups: Mapping[str, Standing] | None = None) -> bytes:
        """Return everything in the format of Prometheus, with how the budgets stand now."""
        for name, gauge in self._gauges.items():
            gauge.set(getattr(standing, name))
        for account, stands in (groups or {}).items():
            for name, gauge in self._groups.items():
                gauge.labels(account.removeprefix("group/")).set(getattr(stands, name))
        return generate_latest(self.registry)
