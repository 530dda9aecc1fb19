"""Your own training loop, alone or on many ranks: two inputs, batches that are dicts, a loss of two terms.

python examples/own_loop.py                                      one process
manyhands launch examples/own_loop.py --plan data:2              two, which print the same losses
manyhands launch examples/own_loop.py --plan data:2 --epochs 5   with an option of the script's own
"""

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

import manyhands as mh

Sample = dict[str, Tensor]


class Houses(Dataset[Sample]):
    """Made-up houses: a picture and some features; to guess are the kind of house and its price."""

    def __init__(self, count: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(0, 4, (count,), generator=generator)
        self.features = torch.randn(count, 6, generator=generator)
        self.picture = torch.randn(count, 1, 16, 16, generator=generator)
        self.picture[:, 0, :8, :8] += self.kind.view(-1, 1, 1) - 1.5
        self.price = self.features @ torch.tensor([1.0, -0.5, 0.25, 0.0, 0.5, 2.0]) + self.kind

    def __len__(self) -> int:
        return len(self.kind)

    def __getitem__(self, number: int) -> Sample:
        names = ("picture", "features", "kind", "price")
        return {name: getattr(self, name)[number] for name in names}


class Net(nn.Module):
    """One branch for each input, one head for each answer."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(512, 16)
        )
        self.facts = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.kind, self.price = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, picture: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        both = torch.cat([self.looks(picture), self.facts(features)], dim=1)
        return self.kind(both), self.price(both).squeeze(1)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--epochs", type=int, default=3)
    options.add_argument("--lr", type=float, default=0.01)
    chosen = options.parse_args()

    torch.manual_seed(0)
    net = Net()
    optimizer: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), lr=chosen.lr)
    loader = DataLoader(Houses(1000, seed=1), batch_size=64, shuffle=True)  # 64 of all ranks together; 40 at the end
    model, optimizer, loader = mh.parallelize(net, optimizer, loader)

    for epoch in range(chosen.epochs):
        totals = torch.zeros(2)
        for batch in loader:
            kind, price = model(batch["picture"], batch["features"])
            loss = functional.cross_entropy(kind, batch["kind"]) + 0.1 * functional.mse_loss(price, batch["price"])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            right = (kind.argmax(1) == batch["kind"]).float().mean()
            totals += mh.mean_over_ranks(torch.stack([loss, right]))
        average, accuracy = (totals / len(loader)).tolist()
        print(f"epoch {epoch + 1}: loss {average:.4f}, {accuracy:.1%} of the kinds right")

    if mh.rank() == 0:  # of many, one saves; the plain model has the weights
        print(f"{sum(weights.numel() for weights in net.state_dict().values())} weights could be saved now")


if __name__ == "__main__":
    main()
