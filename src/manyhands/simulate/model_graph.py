"""Model graph: the graph of a config's model, on its data."""

from manyhands.config import Config, with_values
from manyhands.data.load import load
from manyhands.graph.graph import Graph
from manyhands.graph.trace import trace
from manyhands.train.job import sample_input
from manyhands.train.weights import build_model

SAMPLES = 2  # one alone could be taken for a size that does not grow


def graph_of(config: Config) -> Graph:
    """Trace the model for a small batch; all but the weights grows with the batch."""
    dataset = load(config.data.name, config.data)
    model = build_model(with_values(config, {"model.init_from": None}), dataset.schema)
    return trace(model, sample_input(dataset.schema, SAMPLES))
