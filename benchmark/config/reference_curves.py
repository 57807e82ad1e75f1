"""Validation log perplexity after each evaluation in runs of a benchmark, by global batch size: data only.

gpt3_175b: medians over the distinct logs among those published in rounds 3.0 to 4.1 (docs/facts/mlperf_review.md 6.5):
9 runs at a global batch size of 1536, 39 at 2048, 24 at 3072, 12 at 4096, 9 at 6144. None is published at 8192: that
curve is the one of 6144, stretched from 28 evaluations to the 32.25 of the reference runs
(docs/facts/mlperf_review.md 5.9). rehearsal: medians over four seeds; rehearsal_llama: over nine.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReferenceCurve:
    """Runs at one global batch size."""

    global_batch_size: int
    """Samples."""
    tokens_per_value: int
    """Trained tokens from one value to the next; the first value is after so many."""
    log_perplexities: tuple[float, ...]
    """Nats per scored token."""


_SIZES = {
    1536: (
        "2.7458 2.7362 2.7310 2.7271 2.7247 2.7212 2.7182 2.7158 2.7137 2.7115 2.7090 2.7073 2.7055 2.7036 2.7021 "
        "2.7006 2.6988 2.6976 2.6961 2.6945 2.6932 2.6918 2.6904 2.6889"
    ),
    2048: (
        "2.7500 2.7389 2.7321 2.7275 2.7239 2.7210 2.7184 2.7158 2.7137 2.7115 2.7095 2.7075 2.7057 2.7039 2.7023 "
        "2.7007 2.6992 2.6978 2.6963 2.6949 2.6934 2.6921 2.6908 2.6896"
    ),
    3072: (
        "2.7554 2.7433 2.7353 2.7296 2.7253 2.7219 2.7191 2.7165 2.7142 2.7121 2.7101 2.7081 2.7064 2.7046 2.7030 "
        "2.7016 2.6998 2.6984 2.6969 2.6956 2.6942 2.6929 2.6918 2.6904 2.6894"
    ),
    4096: (
        "2.7562 2.7453 2.7374 2.7316 2.7273 2.7239 2.7208 2.7181 2.7161 2.7139 2.7118 2.7102 2.7081 2.7064 2.7050 "
        "2.7033 2.7018 2.7001 2.6989 2.6973 2.6959 2.6946 2.6936 2.6919 2.6907 2.6898"
    ),
    6144: (
        "2.7590 2.7496 2.7421 2.7359 2.7307 2.7265 2.7231 2.7207 2.7180 2.7151 2.7131 2.7110 2.7101 2.7081 2.7062 "
        "2.7049 2.7037 2.7016 2.7009 2.6995 2.6982 2.6964 2.6950 2.6944 2.6926 2.6918 2.6907 2.6896"
    ),
    8192: (
        "2.7614 2.7521 2.7451 2.7392 2.7341 2.7298 2.7262 2.7233 2.7211 2.7188 2.7164 2.7142 2.7125 2.7109 2.7101 "
        "2.7083 2.7067 2.7054 2.7043 2.7029 2.7015 2.7008 2.6996 2.6984 2.6969 2.6956 2.6947 2.6938 2.6924 2.6918 "
        "2.6908 2.6898"
    ),
}
_REHEARSAL_LLAMA = "6.379 5.395 4.488 3.846 3.451 3.183 2.948 2.752 2.574 2.438"
_REHEARSAL = "5.584 4.743 4.096 3.708 3.463 3.279 3.122 2.981 2.847 2.729 2.613 2.522 2.432"

REFERENCE_CURVES = {
    "gpt3_175b": tuple(
        ReferenceCurve(size, 24576 * 2048, tuple(map(float, values.split()))) for size, values in _SIZES.items()
    ),
    "rehearsal": (ReferenceCurve(16, 256 * 128, tuple(map(float, _REHEARSAL.split()))),),
    "rehearsal_llama": (ReferenceCurve(16, 128 * 128, tuple(map(float, _REHEARSAL_LLAMA.split()))),),
}
"""The curves by benchmark, the smallest global batch size first."""
