"""TOML fields: a table of a machine file, read field by field, with one line for what is wrong."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from manyhands.errors import MachineError, choices

MOST = 10**15  # beyond any machine, and small enough that no sum with it overflows


class Fields:
    """The fields of one table. Those that nobody has asked for are unknown, which `finish` refuses."""

    def __init__(self, table: Mapping[str, Any], place: str) -> None:
        self.table, self.place = table, place  # the place is the file, and the entry of a list in it
        self.asked: dict[str, None] = {}  # in order

    def finish(self) -> None:
        for key in self.table:
            if key not in self.asked:
                raise MachineError(f"{self.place}: unknown field '{key}': {choices(key, self.asked)}")

    def get(self, key: str, default: Any = None) -> Any:
        """The value as it stands; without a default it must be there."""
        self.asked[key] = None
        value = self.table.get(key, default)
        if value is None:
            raise MachineError(f"{self.place}: {key} is missing: add a line {key} = …")
        return value

    def refuse(self, key: str, value: Any, needed: str) -> MachineError:
        shown = f"'{value}'" if isinstance(value, str) else str(value)
        return MachineError(f"{self.place}: {key} is {shown[:60]}: {needed} is needed")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.refuse(key, value, 'a text in "quotes"')
        return value

    def choice(self, key: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self.text(key, default)
        if value not in allowed:
            raise MachineError(f"{self.place}: {key} is '{value}': {choices(value, allowed)}")
        return value

    def whole(self, key: str, least: int, default: int | None = None, most: int = MOST) -> int:
        value = self.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            limit = f"from {least} to {most}" if most < MOST else f"at least {least}"
            raise self.refuse(key, value, f"a whole number, {limit},")
        return value

    def number(self, key: str, *, zero: bool = False) -> float:
        """A number above zero, or zero where that is allowed. Not-a-number fails the comparison too."""
        value = self.get(key)
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST
        if not fits or (value == 0 and not zero):
            raise self.refuse(key, value, "a number, zero or above," if zero else "a number above zero")
        return float(value)

    def entries(self, key: str) -> list["Fields"]:
        """The tables of a list; none where the field is not there."""
        value = self.get(key, [])
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            raise self.refuse(key, value, f"a list of tables, each under a line [[{key}]],")
        return [Fields(each, f"{self.place}: entry {number} of {key}") for number, each in enumerate(value, 1)]

    def distinct(self, key: str, names: Sequence[str]) -> None:
        """Refuse two entries of a list for one thing."""
        for name, count in Counter(names).items():
            if count > 1:
                raise MachineError(f"{self.place}: {key} has '{name}' {count} times: leave one of them")
