"""Hybrid: a model whose layers are each split in their own way over the ranks: by sample, by parameter, by reduction,
on some of the ranks or on all.

    forward     every layer brings what it takes to where it wants it (engine.sharding.sharded_layer), and gives parts
    backward    gradients of results go back the same ways
    update      gradients of weights are added up over those that differ in their samples alone
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from manyhands.comm.ranks.rank_group import Team
from manyhands.compat import BatchNorm
from manyhands.data.sampler import Batch
from manyhands.engine.modules.buffers import average
from manyhands.engine.modules.split_layers import defer
from manyhands.engine.modules.sync_batchnorm import over_ranks
from manyhands.engine.modules.weight_grad_store import WeightGradStore
from manyhands.engine.parameters.sharded_norms import Of, use_norms
from manyhands.engine.sharding.activation import Part, current, feature_dim, part_of, plain
from manyhands.engine.sharding.build import check_tied, chosen_splits
from manyhands.engine.sharding.layers.cross_entropy import FEW, Classes, logits_of
from manyhands.engine.sharding.redistribute import Lay, Post
from manyhands.engine.sharding.sharded_layer import Cut
from manyhands.engine.sharding.tensor_parallel_group import Groups
from manyhands.engine.sharding.weight_shards import check
from manyhands.engine.strategies.base import LocalBatch
from manyhands.engine.strategies.ddp import Make
from manyhands.engine.strategies.single_process import SingleProcess
from manyhands.errors import ModelError
from manyhands.graph.graph import Graph, Layer
from manyhands.plan.pipeline_schedule import stages_per_device
from manyhands.plan.resharding import parameter_groups, reduction_groups, sample_groups
from manyhands.plan.sharding import Split
from manyhands.plan.sharding_rules import SUMMED, takes, takes_all
from manyhands.plan.stages import Pipeline
from manyhands.plan.tensor_layout import Layout, Span, made


class Hybrid(SingleProcess):
    """One rank's side."""

    def __init__(
        self,
        model: nn.Module,
        make: Make,
        clip: float | None,
        graph: Graph,
        splits: Sequence[Split],
        pipeline: Pipeline,
        team: Team,
        seed: int = 0,
        idle: frozenset[str] = frozenset(),
    ) -> None:
        """`seed`: of what layers draw; torch's own differs between ranks, and who has the same draws the same.

        `idle`: parameters that have no gradient; where they are in no layer of the graph every rank has them whole.
        """
        self.team, self.post = team, Post(team.rank, seed, world=team.world, channels_last=_channels_are_last(model))
        self.pipeline, self.later = pipeline, WeightGradStore()
        self._take_place()
        modules = dict(model.named_modules())
        whole = sum(each.numel() for each in model.parameters())
        named = [name for name, each in model.named_parameters() if each.requires_grad]
        check_tied(model)
        tensors = {id(each): name for name, each in (*model.named_parameters(), *model.named_buffers())}
        # What a checkpoint of one device has: no more, and no less.
        self.keys = {key: tensors[id(each)] for key, each in model.state_dict(keep_vars=True).items()}
        last = splits[graph.layers[-1].after[0]]  # of what makes the scores
        chosen = chosen_splits(graph, splits, pipeline.stage)
        wanted = [groups(split) for split in splits for groups in (sample_groups, reduction_groups)]
        taking = [takes(each.layer, each.split) for each in chosen.values() if _takes_all(each.layer)]
        groups = Groups([*wanted, *map(parameter_groups, (*taking, last))], team)
        self.cuts: list[Cut] = []
        for name, (layer, split, grain, follows, stage, before) in chosen.items():
            module = modules.get(name)
            if module is None or (any(module.children()) and not isinstance(module, nn.MultiheadAttention)):
                continue
            check(module, layer, split)
            if isinstance(module, BatchNorm):
                over_ranks(module, groups.team(split))
            summing = groups.of(reduction_groups(split))
            fellows = groups.fellows(takes(layer, split), self.post) if _takes_all(layer) else None
            if pipeline.schedule == "zerobubble":
                defer(module, self.later)
            self.cuts.append(
                Cut(name, module, layer, split, self.post, grain, stage, before, follows, summing, fellows)
            )
        homes = self.homes = {f"{cut.name}.{name}": (cut, name) for cut in self.cuts for name in cut.shapes}
        outside = [name for name in named if name not in homes]
        self.idle = {name: model.get_parameter(name) for name in outside if name in idle}
        if outside := [name for name in outside if name not in idle]:
            raise ModelError(
                f"parameters {', '.join(outside[:3])} are not in a layer of their own: such a model cannot be cut; "
                "use data:N"
            )
        # By their number in one device's optimizer, which counts those that are in no layer too.
        self.named = named
        self.trained = {number: homes[name] for number, name in enumerate(named) if name in homes}
        # Of layers other than batch norms: ranks with other samples may come to other ones.
        self.counted = [
            (f"{cut.name}.{name}", group)
            for cut in self.cuts
            if not isinstance(cut.module, BatchNorm) and (group := groups.of(sample_groups(cut.split))) is not None
            for name, _ in cut.module.named_buffers()
        ]
        self.loss_layout = _rows_of(splits[-1])
        self.scores_layout, self.scorers = made(last, last.parameter), groups.fellows(last, self.post)
        # Of those that have the same samples in the loss the first one tells it.
        places = self.loss_layout.places
        mine = places.get(team.rank)
        self.voice = float(mine is not None and next(each for each in places if places[each] == mine) == team.rank)
        self.whole = 0  # samples of the batch that is worked on
        self.input_layout = _rows_of(splits[0])
        self.sums: dict[Any, list[nn.Parameter]] = {}  # by group, in one order on all of its ranks
        for cut in self.cuts:
            if (group := groups.of(sample_groups(cut.split))) is not None:
                self.sums.setdefault(group, []).extend(cut.added())
        own = [each for each in model.parameters() if each.requires_grad]
        # A rank may have no layer that learns, and an optimizer wants something.
        super().__init__(model, make(own or [nn.Parameter(torch.zeros(0))]), clip)
        self.size = whole  # as it was before this rank kept its part alone
        parts = {
            own: Of(number, len(cut.shapes[name]), bool(cut.owned(name)))
            for number, (cut, name) in self.trained.items()
            if (own := cut.tensor(name)) is not None
        }
        use_norms(self.optimizer, team, parts, len(named))

    def _take_place(self) -> None:
        """Tell the post of this rank's stages, where it has several."""
        pipeline, rank = self.pipeline, self.team.rank
        if stages_per_device(pipeline.schedule) > 1:
            position, count = pipeline.position[rank], 1 + max(pipeline.stage)
            self.post.stages = tuple(range(position, count, pipeline.positions))
            self.post.peers = frozenset(each for each, at in pipeline.position.items() if at == position)

    def bytes_sent(self) -> tuple[int, int] | None:
        return self.post.sent_bytes, self.post.sent_bytes

    def rank_state(self) -> dict[str, Tensor]:
        return {"steps": torch.tensor([self.post.step])}

    def load_rank_state(self, tensors: dict[str, Tensor]) -> None:
        if "steps" in tensors:
            self.post.step = int(tensors["steps"])

    def given(self, batch: Batch) -> LocalBatch:
        self.whole = len(batch[0])
        inputs, labels = (layout.span(self.team.rank, self.whole) for layout in (self.input_layout, self.loss_layout))
        if self.post.handover is not None:  # of the samples whose turn it is
            turn = self.input_layout.span(self.post.handover.turn, self.whole)
            part = self.loss_layout.span(self.team.rank, turn.size)
            labels = Span(turn.begin + part.begin, turn.begin + part.end)
        asked = tuple(each[labels.begin : labels.end] for each in batch)
        taken = asked if inputs == labels else tuple(each[inputs.begin : inputs.end] for each in batch)
        return LocalBatch(taken, asked, labels.size / self.whole, labels.size if self.voice else 0)

    def forward(self, inputs: Tensor) -> Tensor:
        """The model's output for this rank's samples in the loss, from its samples of the input."""
        output = self._output(inputs)
        return self._logits(output) if self._stays(output) else self._gathered(output)

    def predict(self, inputs: Tensor) -> Tensor:
        """The same, with all classes."""
        return self._gathered(self._output(inputs))

    def _output(self, inputs: Tensor) -> Part:
        dim = feature_dim(inputs)
        layout = self.input_layout.of(inputs.shape[dim] if dim else 1)
        output = self.model(part_of(inputs, self.post, Lay(layout, self.whole, dim)))
        if not isinstance(output, Part):
            raise ModelError(
                f"the model gives {tuple(output.shape)} whose samples cannot be told: such a model cannot be cut; use "
                "data:N"
            )
        found = current(output, "the loss")
        assert isinstance(found, Part)
        return found

    def _gathered(self, output: Part) -> Tensor:
        return self.post.moved(plain(output), output.lay, self.loss_layout.of(output.lay.layout.columns[-1]))

    def _stays(self, output: Part) -> bool:
        """Whether those that have the scores of some of many classes work out the loss of the same samples."""
        layout = output.lay.layout
        of_classes = output.lay.dim == 1 == output.dim() - 1 and layout.places == self.scores_layout.places
        cut = not layout.whole and layout.columns[-1] > FEW
        return of_classes and cut and layout.together().places == self.loss_layout.places

    def _logits(self, output: Part) -> Tensor:
        layout = output.lay.layout
        if self.scorers is None:
            return plain(output)
        own = layout.block(self.team.rank, output.lay.rows).columns
        return logits_of(plain(output), Classes(own, layout.columns[-1], self.scorers))

    def update(self, *, some: bool = False) -> None:
        """Let the weights learn; `some`: those alone that have a gradient by now, on all ranks the same."""
        self.post.finish()
        if used := next((name for name, each in self.idle.items() if each.grad is not None), None):
            raise ModelError(
                f"parameter {used} is not in a layer of its own, and is used in some steps only: such a model cannot "
                "be cut; use data:N"
            )
        for group, parameters in self.sums.items():
            self._add_up(group, [each for each in parameters if each.grad is not None or not some])
        if self.clip is not None:
            self._clip(self.clip)
        self.optimizer.step()

    def _add_up(self, group: Any, parameters: Sequence[nn.Parameter]) -> None:
        """Gradients of all weights that a group has, in one message; a rank without samples adds nothing.

        Behind them goes of how many ranks each weight has a gradient: one that none has keeps none.
        """
        parameters = [each for each in parameters if each.requires_grad]  # some learn in some epochs only
        if not parameters:
            return
        has = parameters[0].new_tensor([each.grad is not None for each in parameters])
        for each in parameters:
            if each.grad is None:
                each.grad = torch.zeros_like(each)
        gradients = [each.grad for each in parameters if each.grad is not None]
        row = torch.cat([*(each.reshape(-1) for each in gradients), has])
        dist.all_reduce(row, group=group)
        self.post.sent_bytes += row.numel() * row.element_size()
        *sums, has = torch.split(row, [*(each.numel() for each in gradients), len(has)])
        for gradient, part in zip(gradients, sums, strict=True):
            gradient.copy_(part.view(gradient.shape))
        for each, count in zip(parameters, has.tolist(), strict=True):
            if not count:
                each.grad = None

    def _clip(self, most: float) -> None:
        """By the norm of all gradients, in which each part of a weight counts once."""
        own = [cut.tensor(name) for cut in self.cuts for name in cut.shapes if cut.owned(name)]
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
        """The `state_dict` of the whole model."""
        named = {key: each.detach() for key, each in (*self.model.named_parameters(), *self.model.named_buffers())}
        for name in dict.fromkeys(self.keys.values()):
            if (home := self.homes.get(name)) is not None:
                cut, own = home
                named[name] = self._whole(cut, own, {"": cut.tensor(own)})[""]
        return {key: named[name] for key, name in self.keys.items()}

    def gradients(self) -> dict[str, Tensor | None]:
        """Of the whole model, by name."""
        found: dict[str, Tensor | None] = dict.fromkeys(self.named)
        for cut, name in self.trained.values():
            own = cut.tensor(name)
            grad = {} if own is None or own.grad is None else {"": own.grad}
            found[f"{cut.name}.{name}"] = self._whole(cut, name, grad).get("")
        return found

    def load_weights(self, tensors: dict[str, Tensor]) -> None:
        with torch.no_grad():
            named = dict((*self.model.named_parameters(), *self.model.named_buffers()))
            for key, name in self.keys.items():
                cut, own = self.homes.get(name, (None, ""))
                if cut is None:
                    named[name].copy_(tensors[key])
                elif (where := cut.mine(own)) is not None:
                    cut.tensor(own).copy_(where.of(tensors[key]))

    def state(self) -> dict[str, Any]:
        """As the optimizer of the whole model has it: by the number of each parameter."""
        found: dict[int, dict[str, Any]] = {}
        for number, (cut, name) in self.trained.items():
            own = cut.tensor(name)
            found[number] = self._whole(cut, name, dict(self.optimizer.state.get(own, {})) if own is not None else {})
        (group,) = self.optimizer.state_dict()["param_groups"]
        return {"state": found, "param_groups": [{**group, "params": list(range(len(self.named)))}]}

    def load_state(self, state: dict[str, Any]) -> None:
        (group,) = state["param_groups"]
        homes = {id(cut.tensor(name)): (number, cut, name) for number, (cut, name) in self.trained.items()}
        parameters = self.optimizer.param_groups[0]["params"]
        own: dict[int, Any] = {}
        for place, parameter in enumerate(parameters):
            if id(parameter) not in homes:
                continue  # one that nothing needs has no state
            number, cut, name = homes[id(parameter)]
            where, told, shape = cut.mine(name), state["state"].get(number, {}), cut.shapes[name]
            assert where is not None
            own[place] = {
                key: where.of(each) if isinstance(each, Tensor) and each.shape == shape else each
                for key, each in told.items()
            }
        own = {place: each for place, each in own.items() if each}
        super().load_state({"state": own, "param_groups": [{**group, "params": list(range(len(parameters)))}]})

    def sync_buffers(self) -> None:
        own = dict(self.model.named_buffers())
        average(own[name] for name in own if name not in self.homes)
        for name, group in self.counted:
            average([own[name]], group)

    def _whole(self, cut: Cut, name: str, tensors: dict[str, Any]) -> dict[str, Any]:
        """Tensors like a weight of the whole model, put together from the parts that ranks have."""
        mine = {key: each.detach() if isinstance(each, Tensor) else each for key, each in tensors.items()}
        found: dict[str, Any] = {}
        told = self.team.all_gather_json(mine if cut.owned(name) else {})
        for where, owner in cut.pieces[name].items():
            for key, each in told[owner].items():
                if not isinstance(each, Tensor) or tuple(each.shape) != where.shape:
                    found[key] = each  # a number of steps, say
                    continue
                where.put(found.setdefault(key, each.new_empty(cut.shapes[name])), each)
        return found


def _rows_of(split: Split) -> Layout:
    """The samples of a layer's parts, with all features."""
    return made(split, 1).together()


def _takes_all(layer: Layer) -> bool:
    """Whether its parts make other results of the same input."""
    return takes_all(layer) or layer.operation in SUMMED


def _channels_are_last(model: nn.Module) -> bool:
    """Whether images lie in memory with their channels last, as the weights of convolutions do."""
    images = [each for each in model.parameters() if each.dim() == 4 and not each.is_contiguous()]
    return any(each.is_contiguous(memory_format=torch.channels_last) for each in images)
