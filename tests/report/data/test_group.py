"""Groups: repeats together, and names that tell the others apart."""

from typing import Any

from manyhands.report.data.group import group


def config(**train: Any) -> dict[str, Any]:
    return {"config": {"model": {"name": "convnet"}, "data": {"name": "digits"}, "train": train}}


def labels(runs: list[Any]) -> list[str]:
    return [each.label for each in group(runs)]


def test_plans_are_named_by_what_tells_them_apart(make_run: Any) -> None:
    words = ["plain,threads=2", "serial,threads=2,precision=bf16", "serial,threads=2,precision=fp32", "plain,threads=2"]
    runs = [make_run(str(number), plan_words=each) for number, each in enumerate(words)]
    groups = group(runs)
    assert [each.label for each in groups] == ["plain", "serial,precision=bf16", "serial,precision=fp32"]
    assert groups[0].runs == (runs[0], runs[3])


def test_runs_that_differ_in_their_seed_are_repeats(make_run: Any) -> None:
    runs = [make_run(f"{seed}", **config(seed=seed, epochs=2)) for seed in range(3)]
    (only,) = group(runs)
    assert only.runs == tuple(runs)


def test_the_settings_that_differ_make_groups_and_names(make_run: Any) -> None:
    runs = [
        make_run(f"{lr}-{seed}", plan_words="serial,threads=2", **config(seed=seed, lr=lr, epochs=2))
        for lr in (0.01, None)
        for seed in (0, 1)
    ]
    groups = group(runs)
    assert [each.label for each in groups] == ["serial, train.lr=0.01", "serial, train.lr=none"]
    assert [len(each.runs) for each in groups] == [2, 2]


def test_a_setting_is_named_only_where_it_tells_apart(make_run: Any) -> None:
    runs = [
        make_run("a", plan_words="plain", **config(epochs=2)),
        make_run("b", plan_words="serial", **config(epochs=2)),
        make_run("c", plan_words="serial", **config(epochs=4)),
    ]
    assert labels(runs) == ["plain", "serial, train.epochs=2", "serial, train.epochs=4"]


def test_a_case_goes_by_its_name_however_its_plan_was_bound(make_run: Any) -> None:
    bound = ["serial,layout=contiguous", "serial,layout=channels_last"]
    runs = [make_run(words, plan_words=words, case="serial", repeat=at) for at, words in enumerate(bound)]
    (only,) = group(runs)
    assert (only.label, only.runs) == ("serial", tuple(runs))


def test_a_case_of_two_sweeps_is_told_apart_by_their_settings(make_run: Any) -> None:
    runs = [
        make_run("a", case="sgd", **config(lr=0.1)),
        make_run("b", case="sgd", **config(lr=0.2)),
        make_run("c", case="adam", **config(lr=0.2)),
    ]
    assert labels(runs) == ["sgd, train.lr=0.1", "sgd, train.lr=0.2", "adam"]


def test_machines_are_never_mixed(make_run: Any) -> None:
    runs = [make_run(words, case="serial", machine_words=words) for words in ("2 cores", "16 cores")]
    assert labels(runs) == ["serial, machine=2 cores", "serial, machine=16 cores"]


def test_a_label_cannot_be_endless(make_run: Any) -> None:
    (only,) = group([make_run("a", case="x" * 100_000)])
    assert len(only.label) == 120
