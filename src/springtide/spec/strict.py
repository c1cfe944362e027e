"""What all parts of a cluster file are made of."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator


class Strict(BaseModel):
    """Refuses keys it does not know, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_default(cls, data: Any) -> Any:
        """A key with nothing after it stands for its default, as if it were not there."""
        if data is None:
            return {}
        if not isinstance(data, dict):
            return data
        return {k: v for k, v in data.items() if v is not None or k not in cls.model_fields}

    def but(self, **fields: Any) -> Self:
        """This with other values for some fields, checked again."""
        mine = {field: getattr(self, field) for field in type(self).model_fields}
        return self.model_validate(mine | fields)
