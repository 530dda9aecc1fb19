"""Recipe: a sweep as TOML: what is trained or simulated, what is varied, and, for a study, what its source reports.

title, source, hardware, differs    what was published, on what, and how ours is another experiment
plan, repeats                       of every training unless an axis says otherwise
crowds = false                      leaves out cells with more ranks than there are cores
by         training                 every cell is trained here
           simulation               its plan is predicted on a described machine; `auto` is searched for first
           search                   a search for its plan is timed
design     grid                     every value of each axis with every value of the others
           one-at-a-time            the base, and each value of each axis alone
           optuna                   `trials` cells that Optuna chooses for the best `measure`
[axes]                              plan, plan.OPTION or a key of the config = [values]; for Optuna also
                                    {low, high, log}
[[grids]]                           instead of axes: several grids, each with the name of its `line` if it has one
[plans.NAME]                        a plan as its file would have it, which an axis then names
[base] [small] [full]               keys of the config, and of studies.simulation_options where nothing is trained;
                                    `axes` in the last two replace those above, `grids` are added to them
[claim]                             what the source found, and how that is judged (studies.claims)
[[published]]                       its figures, by the label of the cell that they stand beside
"""

import json
import shlex
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from manyhands.config import Config, keys, with_values
from manyhands.errors import ConfigError, InputError, choices
from manyhands.files import read_toml
from manyhands.plan.options import OPTIONS
from manyhands.plan.plan import Plan
from manyhands.plan.plan import from_table as plan_from_table
from manyhands.plan.spec import parse
from manyhands.studies.grid import LINE, Case, Values, grid, is_plan, label, one_at_a_time, varying
from manyhands.studies.recipe_schema import check_range, check_told, check_types
from manyhands.studies.simulation_options import KEYS as VIRTUAL_KEYS
from manyhands.studies.simulation_options import Virtual

DESIGNS = ("grid", "one-at-a-time", "optuna")
BY = ("training", "simulation", "search")
PLOTS = ("bars", "line", "scaling", "none")
SIZED = ("axes", "grids")  # of [small] and [full], beside keys of the config


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One sweep, as its file has it."""

    name: str
    file: str = ""  # where it is from, if it is a user's
    title: str = ""
    source: str = ""
    hardware: str = ""  # that the source used
    differs: str = ""
    plan: str = "serial"
    options: str = ""  # of every plan
    repeats: int = 3
    by: str = "training"
    design: str = "grid"
    trials: int = 0
    measure: str = "test_accuracy"
    plot: str = "bars"
    columns: Sequence[str] = ()  # derived ones (studies.derived_metrics)
    whole: int | None = None  # training samples that the source used
    crowds: bool = True  # whether more ranks may be trained with than there are cores
    axes: Values = field(default_factory=dict)
    grids: Sequence[Values] = ()
    plans: Mapping[str, Values] = field(default_factory=dict)
    base: Values = field(default_factory=dict)
    small: Values = field(default_factory=dict)
    full: Values = field(default_factory=dict)
    claims: Sequence[Values] = ()
    published: Sequence[dict[str, Any]] = ()

    def config(self, full: bool, changes: Values) -> Config:
        """What every cell shares; `changes` are the user's."""
        values = self._values(full, changes)
        return with_values(Config(), {key: value for key, value in values.items() if not self._is_virtual(key)})

    def virtual(self, full: bool, changes: Values) -> Virtual | None:
        """Where and how every cell is simulated; None where it is trained."""
        return None if self.by == "training" else Virtual().with_values(self._values(full, changes))

    def _values(self, full: bool, changes: Values) -> dict[str, Any]:
        sized = {key: value for key, value in (self.full if full else self.small).items() if key not in SIZED}
        return {**self.base, **sized, **changes}

    def _is_virtual(self, key: str) -> bool:
        return self.by != "training" and key in VIRTUAL_KEYS

    def varied(self, full: bool) -> list[dict[str, Any]]:
        """The axes of each grid."""
        own = self.full if full else self.small
        grids = [*self.grids, *own.get("grids", ())]
        return [dict(grid) for grid in (grids or [own.get("axes") or self.axes])]

    def cells(self, full: bool) -> list[Values]:
        """The values of every cell, each once, in order."""
        make = one_at_a_time if self.design == "one-at-a-time" else grid
        return [cell for axes in self.varied(full) for cell in make(axes)]

    def case(self, cell: Values, config: Config, told: Collection[str], where: Virtual | None = None) -> Case:
        """A cell as a plan and a config; `told` are the axes that its label names."""
        other = {key: value for key, value in cell.items() if not is_plan(key) and key != LINE}
        changes = {key: value for key, value in other.items() if not self._is_virtual(key)}
        name = label({key: value for key, value in cell.items() if key in told})
        own = where.with_values(other) if where else None
        return Case(name, self._plan(cell), with_values(config, changes), cell, own)

    def _plan(self, cell: Values) -> Plan:
        name = str(cell.get("plan", self.plan))
        options = [self.options] if self.options else []
        options += [f"{key.partition('.')[2]}={cell[key]}" for key in cell if key.startswith("plan.")]
        if name not in self.plans:
            return parse(",".join([name, *options]))
        said = parse(",".join(["auto", *options])).said()  # auto takes every option
        return plan_from_table({**self.plans[name], **said}, f"recipe {self.name}: plans.{name}")

    def cases(self, full: bool, config: Config, where: Virtual | None = None) -> list[Case]:
        """Every cell as a plan and a config."""
        cells = self.cells(full)
        told = varying(cells)
        if any(LINE in cell for cell in cells):  # which stands for all that a grid has one value of
            told = {LINE, "plan", *(key for axes in self.varied(full) for key in axes if _several(axes[key]))}
        where = where or self.virtual(full, {})
        return [self.case(cell, config, told, where) for cell in cells]


def _several(values: Any) -> bool:
    return isinstance(values, list) and len(values) > 1


def shipped() -> Traversable:
    return files("manyhands.recipes")


def names() -> list[str]:
    """The shipped ones."""
    return sorted(each.name.removesuffix(".toml") for each in shipped().iterdir() if each.name.endswith(".toml"))


def read(name: str) -> Recipe:
    """The recipe of a shipped name, or of a user's TOML file."""
    if name.endswith(".toml") or "/" in name:
        path = Path(name)
        return replace(from_table(path.stem, read_toml(path, "recipe", ConfigError, "give an existing one")), file=name)
    if name not in names():
        raise InputError(f"unknown study '{name}': {choices(name, names())}; or the path of your own recipe.toml")
    return from_table(name, tomllib.loads((shipped() / f"{name}.toml").read_text()))


def from_table(name: str, table: Mapping[str, Any]) -> Recipe:
    """A recipe from its TOML table, checked as far as it can be without a machine."""
    known = [each.name for each in fields(Recipe) if each.name not in ("name", "file")]
    for key in table:
        if key not in known:
            raise ConfigError(f"recipe {name}: unknown key '{key}': {choices(key, known)}")
    check_types(name, table)
    flat: dict[str, Any] = {"title": name, **table}
    for part in ("base", "small", "full", "axes"):
        flat[part] = _flat(name, part, flat.get(part, {}))
    flat["grids"] = [_flat(name, "grids", each) for each in flat.get("grids", [])]
    recipe = Recipe(name=name, **flat)
    _check(recipe)
    check_told(name, recipe)
    return recipe


def _flat(name: str, part: str, table: Any) -> dict[str, Any]:
    """Sections as dotted keys: [base] model.name = … is base["model.name"]."""
    if not isinstance(table, Mapping):
        raise ConfigError(f"recipe {name}: {part} is {table!r}; a table such as [{part}] is needed")
    flat: dict[str, Any] = {}
    for section, values in table.items():
        if section == "axes":
            flat["axes"] = _flat(name, f"{part}.axes", values)
        elif section == "grids":
            if not isinstance(values, list):
                raise ConfigError(f"recipe {name}: {part}.grids={values!r}: tables such as [[{part}.grids]] are needed")
            flat["grids"] = [_flat(name, f"{part}.grids", each) for each in values]
        elif isinstance(values, Mapping) and not values.keys() & {"low", "high"}:
            flat.update({f"{section}.{key}": value for key, value in values.items()})
        else:
            flat[section] = values
    return flat


def _check(recipe: Recipe) -> None:
    said = f"recipe {recipe.name}:"
    for key, value, words in (("design", recipe.design, DESIGNS), ("by", recipe.by, BY), ("plot", recipe.plot, PLOTS)):
        if value not in words:
            raise ConfigError(f"{said} {key}={value}: {choices(str(value), words)}")
    if not isinstance(recipe.repeats, int) or recipe.repeats < 1:
        raise ConfigError(f"{said} repeats={recipe.repeats}: a whole number, at least 1, is needed")
    if recipe.design == "optuna" and (not isinstance(recipe.trials, int) or recipe.trials < 1):
        raise ConfigError(f"{said} trials={recipe.trials}: a whole number, at least 1, is needed for design=optuna")
    if recipe.design == "optuna" and recipe.by != "training":
        raise ConfigError(f"{said} by={recipe.by} does not go with design=optuna: use grid or one-at-a-time")
    if recipe.design == "optuna" and not recipe.crowds:
        raise ConfigError(f"{said} crowds=false does not go with design=optuna: use grid or one-at-a-time")
    tables = [recipe.varied(full) for full in (False, True)]
    if recipe.design == "optuna" and not all(len(table) == 1 and table[0] for table in tables):
        raise ConfigError(f"{said} design=optuna chooses from one table [axes]; write that, and no [[grids]]")
    own = () if recipe.by == "training" else VIRTUAL_KEYS
    allowed = ["plan", *(f"plan.{option}" for option in OPTIONS), *own, *keys(Config())]
    for full in (False, True):
        for axes in recipe.varied(full):
            for key, values in axes.items():
                _check_axis(said, key, values, allowed, recipe.design)
        recipe.config(full, {})
        if recipe.design != "optuna":
            recipe.cases(full, recipe.config(full, {}))


def _check_axis(said: str, key: str, values: Any, allowed: Sequence[str], design: str) -> None:
    if key == LINE:
        return
    if key not in allowed:
        raise ConfigError(f"{said} unknown axis '{key}': {choices(key, allowed)}")
    if isinstance(values, Mapping) and design == "optuna":
        check_range(said, key, values)
    elif isinstance(values, Mapping) or values == []:
        raise ConfigError(f"{said} axis {key}={values!r}: a list of values is needed")


Row = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """A recipe, and what the user said about it."""

    recipe: Recipe
    full: bool = False
    repeats: int | None = None
    changes: Mapping[str, str] | None = None  # of the config, and of where it is simulated
    smoke: bool = False  # one cell, two steps: does it run?

    def __post_init__(self) -> None:
        for key in self.changes or {}:
            if any(key in axes for axes in self.recipe.varied(self.full)):
                raise ConfigError(f"--set {key}: study {self.recipe.name} varies it; copy its recipe to change that")

    @property
    def times(self) -> int:
        """Trainings or searches of each cell; a simulation says the same each time."""
        return 1 if self.smoke or self.recipe.by == "simulation" else self.repeats or self.recipe.repeats

    @property
    def config(self) -> Config:
        return self.recipe.config(self.full, self.changes or {})

    @property
    def virtual(self) -> Virtual | None:
        return self.recipe.virtual(self.full, self.changes or {})

    @property
    def command(self) -> str:
        words = ["manyhands study", shlex.quote(self.recipe.file or self.recipe.name)]
        words += ["--full"] * self.full + ["--smoke"] * self.smoke
        words += [f"--repeats {self.repeats}"] if self.repeats else []
        return " ".join([*words, *(f"--set {key}={value}" for key, value in (self.changes or {}).items())])

    def to_json(self) -> dict[str, Any]:
        told = asdict(replace(self, changes=dict(self.changes or {})))
        del told["recipe"]["file"]  # the same recipe may be named by another path
        return json.loads(json.dumps(told))  # type: ignore[no-any-return]
