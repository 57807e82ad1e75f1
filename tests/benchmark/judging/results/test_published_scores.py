"""Published scores beside a plan."""

from benchmark.judging.results.published_scores import published_scores


def test_scores_of_as_many_devices_fastest_first() -> None:
    scores = published_scores("gpt3", "H100 SXM", 512, "fp8")
    minutes = [float(score.split()[0]) for score in scores]
    assert scores[0] == "49.80 min in FP8 (NVIDIA, 4.1)" and len(scores) == 4
    assert minutes == sorted(set(minutes))
    assert (
        published_scores("gpt3", "H100 SXM", 513, "fp8") == published_scores("llama31_8b", "H100 SXM", 8, "bf16") == []
    )


def test_scores_of_the_plans_format_come_first() -> None:
    expected = ["223.91 min in FP8 (Intel-HabanaLabs, 3.1)", "442.58 min in BF16 (Intel-HabanaLabs, 3.0)"]
    assert published_scores("gpt3", "Gaudi 2", 256, "fp8") == expected
    assert published_scores("gpt3", "Gaudi 2", 256, "bf16") == expected[::-1]
