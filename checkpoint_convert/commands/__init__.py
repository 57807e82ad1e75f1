"""What ``python -m checkpoint_convert`` can be told: each command's options, and what it prints.

Commands that need PyTorch import their code when they run: it takes longer to load than a small conversion.
"""
