"""The first tables: ledgers, their lines, and the rules that keep these append-only."""

import sqlalchemy as sa
from alembic import op

revision = "lines"
down_revision = None
branch_labels = None
depends_on = None

# The chain would show a changed line; the triggers keep honest programs from changing one at all.
RULES = (
    """
CREATE FUNCTION tellers_never() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a ledger is append-only' USING ERRCODE = 'integrity_constraint_violation';
END
$$
""",
    """
CREATE FUNCTION tellers_next() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    head RECORD;
BEGIN
    SELECT number, hash INTO head FROM tellers_lines
        WHERE ledger = NEW.ledger ORDER BY number DESC LIMIT 1;
    IF NEW.number <> coalesce(head.number + 1, 0)
        OR NEW.previous <> coalesce(head.hash, repeat('0', 64)) THEN
        RAISE EXCEPTION 'a ledger is append-only' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NEW;
END
$$
""",
    "CREATE TRIGGER tellers_only_added BEFORE INSERT ON tellers_lines "
    "FOR EACH ROW EXECUTE FUNCTION tellers_next()",
    "CREATE TRIGGER tellers_never_changed BEFORE UPDATE OR DELETE ON tellers_lines "
    "FOR EACH ROW EXECUTE FUNCTION tellers_never()",
    "CREATE TRIGGER tellers_never_emptied BEFORE TRUNCATE ON tellers_lines "
    "FOR EACH STATEMENT EXECUTE FUNCTION tellers_never()",
    "CREATE TRIGGER tellers_never_renamed BEFORE UPDATE OR DELETE ON tellers_ledgers "
    "FOR EACH ROW EXECUTE FUNCTION tellers_never()",
)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "tellers_ledgers",
        sa.Column("id", sa.Integer, sa.Identity(always=True), primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
    )
    op.create_table(
        "tellers_lines",
        sa.Column("ledger", sa.Integer, sa.ForeignKey("tellers_ledgers.id"), primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        # As JSON: a database's text cannot hold every string, and a key may be any.
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.UniqueConstraint("ledger", "kind", "key"),
    )
    for statement in RULES:
        op.execute(statement)


def downgrade() -> None:
    """Refuse: going back would be forgetting what was spent."""
    raise RuntimeError("A ledger is not taken back. Export it, and import it where it should be.")
