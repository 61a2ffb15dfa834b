"""`override`, for every Python that we run on: typing has it from 3.12 on, and type checkers know it from elsewhere."""

__all__ = ["override"]

# Type checkers know this name; at run time nobody who needs a decorator has to load `typing` for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):
        """Mark a method that takes the place of its parent's."""
        return method
