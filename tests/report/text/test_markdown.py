"""Markdown: tables that GitHub shows, and words that mean nothing but themselves."""

from pathlib import Path
from typing import Any

import fake_study
from manyhands.report.data.group import Group
from manyhands.report.gather import gather, of_groups
from manyhands.report.text.markdown import markdown, plain


def test_a_comparison(make_run: Any) -> None:
    groups = [
        Group("plain", (make_run("a0", 1000.0), make_run("a1", 1020.0))),
        Group("serial", (make_run("b0", 3000.0), make_run("b1", None))),
    ]
    text = markdown(of_groups(groups, "manyhands report runs"))
    for words in (
        "# convnet on digits\n\n**serial trained 3.0x as fast as plain PyTorch at 98.0 % against 98.0 % ",
        "> Single runs",
        "| case | precision | samples/s | speed-up | training seconds | test accuracy, % | n |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| plain | fp32 | 1,010 ± 14 | 1.00x | 10.1 ± 0.1 | 98.00 ± 0.00 | 2 |\n"
        "| serial | fp32 | 3,000 | 2.97x | 3.4 | 98.00 | 1 |\n",
        "- serial failed: out of memory",
        "- machine: a CPU, 2 cores, 24 GiB\n- system: Linux\n- versions: torch 2.13.0\n",
        "```sh\nmanyhands report runs\n```\n",
    ):
        assert words in text


def test_a_study(make_run: Any, tmp_path: Path) -> None:
    make_run("a", case="sgd")
    text = markdown(gather([fake_study.write(tmp_path)], "manyhands report ."))
    for words in (
        "# Optimizers\n\n**The source's finding that adam is best holds here: 98.80 % against 95.00 %.**\n",
        "- Source: A4: optimizers on MNIST\n- Published on: an RTX 3070\n- Here: a CPU, 2 cores\n- Used: 20,000 ",
        "- Differs from the source in: the network, which is not printed\n",
        "| adam | 98.80 ± 0.10 % | 2,900 ± 20 | 21.00 ± 0.40 | 0.97x | 1.05 ± 0.01 | 3 | 99.1 % | 507.1 |\n",
        "- lamb failed: the loss is NaN at step 17\n- left out: lars: needs a GPU\n",
        "```sh\nmanyhands study optimizers\nmanyhands report .\n```\n",
    ):
        assert words in text


def test_the_fit_of_a_scaling_study(make_run: Any, tmp_path: Path) -> None:
    make_run("a", case="sgd")
    text = markdown(gather([fake_study.write(tmp_path, **fake_study.scaling())], ""))
    assert "\n\n- batch 64: 10.0 % stays serial by Amdahl's law, at most 10.0x\n" in text


def test_words_cannot_become_anything_else() -> None:
    assert plain("a|b\nc") == "a\\|b c"
    assert plain("![x](http://evil) `rm` *b* \\") == "!\\[x\\](http://evil) \\`rm\\` \\*b\\* \\\\"
    assert plain("<script>&amp;") == "&lt;script>&amp;amp;"


def test_a_command_cannot_leave_its_block(make_run: Any) -> None:
    text = markdown(of_groups([Group("a", (make_run("a"),))], "echo ```\n```` <b>"))
    assert "`````sh\necho ``` ```` <b>\n`````\n" in text


def test_lines_of_a_table_have_the_same_cells(make_run: Any) -> None:
    text = markdown(of_groups([Group("a|b", (make_run("a"),)), Group("|", (make_run("b"),))], ""))
    lines = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert {line.count("|") for line in lines} == {8}
