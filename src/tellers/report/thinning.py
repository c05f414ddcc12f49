"""Long lists of points, made short enough to be read."""

_MOST_ROWS = 24


def thinned(points: tuple[tuple[int, float], ...]) -> list[tuple[int, float]]:
    """Return at most about two dozen points, evenly taken, the last one always.

    >>> len(thinned(tuple((n, 0.1 * n) for n in range(1000)))), thinned(((10, 0.5), (20, 0.7)))[-1]
    (24, (20, 0.7))
    """
    if len(points) <= _MOST_ROWS:
        return list(points)
    step = (len(points) - 1) / (_MOST_ROWS - 1)
    return [points[round(i * step)] for i in range(_MOST_ROWS)]
