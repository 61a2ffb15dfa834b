"""`override` for every supported Python: `typing` has it only from 3.12 on, type checkers take typing_extensions'."""

__all__ = ["override"]

# Type checkers know this name, so that the decorator does not have to load `typing` at run time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing_extensions import override
else:

    def override(method):
        """Marks a method that overrides its parent's."""
        return method
