"""Published scores beside a plan."""

from benchmark.judging.results.published_scores import published_scores


def test_scores_of_as_many_devices_fastest_first() -> None:
    scores = published_scores("gpt3", "H100 SXM", 512)
    minutes = [float(score.split()[0]) for score in scores]
    assert scores[0] == "49.80 min (NVIDIA, 4.1)" and len(scores) == 4
    assert minutes == sorted(set(minutes))
    assert published_scores("gpt3", "H100 SXM", 513) == published_scores("llama31_8b", "H100 SXM", 8) == []
