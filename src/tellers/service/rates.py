"""How often somebody asked in the last minute, counted in the store of keys: processes share the count."""

import math
import time
from collections.abc import Callable

import sqlalchemy as sql

WINDOW = 60
"""Seconds; a limit holds in any so many of them."""

TABLES = sql.MetaData()
_RATES = sql.Table(
    "tellers_rates", TABLES,
    sql.Column("who", sql.String(64), primary_key=True),
    sql.Column("second", sql.BigInteger, primary_key=True, autoincrement=False),
    sql.Column("n", sql.Integer, nullable=False),
)  # fmt: skip

_MINE = "FROM tellers_rates WHERE who = :who AND second >= :first"
# One statement looks and counts: nobody comes in between who also finds room.
_HIT = sql.text(
    "INSERT INTO tellers_rates (who, second, n) "
    f"SELECT :who, :second, 1 WHERE (SELECT coalesce(sum(n), 0) {_MINE}) < :most "
    "ON CONFLICT (who, second) DO UPDATE SET n = tellers_rates.n + 1 RETURNING n"
).bindparams(sql.bindparam("who", type_=sql.String), sql.bindparam("second", type_=sql.BigInteger))
_SEEN = sql.text(f"SELECT second, n {_MINE} ORDER BY second")
_FORGET = sql.text("DELETE FROM tellers_rates WHERE who = :who AND second < :first")
_FORGET_ALL = sql.text("DELETE FROM tellers_rates WHERE second < :first")
# In PostgreSQL a statement sees what was there when it began, so it begins when the others are done. The
# server's clock is everybody's; what a crash loses is a minute old at most, so nobody waits for a disk.
_TURN = sql.text(
    "SELECT pg_advisory_xact_lock(hashtextextended('tellers_rates ' || :who, 0)), "
    "set_config('synchronous_commit', 'off', true), extract(epoch FROM clock_timestamp())"
)


class Rates:
    """Counts what somebody does, by the second, for all processes that share a database.

    >>> engine = sql.create_engine("sqlite://")
    >>> TABLES.create_all(engine)
    >>> rates = Rates(engine, clock=lambda: 1000.25)
    >>> [rates.hit("alice", most=2), rates.hit("alice", most=2), rates.hit("bob", most=2)]
    [0, 0, 0]
    >>> rates.hit("alice", most=2)
    61
    """

    def __init__(self, engine: sql.Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._engine, self._clock = engine, clock
        self._is_server = engine.dialect.name == "postgresql"

    def hit(self, who: str, *, most: int) -> int:
        """Count one more and return 0, or count nothing and return the seconds to wait.

        Guarantee: never more than `most` in any minute, whichever processes counted them; a second that has
                   begun counts as a whole, so that somebody may wait up to one too long.
        Assumes:   the processes share a clock: that of the machine for a file, of the server for a database.
        Reference: none.
        """
        with self._engine.connect() as connection:
            now = self._turn(connection, who)
            second = math.floor(now)
            place = {"who": who, "first": second - WINDOW}
            found = connection.execute(_HIT, {**place, "second": second, "most": most}).scalar()
            if found is None:
                seen = connection.execute(_SEEN, place).all()
                connection.rollback()
                return wait_for([(int(at), int(n)) for at, n in seen], most=most, now=now)
            if found == 1:  # a new second: the oldest are not needed any more
                connection.execute(_FORGET, place)
            connection.commit()
        return 0

    def forget(self) -> None:
        """Remove what is too old to count, of everybody.

        >>> engine = sql.create_engine("sqlite://")
        >>> TABLES.create_all(engine)
        >>> Rates(engine).forget()
        """
        with self._engine.begin() as connection:
            connection.execute(_FORGET_ALL, {"first": math.floor(self._turn(connection, "")) - WINDOW})

    def _turn(self, connection: sql.Connection, who: str) -> float:
        if not self._is_server:
            return self._clock()
        return float(connection.execute(_TURN, {"who": who}).one()[2])


def wait_for(seen: list[tuple[int, int]], *, most: int, now: float) -> int:
    """Return after how many whole seconds one more fits, by what was seen in each second so far.

    >>> wait_for([(100, 1), (130, 2)], most=3, now=131.5)
    30
    """
    left = sum(n for _, n in seen)
    for second, n in seen:
        left -= n
        if left < most:
            return max(1, math.ceil(second + WINDOW + 1 - now))
    return 1
