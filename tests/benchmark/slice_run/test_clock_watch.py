import time

from benchmark.slice_run.clock_watch import ClockWatch, clocks_within, parsed

ANSWER = "98, 1755, 1980, 689.50, 700.00, 61\n0, 345, 1980, 71.2, 700.00, 30\n"


def test_gpus_at_work_are_told_over_the_window() -> None:
    readings = [*parsed(ANSWER, 9.0), *parsed(ANSWER.replace("1755", "1605"), 11.0), *parsed(ANSWER, 12.0)]
    clocks = clocks_within(readings, (10.0, 13.0))
    assert clocks is not None
    assert (clocks.lowest_clock_mhz, clocks.most_clock_mhz) == (1605.0, 1980.0)
    assert (clocks.highest_power_w, clocks.most_power_w, clocks.highest_temperature_c) == (689.5, 700.0, 61.0)
    assert clocks_within(readings, (20.0, 30.0)) is None


def test_lines_without_all_figures_are_left_out() -> None:
    assert parsed("98, [N/A], 1980, 689.50, 700.00, 61\nNVIDIA-SMI has failed\n", 1.0) == []


def test_the_watch_asks_until_it_is_closed_or_nothing_answers() -> None:
    watch = ClockWatch(lambda: ANSWER)
    deadline = time.monotonic() + 60
    while not watch._readings and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(watch.close()) >= 2
    assert ClockWatch(lambda: "").close() == []
