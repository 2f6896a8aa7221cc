"""What all parts of the settings have in common.

Guarantee: frozen, and an unknown key is refused; numbers are finite, and `true` is not the number 1.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, field_validator
from pydantic_core import PydanticCustomError


class Section(BaseModel):
    """A frozen part of the settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_values(cls, value: Any) -> Any:
        """There are no switches: pydantic would read `true` as the number 1."""
        if isinstance(value, bool):
            raise PydanticCustomError("rule", "must not be true or false")  # noqa: EM101  pydantic's template
        return value
