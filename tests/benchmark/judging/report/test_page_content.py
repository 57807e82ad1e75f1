"""The sentences, key figures and tables of the page."""

from pathlib import Path

import pytest

from benchmark.judging.report.leaderboard import changes_table, link
from benchmark.judging.report.page_content import MOST_COLUMNS
from benchmark.judging.report.page_parts import number, perplexity, took
from benchmark.judging.review.official.tool_verdicts import ToolVerdict
from tests.benchmark.judging.report.made_pages import judged, made_page, table, texts
from tests.benchmark.judging.report.runs import MadeRun, write_run
from tests.benchmark.judging.review.fixture import SYSTEM, records, write_package
from tests.benchmark.judging.review.fixture import write_run as write_log
from tests.benchmark.judging.review.published_llama import AMD_8B, NVIDIA_405B

DASH = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (number(None, "{:.2f}"), DASH),
        (number(1e308, "{:,.0f}"), "1e+308"),
        (perplexity(2.6900000000000004, 2.69), "2.6900000000000004"),
        (perplexity(2.690004, 2.69), "2.690004"),
        (perplexity(2.6899999, 2.69), "2.69000"),
        (perplexity(2.7, 2.69), "2.70000"),
        (took(0.475), "28.50 s"),
        (took(10.2), "10.20 min"),
        (took(None), DASH),
    ],
)
def test_numbers_fit_a_line_and_are_never_rounded_across_the_target(shown: str, expected: str) -> None:
    assert shown == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [("[" * 900 + "]" * 900, "…"), ("[NaN, 1e999, 7.0]", "nan, inf, 7"), ('{"a": {"b": null}}', f"a b {DASH}")],
)
def test_values_of_a_description_are_shown_whatever_they_are(value: str, shown: str, tmp_path: Path) -> None:
    package = write_package(tmp_path)
    path = package / f"systems/{SYSTEM}.json"
    path.write_text(path.read_text().replace("{", f'{{"rack": {value},', 1))
    page = made_page(package)
    assert any(cells == ["rack", shown] for cells in texts(page, "System"))


def test_result_of_three_runs(tmp_path: Path) -> None:
    results = write_package(tmp_path, lambda seed: records(seed, evaluations=23)) / "results" / SYSTEM / "gpt3"
    (results / "scaling.json").write_text('{"scaling_factor": 1.0174}')
    page = made_page(results)
    figures = {figure.name: figure for figure in page.key_figures}
    assert page.headline == f"Score {figures['Score'].value} min"
    assert page.title == f"{page.headline}: result_0, result_1, result_2"
    assert page.subject == "ACME · ACME-H100-n64 · gpt3 · result_0, result_1, result_2"
    assert figures["Score"].note.endswith(" min x 1.0174")
    minutes = 512 * float(figures["Score"].value)
    assert float(figures["Accelerator-minutes"].value.replace(",", "")) == pytest.approx(minutes, abs=3)
    assert (figures["Accelerators"].value, figures["Accelerators"].note) == ("512", "NVIDIA H100-SXM5-80GB")
    assert "of 989 TFLOP/s in BF16, whole run. MFU is of the dense BF16 peak, or " in figures["MFU"].note
    assert figures["Last log perplexity"].note.startswith("median of 3, 2.68")
    assert page.verdict[2:][0] == "Review passed"
    assert page.verdict[3].startswith("under ruleset 4.1.0: 1 of 1 official checks passed; 0 errors, ")
    (row,) = texts(page, "Convergence")
    assert row[1:4] == ["2,048", "1,157.6M 1,157.6M 1,157.6M", "1,157.6M"]
    assert row[6:] == ["1,119.6M", "1.0174", "passes, scaled"]


def test_systems_are_ranked_and_never_mixed(tmp_path: Path) -> None:
    """A median over two systems is the time of neither."""
    slow = write_package(tmp_path, lambda seed: records(seed, evaluations=26)).rename(tmp_path / "SLOW")
    none = write_package(tmp_path).rename(tmp_path / "NONE")
    next(none.rglob("result_2.txt")).unlink()
    fast = write_package(tmp_path).rename(tmp_path / "FAST")
    page = made_page(slow, none, fast, beside=tmp_path)
    assert page.key_figures == []
    rows = table(page, "The systems").rows
    told = [[cell.text for cell in row.cells] for row in rows]
    assert [(one[0], one[1]) for one in told] == [
        ("1", f"{SYSTEM}, FAST"), ("2", f"{SYSTEM}, SLOW"), (DASH, f"{SYSTEM}, NONE"),
    ]  # fmt: skip
    assert page.headline == f"3 systems, 2 of them with a score: {told[0][2]} to {told[1][2]} minutes"
    assert [cell.bar for cell in (row.cells[2] for row in rows)][1:] == [100, None]
    assert (rows[2].cells[2].notes, rows[2].cells[8].text) == (["a score takes 3 runs, there are 2"], "rejected")
    assert told[0][3] == "512 x NVIDIA H100-SXM5-80GB"
    heads = [row for row in table(page, "The runs").rows if row.look == "of"]
    assert heads[0].cells[0].links[0] == ("result_0.txt", f"./FAST/results/{SYSTEM}/gpt3/result_0.txt")
    assert [(group, dash) for _, group, dash in page.runs] == [
        *((n, d) for n in (0, 1) for d in range(3)),
        (2, 0),
        (2, 1),
    ]
    assert table(page, "Configuration").head == ["", *(f"{SYSTEM}, {name}" for name in ("FAST", "SLOW", "NONE"))]
    described = {row[0]: row[1:] for row in texts(page, "System")}
    assert described["accelerator model name"] == ["NVIDIA H100-SXM5-80GB"]
    assert described["other software stack"] == ["cuda 12.6"]
    assert not {"cooling", "submitter"} & described.keys()


def test_what_changed_since_another_round(tmp_path: Path) -> None:
    before, after = tmp_path / "training_results_v4.0", tmp_path / "training_results_v4.1"
    before.mkdir()
    after.mkdir()
    for name in ("SAME", "NEXT", "GONE"):
        write_package(tmp_path, lambda seed: records(seed, evaluations=26)).rename(before / name)
    for name in ("SAME", "NEXT", "FRESH"):
        write_package(tmp_path).rename(after / name)
    for folder in ("results", "systems"):
        (path,) = (after / "NEXT" / folder).iterdir()
        path.rename(path.with_name(path.name.replace(SYSTEM, "another")))
    systems = judged([after]).systems
    names = [one.result_set.package or "" for one in systems]
    changed = changes_table(systems, names, judged([before]).systems).rows
    rows = {row.cells[0].text: [cell.text for cell in row.cells] for row in changed}
    kinds = {name: row[1] for name, row in rows.items()}
    assert kinds == {"FRESH": "new", "NEXT": "successor", "SAME": "same", f"GONE/{SYSTEM}": "gone"}
    assert rows["NEXT"][2] == f"NEXT/{SYSTEM}, v4.0"
    assert rows["SAME"][5].startswith("-7.")
    assert rows["FRESH"][3] == rows["FRESH"][5] == rows[f"GONE/{SYSTEM}"][4] == DASH


def test_headlines(tmp_path: Path) -> None:
    def headline(path: Path) -> str:
        return made_page(path).headline

    assert headline(write_run(tmp_path / "a")) == "Target 2.44 reached in 11.00 s"
    assert headline(write_run(tmp_path / "b", (5.5, 3.5))) == "Target 2.44 not reached"
    assert headline(write_run(tmp_path / "c", submission_benchmark="bert")) == "No known benchmark"
    run = write_run(tmp_path / "d")
    (run / "config.json").write_text('{"result_number": 0, "benchmark": {"target_log_perplexity": null}}')
    page = made_page(run)
    assert page.headline == "Log perplexity 2.4300; the run had no target"
    assert page.verdict[2:] == ("Not judged", "because there was no target.")
    assert "review" not in [section.id for section in page.sections]
    assert made_page(run, tmp_path / "a").verdict[2] != "Not judged"
    assert made_page(tmp_path / "a", tmp_path / "b").headline == "1 of 2 runs reached the target"


def test_runs_evaluations_and_origin_stand_side_by_side(tmp_path: Path) -> None:
    made = MadeRun(tmp_path / "a")
    made.begin()
    made.emit("inputs", {"/c4/data": {"md5": {"data.bin": "5"}}, "/c4/ckpt": {}}, mlperf=False)
    made.emit("environment", {"torch": "2.13", "hosts": {"n1": 8}, "empty": ""}, mlperf=False)
    made.step()
    made.restart(steps=1, waiting=5.0)
    made.evaluate(5.5)
    page = made_page(made.end(), write_run(tmp_path / "b", (5.6, 2.43), seed=8))
    assert [row[:5] for row in texts(page, "The runs")] == [
        ["a", "2023-11-14", "7", "7.00 s", "2,048"], ["b", "2023-11-14", "8", "7.25 s", "16,384"],
    ]  # fmt: skip
    assert texts(page, "Every evaluation")[0] == ["2,048", "5.50000", DASH]
    origin = {
        name: {row[0]: row[1:] for row in texts(page, name)}
        for name in ("Log", "Configuration", "Code and environment")
    }
    assert origin["Code and environment"] == {"torch": ["2.13", DASH], "hosts": ["n1 8", DASH]}
    assert origin["Log"]["seeds"] == ["7", "8"]
    assert origin["Log"]["platform"] == ["CPU-2"]
    assert origin["Configuration"]["devices"] == ["1 x 2 cpu"]
    assert ["data.bin", "MD5 0", DASH] not in texts(page, "Data and checkpoint")
    assert {figure.name: figure.value for figure in page.key_figures}["Restarts"] == "1"
    many = made_page(*(write_run(tmp_path / f"m{n}", seed=n) for n in range(MOST_COLUMNS + 1)))
    assert "Every evaluation" not in {getattr(part, "label", "") for one in many.sections for part in one.parts}


def test_findings_stand_once_with_their_line_and_by_the_names_on_the_page(tmp_path: Path) -> None:
    runs = [
        write_log(tmp_path / str(seed), [one for one in records(seed) if one["key"] != "seed"]) for seed in (1, 2, 3)
    ]
    (row,) = [row for row in table(made_page(*runs), "Findings").rows if row.cells[1].text == "seed.logged"]
    folded = row.cells[2].folded
    assert folded is not None
    assert len(folded[1]) == 2
    run = write_run(tmp_path / "run")
    log = run / "result_0.txt"
    check = ToolVerdict("compliance", str(log), "failed", (f"{log}: wrong",), ("a note",), 0.1)
    page = made_page(run, check=check)
    assert texts(page, "Official checks") == [["compliance", "run", "failed"]]
    assert table(page, "Official checks").rows[0].cells[2].notes == ["run: wrong", "a note"]
    assert (page.verdict[0], page.verdict[2]) == ("bad", "Review failed")
    hostile = records(1)
    next(one for one in hostile if one["key"] == "opt_name")["value"] = "<b>sgd</b>"
    found = table(made_page(write_log(tmp_path / "hostile", hostile)), "Findings").rows
    assert any('"value": "<b>sgd</b>"' in row.cells[3].code for row in found)


@pytest.mark.parametrize(
    ("name", "href"),
    [
        ("a b.txt", "./a%20b.txt"),
        ("javascript:alert(1)", "./javascript%3Aalert%281%29"),
        ('"><img src=x>', "./%22%3E%3Cimg%20src%3Dx%3E"),
        ("\udcff", "./%FF"),
    ],
)
def test_links_are_relative_and_encoded(name: str, href: str, tmp_path: Path) -> None:
    assert link(tmp_path / name, tmp_path) == href


def test_each_benchmark_has_a_leaderboard_of_its_own(tmp_path: Path) -> None:
    """Llama 3.1 counts samples; the page shows them as its logs do, and everything that is compared in tokens."""
    folders = [AMD_8B.write(tmp_path / "amd", len(AMD_8B.runs)), NVIDIA_405B.write(tmp_path / "nvidia", 3)]
    page = made_page(write_package(tmp_path / "training_results_v4.1"), *folders)
    boards = {name: texts(page, f"The systems, {name}") for name in ("gpt3", "llama31_8b", "llama31_405b")}
    assert [(name, len(rows), rows[0][0], rows[0][2]) for name, rows in boards.items()] == [
        ("gpt3", 1, "1", "52.00"),
        ("llama31_8b", 1, "1", "99.31"),
        ("llama31_405b", 1, "1", "230.68"),
    ]
    assert page.headline == "3 systems, 3 benchmarks"
    convergence = texts(page, "Convergence")
    assert [row[3] for row in convergence][1:] == ["276,480", "178,144"]
    assert convergence[1][2] == "276,480 276,480 276,480"


def test_ten_runs_of_llama_are_counted_in_samples_and_folded(tmp_path: Path) -> None:
    page = made_page(AMD_8B.write(tmp_path / "amd", len(AMD_8B.runs)))
    figures = {figure.name: figure for figure in page.key_figures}
    assert "Tokens" not in figures
    assert figures["Samples"].value == "178,144"
    assert figures["Samples"].note.startswith("median of 10, ")
    runs = table(page, "The runs")
    assert (runs.head[4], runs.summary) == ("Samples", "10 runs")
    (row,) = table(page, "Convergence").rows
    low, _, high = row.cells[2].text.partition(" to ")
    assert row.cells[2].folded is not None
    summary, counts = row.cells[2].folded
    assert (summary, counts[0], counts[-1], len(counts)) == ("10 runs", low, high, 10)
    accuracy = next(figure for figure in page.figures if figure.family == "accuracy")
    assert (accuracy.x_label, accuracy.x_unit) == ("samples trained", "samples")
    assert all(12_000 < x < 200_000 for line in accuracy.lines for x in line.x)
    assert accuracy.band is not None
    assert 100_000 < accuracy.band.low < accuracy.band.high < 300_000


def test_questions_stand_before_the_runs(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name) for name in "ab"]
    order = [section.id for section in made_page(*runs).sections]
    assert (order.index("review") > order.index("runs")) != bool(
        judged(runs)
        .subjects[0]
        .of(
            "error",
        )
    )
    sound = write_package(tmp_path / "sound")
    order = [section.id for section in made_page(sound).sections]
    assert order.index("runs") < order.index("accuracy") < order.index("review")
    spoilt = write_package(
        tmp_path / "spoilt", lambda seed: [*records(seed)[:-1], {**records(seed)[-1], "value": None}]
    )
    next(spoilt.rglob("result_2.txt")).unlink()
    order = [section.id for section in made_page(spoilt).sections]
    assert order.index("review") < order.index("runs")


def test_equal_findings_share_a_row_that_says_how_many(tmp_path: Path) -> None:
    spoilt = write_package(tmp_path, lambda seed: [one for one in records(seed) if one["key"] != "opt_name"])
    page = made_page(spoilt)
    rows = table(page, "Findings").rows
    numbers = [int(row.cells[0].notes[0].split()[0]) if row.cells[0].notes else 1 for row in rows]
    counts = {word: sum(number for number, row in zip(numbers, rows, strict=True) if row.cells[0].text == word)
              for word in ("error", "question", "note")}  # fmt: skip
    for word, count in counts.items():
        assert f"{count} {word}" in page.verdict[3]
