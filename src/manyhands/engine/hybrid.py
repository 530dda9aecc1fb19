"""Hybrid: a model whose layers are each split in their own way over the ranks: by sample, by parameter, by reduction,
on some of the ranks or on all.

    forward     every layer brings what it takes to where it wants it (engine.cut), and gives parts
    backward    gradients of results go back the same ways
    update      gradients of weights are added up over those that differ in their samples alone
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manyhands.data.feed import Batch
from manyhands.engine.batchnorm import over_ranks
from manyhands.engine.cut import Cut, check, slices
from manyhands.engine.exchange import Alone, Given
from manyhands.engine.part import feature_dim, part_of, plain
from manyhands.engine.post import Lay, Post
from manyhands.engine.replicated import Make
from manyhands.engine.team import Team
from manyhands.errors import ModelError
from manyhands.graph.graph import Graph
from manyhands.plan.layout import Layout, reduction_groups, sample_groups, taken
from manyhands.plan.split import Split


class Hybrid(Alone):
    """One rank's side."""

    def __init__(
        self, model: nn.Module, make: Make, clip: float | None, graph: Graph, splits: Sequence[Split], team: Team
    ) -> None:
        # Ranks are seeded apart; those that have the same must draw the same.
        self.team, self.post = team, Post(team.rank, team.told(torch.initial_seed()))
        modules = dict(model.named_modules())
        whole = sum(each.numel() for each in model.parameters())
        named = [name for name, each in model.named_parameters() if each.requires_grad]
        chosen = {
            member.name.partition("@")[0]: (member, split)
            for layer, split in zip(graph.layers, splits, strict=True)
            for member in layer.members or (layer,)
        }
        groups = _Groups(splits, team)
        self.cuts: list[Cut] = []
        for name, (layer, split) in chosen.items():
            module = modules.get(name)
            if module is None or any(module.children()):
                continue
            check(module, layer, split)
            if isinstance(module, _BatchNorm):
                over_ranks(module, groups.team(split))
            self.cuts.append(Cut(name, module, layer, split, self.post, groups.of(reduction_groups(split))))
        homes = {f"{cut.name}.{name}": (cut, name) for cut in self.cuts for name in cut.shapes}
        if outside := [name for name in named if name not in homes]:
            raise ModelError(
                f"parameters {', '.join(outside[:3])} are not in a layer of their own: such a model cannot be cut; "
                "use data:N"
            )
        self.trained = [homes[name] for name in named]  # in the order of one device's optimizer
        self.loss_layout = _rows_of(splits[-1])
        # Of those that have the same samples in the loss the first one tells it.
        places = self.loss_layout.places
        mine = places.get(team.rank)
        self.voice = float(mine is not None and next(each for each in places if places[each] == mine) == team.rank)
        self.whole = 0  # samples of the batch that is worked on
        self.input_layout = _rows_of(splits[0])
        self.sums: dict[Any, list[nn.Parameter]] = {}  # by group, in one order on all of its ranks
        for cut in self.cuts:
            if (group := groups.of(sample_groups(cut.split))) is not None:
                own = [each for each in cut.module.parameters(recurse=False) if each.requires_grad]
                self.sums.setdefault(group, []).extend(own)
        own = [each for each in model.parameters() if each.requires_grad]
        # A rank may have no layer that learns, and an optimizer wants something.
        super().__init__(model, make(own or [nn.Parameter(torch.zeros(0))]), clip)
        self.size = whole  # as it was before this rank kept its part alone

    def bytes_sent(self) -> tuple[int, int] | None:
        return self.post.sent_bytes, self.post.sent_bytes

    def rank_state(self) -> dict[str, Tensor]:
        return {"draws": torch.tensor([self.post.draws])}

    def load_rank_state(self, tensors: dict[str, Tensor]) -> None:
        if "draws" in tensors:
            self.post.draws = int(tensors["draws"])

    def given(self, batch: Batch) -> Given:
        self.whole = len(batch[0])
        inputs, labels = (layout.span(self.team.rank, self.whole) for layout in (self.input_layout, self.loss_layout))
        asked = tuple(each[labels.begin : labels.end] for each in batch)
        taken = asked if inputs == labels else tuple(each[inputs.begin : inputs.end] for each in batch)
        return Given(taken, asked, labels.size / self.whole, labels.size if self.voice else 0)

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's output for this rank's samples in the loss, from its samples of the input."""
        dim = feature_dim(inputs)
        layout = self.input_layout.of(inputs.shape[dim] if dim else 1)
        output = self.model(part_of(inputs, self.post, Lay(layout, self.whole, dim)))
        return self.post.moved(plain(output), output.lay, self.loss_layout.of(output.lay.layout.columns[-1]))

    predict = forward

    def update(self) -> None:
        self.post.finish()
        for group, parameters in self.sums.items():
            self._add_up(group, parameters)
        if self.clip is not None:
            self._clip(self.clip)
        self.optimizer.step()

    def _add_up(self, group: Any, parameters: Sequence[nn.Parameter]) -> None:
        """Gradients of all weights that a group has, in one message; a rank without samples adds nothing."""
        for each in parameters:
            if each.grad is None:
                each.grad = torch.zeros_like(each)
        gradients = [each.grad for each in parameters if each.grad is not None]
        if not gradients:
            return
        row = torch.cat([each.reshape(-1) for each in gradients])
        dist.all_reduce(row, group=group)
        self.post.sent_bytes += row.numel() * row.element_size()
        for gradient, part in zip(gradients, torch.split(row, [each.numel() for each in gradients]), strict=True):
            gradient.copy_(part.view(gradient.shape))

    def _clip(self, most: float) -> None:
        """By the norm of all gradients, in which each part of a weight counts once."""
        own = [getattr(cut.module, name) for cut in self.cuts for name in cut.shapes if cut.owned(name)]
        grads = [each.grad for each in own if each is not None and each.grad is not None]
        device = next((each.device for each in grads), torch.device("cpu"))
        squares = [grad.double().square().sum() for grad in grads] or [
            torch.zeros((), dtype=torch.float64, device=device)
        ]
        norm = float(self.team.sum(torch.stack(squares).sum()).sqrt())
        factor = min(most / (norm + 1e-6), 1.0)
        for each in self.optimizer.param_groups[0]["params"]:
            if each.grad is not None:
                each.grad.mul_(factor)

    def weights(self) -> dict[str, Tensor]:
        """Every tensor of the whole model."""
        return {
            f"{cut.name}.{name}": self._whole(cut, name, {"": getattr(cut.module, name, None)})[""]
            for cut in self.cuts
            for name in cut.shapes
        }

    def load_weights(self, tensors: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for cut in self.cuts:
                for name in cut.shapes:
                    if (where := cut.mine(name)) is not None:
                        getattr(cut.module, name).copy_(tensors[f"{cut.name}.{name}"][slices(where)])

    def state(self) -> dict[str, Any]:
        """As the optimizer of the whole model has it: by the number of each parameter."""
        found: dict[int, dict[str, Any]] = {}
        for number, (cut, name) in enumerate(self.trained):
            own = getattr(cut.module, name, None)
            found[number] = self._whole(cut, name, dict(self.optimizer.state.get(own, {})) if own is not None else {})
        (group,) = self.optimizer.state_dict()["param_groups"]
        return {"state": found, "param_groups": [{**group, "params": list(range(len(self.trained)))}]}

    def load_state(self, state: dict[str, Any]) -> None:
        (group,) = state["param_groups"]
        own: dict[int, Any] = {}
        for number, (cut, name) in enumerate(self.trained):
            if (where := cut.mine(name)) is None:
                continue
            told, shape = state["state"].get(number, {}), cut.shapes[name]
            own[len(own)] = {
                key: each[slices(where)].clone() if isinstance(each, Tensor) and each.shape == shape else each
                for key, each in told.items()
            }
        if own:
            super().load_state({"state": own, "param_groups": [{**group, "params": list(range(len(own)))}]})

    def _whole(self, cut: Cut, name: str, tensors: dict[str, Any]) -> dict[str, Any]:
        """Tensors like a weight of the whole model, put together from the parts that ranks have."""
        shape, own = cut.shapes[name], cut.mine(name)
        parts = tuple(span.size for span in own) if own is not None else ()
        mine = {key: each.detach() if isinstance(each, Tensor) else each for key, each in tensors.items()}
        found: dict[str, Any] = {}
        for told in self.team.gathered([(where, parts, mine) for where in cut.owned(name)]):
            for where, size, values in told:
                for key, each in values.items():
                    if not isinstance(each, Tensor) or tuple(each.shape) != size:
                        found[key] = each  # a number of steps, say
                        continue
                    whole = found.setdefault(key, each.new_empty(shape))
                    whole[slices(where)] = each
        return found


def _rows_of(split: Split) -> Layout:
    """The samples of a layer's parts, with all features."""
    return taken(split, 1, False).together()


class _Groups:
    """Process groups by their members, made in one order on all ranks."""

    def __init__(self, splits: Sequence[Split], team: Team) -> None:
        self.rank = team.rank
        wanted = {
            members
            for split in splits
            for groups in (sample_groups(split), reduction_groups(split))
            for members in groups
            if len(members) > 1
        }
        everyone = tuple(range(team.world))
        self.made: dict[tuple[int, ...], Any] = {
            members: dist.group.WORLD if members == everyone else dist.new_group(list(members))
            for members in sorted(wanted)
        }

    def of(self, groups: Sequence[tuple[int, ...]]) -> Any:
        """The one of these groups in which this rank is; none where it is in none, or alone."""
        mine = next((members for members in groups if self.rank in members), ())
        return self.made.get(mine)

    def team(self, split: Split) -> Team:
        mine = next((members for members in sample_groups(split) if self.rank in members), ())
        return Team(mine.index(self.rank), len(mine), self.made.get(mine)) if mine else Team()
