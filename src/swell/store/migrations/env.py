"""Alembic asks this file how to connect; `migrate.py` hands the connection over."""

from alembic import context

from swell.store.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
