"""The commands of ``python -m checkpoint_convert``: their options and their output.

Commands that need PyTorch import their code when they run, because that takes longer than a small conversion.
"""
