"""The part of `Graph` that plans and applies schemas."""

from __future__ import annotations

from omnigraph.engine.core import Core
from omnigraph.engine.evolve import SchemaApplyResult, apply_schema, plan_schema
from omnigraph.model.plan import SchemaPlan


class SchemaCalls:
    """Mixed into `Graph`."""

    def _opened(self) -> Core:
        raise AssertionError("Graph says what is open")

    def plan_schema(self, source: str, allow_data_loss: bool = False) -> SchemaPlan:  # noqa: FBT001, FBT002 - the signature is fixed by the API
        """The steps from the graph's schema to this one, without taking them."""
        return plan_schema(self._opened(), source, allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        source: str,
        allow_data_loss: bool = False,  # noqa: FBT001, FBT002 - likewise
        actor: str | None = None,
        *,
        idempotency_key: str | None = None,
    ) -> SchemaApplyResult:
        """Bring the graph to this schema in one commit; refused while other branches exist.

        With `allow_data_loss`, the past of dropped types and properties goes too. With an
        `idempotency_key` the schema is applied once, however often it is submitted.
        """
        return apply_schema(
            self._opened(),
            source,
            allow_data_loss=allow_data_loss,
            actor_id=actor,
            idempotency_key=idempotency_key,
        )
