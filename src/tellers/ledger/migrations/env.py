"""Run by alembic: bring the tables of a database up to date, on the connection that `migrate` brought."""

from alembic import context

from tellers.ledger.sql.connection import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
